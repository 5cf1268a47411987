"""The quality table: encoders by ways to embed without training, on the seven STS sets.

    python benchmarks/quality.py [ENCODER ...]      (or: make bench-quality)

Each set's test split in SentEval's form; Spearman x 100 over all its pairs ("all"). Fixed mixes and whitening are
scored on all test pairs. Layer combination (LC): 350 random pairs of the set choose among every set of layers, the
others report; mean of 5 splits. Whitening of the mean of the last layer is fitted once on the sentences of STS-B train,
which are in part those of STS12-16, once on the set's own test sentences, as its paper does; the stamps say how many of
the test sentences were seen. Every figure is stored with its stamp; encoders named are added to what
benchmarks/results/quality.json has, with --fresh nothing of it is kept.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from layers import encoders
from layerwise import LayerModel
from layerwise.data import TaskRows, find_tasks, load_task
from layerwise.evaluate import LayerSubject, TaskResult, evaluate
from layerwise.evaluate.lc import DEV_PAIRS, SPLITS, search_splits
from layerwise.kinds import Protocol, prepare
from layerwise.postprocess import FittedOn, Whitening
from measure import RESULTS, model_folder, shared_folder, write_result

MIXES = {"last layer": "last", "last 4": "last-4", "first and last": "first-last"}
STAMPED = ("split", "scored", "rows_digest", "mix", "layers", "pooling", "saw_test_text", "as_published")


def figure(result: TaskResult) -> dict[str, Any]:
    """A score and what of its stamp differs from row to row."""
    return {"score": result.score} | {name: result.stamp[name] for name in STAMPED}


def fixed(model: LayerModel, tasks: list, data: str) -> dict[str, dict[str, Any]]:
    """Row -> set -> figure, for the mixes that need no choice."""
    found = evaluate(LayerSubject(model, list(MIXES.values())), tasks, data=data)
    return {
        name: {task: figure(result) for task, result in run.results.items()}
        for name, run in zip(MIXES, found.runs, strict=True)
    }


def combined(subject: LayerSubject, rows: TaskRows) -> dict[str, Any]:
    """The best layers of 350 pairs, on the others, five times."""
    views = subject.views(rows.texts, ("mean",))["mean"]
    left, right = prepare(rows, Protocol("lc")).sides({"": views})
    outcome = search_splits({"mean": left}, {"mean": right}, np.asarray(rows.labels), seeds=(0,))
    return {"score": outcome.figures["spearman"], "sd": outcome.sd["spearman"], **outcome.details}


def whitened(model: LayerModel, texts: list[str], source: str) -> LayerModel:
    """The mean of the last layer, whitened by what these sentences say of it."""
    embeddings = next(LayerSubject(model).embed(texts, "", LayerSubject(model).variants))
    return model.with_postprocess(Whitening().fit(embeddings, fitted_on=FittedOn.of(texts, source=source)))


def measure(folder: Path | str, data: str) -> dict[str, Any]:
    """All rows of one encoder."""
    model = LayerModel.load(folder, mix="last")
    subject, tasks = LayerSubject(model), find_tasks(suites=["sts"])
    sets = {task.name: load_task(task, data) for task in tasks}
    found = fixed(model, tasks, data)
    tests = {name: rows.pick(rows.splits["test"]) for name, rows in sets.items()}
    found["layer combination"] = {
        name: found["last layer"][name] | combined(subject, rows) | {"mix": "searched", "layers": []}
        for name, rows in tests.items()
    }
    stsb = sets["stsb"]
    elsewhere = whitened(model, stsb.pick(stsb.splits["train"]).texts, "STS-B train")
    other = evaluate(LayerSubject(elsewhere), tasks, data=data).runs[0].results
    found["whitening, fitted on STS-B train"] = {name: figure(result) for name, result in other.items()}
    found["whitening, fitted on its test text"] = {}
    for task in tasks:
        own = whitened(model, tests[task.name].texts, f"{task.name} test")
        result = evaluate(LayerSubject(own), [task], data=data).runs[0].results[task.name]
        found["whitening, fitted on its test text"][task.name] = figure(result)
    return {"rows": found, "model": {k: v for k, v in subject.facts().items() if k != "model"}}


def main() -> None:
    """Measure the named encoders, or all."""
    path = RESULTS / "quality.json"
    known = json.loads(path.read_text())["encoders"] if path.exists() and "--fresh" not in sys.argv else {}
    folders = encoders() | {"all-MiniLM-L6-v2": model_folder("all-MiniLM-L6-v2")}
    for name in [name for name in sys.argv[1:] if name in folders] or list(folders):
        known[name] = measure(folders[name], str(shared_folder() / "data"))
        for row, sets in known[name]["rows"].items():
            scores = [found["score"] for found in sets.values()]
            print(f"{name}, {row}: {' '.join(f'{s:.2f}' for s in scores)}  {np.mean(scores):.2f}", flush=True)
        protocol = {"form": "SentEval", "aggregation": "all", "dev_pairs": DEV_PAIRS, "splits": SPLITS}
        write_result("quality", {"what": "Spearman x 100, seven STS sets", "protocol": protocol, "encoders": known})


if __name__ == "__main__":
    main()
