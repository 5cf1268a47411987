"""The score of every layer, by token pooling: the README's figure.

    python benchmarks/layers.py

STS-B test (1,379 pairs, the papers' tokenised lower-cased form), Spearman x 100 of the cosine, nothing chosen or tuned.
"""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from layerwise import LayerEncoder
from layerwise.evaluate.pairs import spearman
from measure import model_folder, shared_folder, write_result

POOLINGS = ("mean", "cls", "max")
FIGURE = Path(__file__).parents[1] / "docs" / "layers.svg"
COLOURS = {"mean": "#1f5fa8", "cls": "#c2571a", "max": "#4b8b3b"}


def encoders() -> dict[str, Path | str]:
    """A masked language model that no sentence objective has touched, and two sentence encoders."""
    return {
        "wiki-mlm-12x384": shared_folder() / "models" / "wiki-mlm-12x384",
        "all-MiniLM-L6-v2": "default",
        "all-mpnet-base-v2": model_folder("all-mpnet-base-v2"),
    }


def scores(encoder: LayerEncoder, pairs: dict[str, list]) -> dict[str, list[float]]:
    """Pooling -> the score of each layer (None where all similarities are equal)."""
    views = encoder.encode_layers(pairs["sentence1"] + pairs["sentence2"], POOLINGS, cache=True, show_progress_bar=True)
    gold = np.array(pairs["score"])
    found: dict[str, list[float]] = {}
    for pooling, array in views.items():
        left, right = array[: len(gold)], array[len(gold) :]
        by_layer = [spearman(left[:, layer], right[:, layer], gold) for layer in range(array.shape[1])]
        found[pooling] = [None if np.isnan(score) else round(100 * score, 2) for score in by_layer]
    return found


def draw(result: dict[str, dict[str, list[float]]]) -> None:
    """One panel for each encoder."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "layerwise"
    figure, panels = plt.subplots(1, len(result), figsize=(11, 3.1), sharey=True)
    for panel, (name, by_pooling) in zip(panels, result.items(), strict=True):
        for pooling, values in by_pooling.items():
            panel.plot(range(len(values)), [np.nan if v is None else v for v in values], marker="o", markersize=3.5,
                       color=COLOURS[pooling], label=pooling)  # fmt: skip
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("layer")
        panel.set_xticks(range(0, len(by_pooling["mean"]), 2))
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", alpha=0.25)
    panels[0].set_ylabel("STS-B test, Spearman × 100")
    panels[0].legend(frameon=False, fontsize=8, title="token pooling", title_fontsize=8)
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    """Score, write, draw."""
    table = pq.read_table(shared_folder() / "data" / "sts" / "stsb.parquet", filters=[("split", "=", "test")])
    pairs = table.to_pydict()
    result = {name: scores(LayerEncoder(source), pairs) for name, source in encoders().items()}
    write_result(
        "layers_stsb",
        {
            "what": "Spearman x 100 by layer and token pooling",
            "protocol": {"task": "STS-B, SentEval form", "split": "test", "pairs": len(table), "chosen": "nothing"},
            "scores": result,
        },
    )
    draw(result)


if __name__ == "__main__":
    main()
