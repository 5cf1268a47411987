"""Teachers without labels: SmolLM2-135M-Instruct with sets of its untrained views that STS-B dev chose."""

import json
from itertools import islice
from pathlib import Path

SMOL = "SmolLM2-135M-Instruct"
OWN_VIEWS, OWN_LESS = f"{SMOL}-views", f"{SMOL}-views-less"
COLUMNS = {OWN_VIEWS: ("mean, A", 0), OWN_LESS: ("8, B", 8)}  # of the table of views, and components taken away
CHOSEN = Path(__file__).parent / "results" / f"views-dev-{SMOL}.json"
TEXTS = 3000  # sentences whose mean and components are taken away


def make_own_views(name: str, models: Path, text: Path) -> None:
    """Save a teacher into the folder of models, less what of its views is of some of the training text, once."""
    import torch
    from filelock import FileLock

    from layerwise import LayerModel
    from layerwise.mixes import Centres, fit_centres, parse_mix
    from layerwise.postprocess import FittedOn

    folder, (column, less) = models / name, COLUMNS[name]
    with FileLock(f"{folder}.lock"):  # processes beside this one may need it too
        if folder.is_dir():
            return
        model = LayerModel.load(str(models / SMOL))
        chosen = json.loads(CHOSEN.read_text(encoding="utf-8"))
        mix = parse_mix(chosen["dev"][column]["stsb"]["mix"]).resolve(model.encoder.depth)
        texts = first_lines(text, TEXTS)
        fitted = []
        for pooling, layers in mix.needs.items():
            views = model.encoder.encode_layers(texts, pooling=pooling, layers=list(layers))
            fitted.append(fit_centres(torch.from_numpy(views).float(), less))
        means, directions = (torch.cat([getattr(one, part) for one in fitted]) for part in ("means", "directions"))
        mix = mix.with_centres(Centres(means, directions))
        model.replaced(mix=mix, fitted_on=(FittedOn.of(texts, source="wiki1m"),)).save(folder)


def first_lines(text: Path, count: int) -> list[str]:
    """Of a file of sentences."""
    with text.open(encoding="utf-8") as lines:
        return [line.strip() for line in islice(lines, count)]
