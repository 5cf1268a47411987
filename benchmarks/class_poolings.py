"""Do token poolings help a linear classifier? The search for classes with the mean alone, and with every pooling.

    python benchmarks/class_poolings.py [MODEL ...] [--tasks trec,mrpc,sst2_sentences] [--rows 3000]

Sets of one or two layers; train rows learn, dev rows choose (parts of train where there are none), test rows report.
At most `--rows` rows of each of them, drawn once, so that it takes minutes on two cores. What was measured is added to
results/class_poolings.json.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerwise import LayerModel
from layerwise.data import TaskRows, find_tasks, load_task
from layerwise.search import Search
from measure import RESULTS, machine, shared_folder, write_result

POOLINGS = ("mean", "cls", "max", "last", "weighted-mean", "mean-but-first")
MODELS = ("default", "wiki-mlm-12x384")


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--tasks", default="trec,mrpc,sst2_sentences")
    parser.add_argument("--rows", type=int, default=3000)
    options = parser.parse_args()
    path = RESULTS / "class_poolings.json"
    found = json.loads(path.read_text(encoding="utf-8"))["models"] if path.is_file() else {}
    for name in options.models:
        folder = shared_folder() / "models" / name
        model = LayerModel.load(str(folder) if folder.is_dir() else name)
        label = "all-MiniLM-L6-v2" if name == "default" else Path(name).name
        for task in options.tasks.split(","):
            found.setdefault(label, {})[task] = {"rows": options.rows} | measure(model, task, options.rows)
            print(label, task, found[label][task], flush=True)
            write_result("class_poolings", {"machine": machine(), "models": found})


def measure(model: LayerModel, task: str, most: int) -> dict[str, Any]:
    """Accuracies x 100 on test rows by the mean alone and by every pooling, with the gain over the last layer."""
    rows = limited(load_task(find_tasks([task])[0]), most)
    measured = {}
    for label, poolings in {"mean": ("mean",), "every pooling": POOLINGS}.items():
        selection = Search(space="up to 2", poolings=poolings).fit(model, rows).selection_
        gain = selection.gain
        measured[label] = {
            "mix": str(selection.chosen.mix),
            "last": 100 * selection.last.test,
            "test": 100 * selection.chosen.test,
            "gain": [100 * value for value in (gain.mean, gain.low, gain.high)],
            "reliable": selection.verdict.is_gain,
            "sets": len(selection.table),
            "seconds": round(sum(selection.seconds.values()), 1),
        }
    return measured


def limited(rows: TaskRows, most: int) -> TaskRows:
    """At most so many rows of each role, drawn once."""
    random = np.random.default_rng(0)
    kept = {role: np.sort(random.permutation(numbers)[:most]) for role, numbers in rows.splits.items()}
    ends = np.cumsum([0, *map(len, kept.values())])
    splits = {role: np.arange(*ends[place : place + 2]) for place, role in enumerate(kept)}
    return replace(rows.pick(np.concatenate(list(kept.values()))), splits=splits)


if __name__ == "__main__":
    main()
