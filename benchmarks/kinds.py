"""Which layers win for each kind of task? The matrix of tasks by layers, and what choosing layers is worth.

    python benchmarks/kinds.py MODEL [--tasks NAMES] [--scale 1.0]

Rows are limited, so that a small model takes minutes on a core; `--scale 4` takes four times as many. For each task:
every single layer on all rows; then a half of the rows chooses a set of layers, and the other half reports the last
layer, the set chosen on STS-B and the own set, with intervals of the gains over the last layer. What was measured
is added to results/kinds.json after each task, and not measured again.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from layerwise import LayerModel
from layerwise.data import find_tasks, load_task
from layerwise.evidence import paired_gain
from layerwise.mixes import Mean
from layerwise.plots import save_figure, view_scores
from layerwise.search import Search
from measure import RESULTS, machine, write_result

CHOOSER = "stsb"
LIMITS = {  # task -> pairs, queries or rows
    CHOOSER: 400,
    "stackoverflow": 800,
    "wikiqa": 80,
    "twitter-url": 400,
    "tatoeba-deu-eng": 300,
    "tweeteval-emotion": 400,
    "cranfield": 225,
    "semrel-eng": 400,
    "banking77-clusters": 800,
    "tatoeba-spa-eng": 300,
    "amazon-counterfactual": 400,
    "biosses": 100,
}


def main() -> None:
    """Measure what is missing of a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tasks", default=",".join(LIMITS))
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    name = Path(options.model).name if options.model != "default" else "all-MiniLM-L6-v2"
    known = json.loads(path.read_text(encoding="utf-8")) if (path := RESULTS / "kinds.json").is_file() else {}
    measured: dict[str, Any] = known.get("models", {}).get(name, {"scale": options.scale, "tasks": {}})
    model = LayerModel.load(options.model)
    names = [task for task in options.tasks.split(",") if task not in measured["tasks"]]
    for task in names if "sts_set" in measured else dict.fromkeys([CHOOSER, *names]):
        began = time.perf_counter()
        row = measure(model, task, round(options.scale * LIMITS[task]), measured)
        here = measured.setdefault("machine", known.get("machine", machine()))
        elsewhere = {} if here == machine() else {"device": machine().get("device", machine()["processor"])}
        measured["tasks"][task] = row | {"seconds": round(time.perf_counter() - began, 1)} | elsewhere
        print(name, task, json.dumps({key: row[key] for key in ("own", "sts_set", "last")}), flush=True)
        write_result("kinds", known | {"models": known.get("models", {}) | {name: measured}})
    draw(name, measured["tasks"])


def measure(model: LayerModel, name: str, limit: int, measured: dict[str, Any]) -> dict[str, Any]:
    """One task: every layer, and the choices on rows that did not choose."""
    (declared,) = find_tasks([name])
    pooling, *_ = model.mix.poolings
    search = Search(role="test", limit=limit, poolings=pooling)
    selection = search.fit(model, load_task(declared)).selection_
    scorer = selection.scorer
    problem = scorer.problems[pooling]
    if name == CHOOSER:
        measured["sts_set"] = list(selection.chosen.layers)
    sts = Mean.of(*measured["sts_set"], pooling=pooling)
    redraw = scorer.redraw(0, [sts, selection.last.mix])
    gain = paired_gain(
        redraw, selection.splits, size=selection.units, smooth=scorer.smooth, starts=scorer.starts
    )  # fmt: skip
    return {
        "kind": declared.kind,
        "suite": declared.suite,
        "metric": declared.metric,
        "unit": selection.unit,
        "choose": selection.n_choosing,
        "report": selection.n_reporting,
        "sets": len(selection.table),
        "layers": problem.scores(np.eye(problem.layers)).tolist(),
        "best_single": int(max(range(problem.layers), key=lambda layer: selection.table.score_of([layer]))),
        "last": selection.last.test,
        "own_set": list(selection.chosen.layers),
        "own": selection.chosen.test,
        "own_gain": vars(selection.gain),
        "sts_set": float(scorer.unseen_scores([sts])[0, 0]),
        "sts_gain": vars(gain),
        "verdict": str(selection.verdict),
        "reliable": selection.verdict.is_gain,
    }


def draw(name: str, tasks: dict[str, Any]) -> None:
    """The heat map of docs/kinds.md: every layer as a share of the task's best one, which has a dot."""
    shares = {task: 100 * np.array(row["layers"]) / max(row["layers"]) for task, row in tasks.items()}
    best = [(task, int(np.argmax(values))) for task, values in shares.items()]
    drawing = view_scores(scores=shares, chosen=best, measure="% of the task's best layer", rows="tasks", title=name)
    save_figure(drawing, RESULTS.parents[1] / "docs" / f"kinds-{name.replace(', ', '-')}.svg")


if __name__ == "__main__":
    main()
