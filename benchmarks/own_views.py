"""Teachers that are sets of a model's own views, untrained, as the clean pairs of STS-B dev chose them."""

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

SMOL, MINILM, MPNET = "SmolLM2-135M-Instruct", "all-MiniLM-L6-v2", "all-mpnet-base-v2"
OWN_VIEWS, OWN_LESS = f"{SMOL}-views", f"{SMOL}-views-less"
MINILM_VIEWS, MPNET_VIEWS = f"{MINILM}-views", f"{MPNET}-views"
RESULTS = Path(__file__).parent / "results"
TEXTS = 3000  # sentences whose mean and components are taken away


@dataclass(frozen=True)
class OwnViews:
    """A set of a table of views: its model, the file and the column, and the components that are taken away."""

    model: str
    file: str
    column: str
    less: int | None = None


SEARCHED = {
    OWN_VIEWS: OwnViews(SMOL, f"views-dev-{SMOL}.json", "mean, A", 0),
    OWN_LESS: OwnViews(SMOL, f"views-dev-{SMOL}.json", "8, B", 8),
    MINILM_VIEWS: OwnViews(MINILM, f"views-{MINILM}.json", "as they are"),
    MPNET_VIEWS: OwnViews(
        MPNET, f"views-passes-{MPNET}.json", "as they are"
    ),  # the best of two passes; that of any number has five
}


def make_own_views(name: str, models: Path, text: Path) -> None:
    """Save a teacher into the folder of models, less what of its views is of some of the training text, once."""
    from filelock import FileLock

    from layerwise import LayerModel
    from layerwise.mixes import parse_mix

    folder, searched = models / name, SEARCHED[name]
    with FileLock(f"{folder}.lock"):  # processes beside this one may need it too
        if folder.is_dir():
            return
        model = LayerModel.load(str(models / searched.model))
        chosen = json.loads((RESULTS / searched.file).read_text(encoding="utf-8"))
        mix = parse_mix(chosen["dev"][searched.column]["stsb"]["mix"]).resolve(model.encoder.depth)
        model = model.replaced(mix=mix) if searched.less is None else _fitted(model, mix, searched.less, text)
        model.save(folder)


def _fitted(model, mix, less: int, text: Path):
    """The model with a mix whose views come without their mean, and so many components, over some of a text."""
    import torch

    from layerwise.mixes import Centres, fit_centres
    from layerwise.postprocess import FittedOn

    texts, fitted = first_lines(text, TEXTS), []
    for pooling, layers in mix.needs.items():
        views = model.encoder.encode_layers(texts, pooling=pooling, layers=list(layers))
        fitted.append(fit_centres(torch.from_numpy(views).float(), less))
    means, directions = (torch.cat([getattr(one, part) for one in fitted]) for part in ("means", "directions"))
    mix = mix.with_fitted(Centres(means, directions))
    return model.replaced(mix=mix, fitted_on=(FittedOn.of(texts, source="wiki1m"),))


def first_lines(text: Path, count: int) -> list[str]:
    """Of a file of sentences."""
    with text.open(encoding="utf-8") as lines:
        return [line.strip() for line in islice(lines, count)]
