"""BERT-LC's ablations on STS: random layers (table 3), the best set of N layers (figures 2 and 3), without a layer (4).

    python benchmarks/ablations.py

The sets of those figures, by the protocol of lc.py: each set's test split, Spearman x 100 over all its pairs ("all"),
mean of tokens; 350 random pairs choose among every set of layers, the others report; 5 random splits. Random layers are
100 sets drawn from all of them, so the standard deviation is over the draws; elsewhere it is over the splits. Views are
cached: a second run only searches. Results go to benchmarks/results/ablations.json.
"""

from statistics import mean, stdev
from typing import Any

import numpy as np

from layers import encoders
from layerwise import LayerEncoder
from layerwise.search import Ablation, Search, by_size_and_without, random_sets
from lc import DEV, SETS, SPLITS, read_set
from measure import write_result

ENCODERS = ("wiki-mlm-12x384", "all-MiniLM-L6-v2")
TASKS = ("stsb", "sts16", "sick")
DRAWS = 100


def measure_set(encoder: LayerEncoder, pairs: dict[str, list]) -> dict[str, Any]:
    """The ablations of one encoder on one set."""
    gold = np.array(pairs["score"])
    views = encoder.encode_layers(pairs["sentence1"] + pairs["sentence2"], cache=True)
    search = Search(dev=DEV, splits=SPLITS).fit_views(views[: len(gold)], views[len(gold) :], gold)
    selection = search.selection_
    sizes, without = by_size_and_without(selection.scorer)
    return {
        "pairs": len(gold),
        "sets": len(selection.table),
        "last": spread([100 * choice.last.test for choice in selection.choices]),
        "best": spread([100 * choice.best.test for choice in selection.choices]),
        "random": as_dict(random_sets(selection.scorer, count=DRAWS)),
        "sizes": [as_dict(line) for line in sizes],
        "without": [as_dict(line) for line in without],
    }


def spread(scores: list[float]) -> dict[str, float]:
    """Mean and standard deviation over the splits."""
    return {"mean": mean(scores), "sd": stdev(scores)}


def as_dict(line: Ablation) -> dict[str, Any]:
    """A line of an ablation, Spearman x 100."""
    return {"number": line.number, "mean": 100 * line.mean, "sd": 100 * line.sd, "mixes": list(line.mixes)}


def main() -> None:
    """Measure every encoder on every set."""
    measured: dict[str, dict[str, Any]] = {}
    for name in ENCODERS:
        encoder = LayerEncoder(encoders()[name])
        measured[name] = {}
        for task in TASKS:
            result = measured[name][task] = measure_set(encoder, read_set(task, SETS[task]))
            scores = ", ".join(f"{kind} {result[kind]['mean']:.2f}" for kind in ("last", "random", "best"))
            print(f"{name} {task}: {scores}", flush=True)
    protocol = {"dev": DEV, "splits": SPLITS, "pooling": "mean", "aggregation": "all", "seed": 0, "draws": DRAWS}
    what = "Spearman x 100 on the test split of STS sets: random layers, the best set of N layers, without a layer"
    write_result("ablations", {"what": what, "protocol": protocol, "encoders": measured})


if __name__ == "__main__":
    main()
