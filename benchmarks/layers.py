"""The score of every layer by token pooling, and of the mix that search chooses: docs/layers.svg.

    python benchmarks/layers.py           # measure, write, draw
    python benchmarks/layers.py --draw    # only draw what was measured

STS-B test (1,379 pairs, the papers' tokenised lower-cased form), Spearman x 100 of the cosine. The best mix is chosen
among every set of layers of every pooling by the 1,500 dev pairs, and scored once on the test pairs.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from layerwise import LayerEncoder
from layerwise.metrics import cosine, spearman
from layerwise.plots import MarkedMix, layer_curves_by_model, save_figure
from layerwise.search import CachedViews, Search
from measure import RESULTS, model_folder, shared_folder, write_result

POOLINGS = ("mean", "cls", "max")
NAME = "layers_stsb"
Sides = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]  # the views of both, by pooling
FIGURE = Path(__file__).parents[1] / "docs" / "layers.svg"


def encoders() -> dict[str, Path | str]:
    """A masked language model that no sentence objective has touched, and two sentence encoders."""
    return {
        "wiki-mlm-12x384": shared_folder() / "models" / "wiki-mlm-12x384",
        "all-MiniLM-L6-v2": "default",
        "all-mpnet-base-v2": model_folder("all-mpnet-base-v2"),
    }


def read(encoder: LayerEncoder, split: str) -> tuple[Sides, np.ndarray]:
    """The views of either side of a split's pairs, and the grades."""
    table = pq.read_table(shared_folder() / "data" / "sts" / "stsb.parquet", filters=[("split", "=", split)])
    pairs = table.to_pydict()
    encode = CachedViews(encoder, show_progress_bar=True)
    sides = encode.sides(pairs["sentence1"], pairs["sentence2"], POOLINGS)
    return sides, np.array(pairs["score"])


def by_layer(sides: Sides, gold: np.ndarray) -> dict[str, list[float | None]]:
    """Pooling -> the score of each layer (None where all similarities are equal)."""
    found: dict[str, list[float | None]] = {}
    for pooling in POOLINGS:
        left, right = (side[pooling] for side in sides)
        scores = [spearman(cosine(left[:, layer], right[:, layer]), gold) for layer in range(left.shape[1])]
        found[pooling] = [None if np.isnan(score) else hundredfold(score) for score in scores]
    return found


def best_mix(dev: Sides, dev_gold: np.ndarray, test: Sides, test_gold: np.ndarray) -> dict[str, Any]:
    """The set that the dev pairs choose, on the test pairs, against the last layer's mean."""
    rows = np.arange(len(dev_gold) + len(test_gold))
    left, right = (
        {pooling: np.concatenate([first[pooling], second[pooling]]) for pooling in POOLINGS}
        for first, second in zip(dev, test, strict=True)
    )
    search = Search(parts=[(rows[: len(dev_gold)], rows[len(dev_gold) :])])
    selection = search.fit_views(left, right, np.concatenate([dev_gold, test_gold])).selection_
    best, last, gain = selection.chosen, selection.last, selection.gain
    return {
        "mix": str(best.mix),
        "layers": list(best.layers),
        "pooling": best.pooling,
        "dev": hundredfold(best.dev),
        "test": hundredfold(best.test),
        "last": {"mix": str(last.mix), "test": hundredfold(last.test)},
        "gain": {"mean": hundredfold(gain.mean), "low": hundredfold(gain.low), "high": hundredfold(gain.high)},
    }


def hundredfold(score: float) -> float:
    """As the papers print it."""
    return round(100 * score, 2)


def measure() -> dict[str, Any]:
    """Every encoder: the scores of its layers, and its best mix."""
    scores, best = {}, {}
    for name, source in encoders().items():
        encoder = LayerEncoder(source)
        dev, test = read(encoder, "dev"), read(encoder, "test")
        scores[name], best[name] = by_layer(*test), best_mix(*dev, *test)
        print(name, best[name], flush=True)
    return {
        "what": "Spearman x 100 by layer and token pooling, and of the best mix",
        "protocol": {
            "task": "STS-B, SentEval form",
            "split": "test",
            "pairs": len(test[1]),
            "chosen": f"best mix: every set of layers of {', '.join(POOLINGS)}, by the {len(dev[1])} dev pairs",
        },
        "scores": scores,
        "best": best,
    }


def draw(result: dict[str, Any]) -> None:
    """One panel for each encoder."""
    scores = {
        name: {pooling: [np.nan if score is None else score for score in values] for pooling, values in curves.items()}
        for name, curves in result["scores"].items()
    }
    best = {
        name: MarkedMix(found["test"], tuple(found["layers"]), "best mix by dev pairs")
        for name, found in result["best"].items()
    }
    save_figure(layer_curves_by_model(scores=scores, last="mean", best=best, measure="STS-B, Spearman × 100"), FIGURE)


def main() -> None:
    """Score, write, draw."""
    if "--draw" not in sys.argv[1:]:
        write_result(NAME, measure())
    draw(json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
