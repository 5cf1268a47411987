"""Folders as finished trainings leave them."""

import json

from layerwise.files import write_json
from layerwise.train.loop.run import without_folders
from layerwise.train.loop.seeds import MODEL, RESULT
from support.training import recipe, term


def log(folder, **figures):
    """A metrics.jsonl of figures by step."""
    folder.mkdir(parents=True)
    lines = [{"step": step, name: value} for name, points in figures.items() for step, value in points.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def finish(folder, layers=None, *, seed=0, kept=12, scores=None, dev=50.0, **settings):
    """What `layerwise train` leaves of a finished training, as far as the measure reads it."""
    objective = term("info-nce") if layers is None else term("sscl", layers=tuple(layers), **settings.pop("sscl", {}))
    facts = {"recipe": without_folders(recipe(objective, **settings).facts()), "seed": seed}
    if scores:
        facts |= {"averages": {"sts": scores[0]}, "scores": {"stsb": scores[1]}}
    write_json(folder / RESULT, facts | {"dev": {"task": "stsb", "best": dev}})
    write_json(folder / MODEL / "layerwise.json", {"blocks": {"kept": kept, "of": 12}})
    return folder
