"""Draws the figure of the README, docs/views.svg, from views-*.json: last layer and best views, with what they cost.

    python benchmarks/views_figure.py [--check]    # with --check nothing is written; 1 where the file differs

Cost is tokens times blocks, with the tokens of each prompt and no block above its highest layer; the last layer is 1.
"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from layerwise.encoder import parse_pooling
from layerwise.mixes import parse_mix
from layerwise.plots import LIGHT, save_figure
from layerwise.plots.style import FONT, SMALL, TEXT, Drawing, finish, new_panel
from layerwise.search import Prices
from measure import RESULTS

FIGURE = Path(__file__).parents[1] / "docs" / "views.svg"
MODELS = {
    "views-dev-SmolLM2-135M-Instruct": "a small language model",
    "views-dev-wiki-mlm-12x384": "a masked language model",
    "views-all-MiniLM-L6-v2": "a sentence encoder",
}


def measured(file: str) -> dict[str, Any]:
    """Average of the seven sets of the last layer and of the views that STS-B dev chose, and the cost of these."""
    result = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
    last, best = (result["dev"][name] for name in ("last layer", "as they are"))
    (mix,) = {cell["mix"] for cell in best.values()}
    (depth,) = parse_mix(next(iter(last.values()))["mix"]).layers
    scores = [100 * mean(cell["test"] for cell in cells.values()) for cells in (last, best)]
    tokens = {parse_pooling(f"mean in {name}" if name else "mean").prompt: of for name, of in result["tokens"].items()}
    return {"model": result["model"], "scores": scores, "work": Prices(depth, tokens).of_mix(parse_mix(mix)).work}


def draw() -> Drawing:
    """Two bars for each model below its name; narrow, so that a phone can show it."""
    rows = {kind: measured(file) for file, kind in MODELS.items()}
    drawing, panel = new_panel(LIGHT, size=(4.8, 3.3), x="average of seven STS sets, Spearman × 100", grid="x")
    for row, (name, place, colour) in enumerate(
        (("last layer", -0.1, LIGHT.muted), ("best views", 0.2, LIGHT.colour(0)))
    ):
        values = [facts["scores"][row] for facts in rows.values()]
        panel.barh([line + place for line in range(len(rows))], values, height=0.27, color=colour, label=name)
        for line, (value, facts) in enumerate(zip(values, rows.values(), strict=True)):
            cost = f"{value:.1f}" + (f", cost {facts['work']:.1f}×" if row else "")
            _say(panel, value + 0.8, line + place, cost, SMALL)
    for line, (kind, facts) in enumerate(rows.items()):
        _say(panel, 0.5, line - 0.4, f"{facts['model']}, {kind}", TEXT)
    panel.set_yticks([])
    panel.set_ylim(len(rows) - 0.6, -0.6)
    panel.set_xlim(0, 100)
    panel.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, prop={"family": FONT, "size": TEXT},
        labelcolor=LIGHT.ink, borderaxespad=0.2,
    )  # fmt: skip
    told = "; ".join(f"{r['model']}: {r['scores'][0]:.1f} to {r['scores'][1]:.1f}" for r in rows.values())
    return finish(drawing, f"Last layer and best views without training: {told}")


def _say(panel: Any, x: float, y: float, words: str, size: float) -> None:
    panel.text(x, y, words, va="center", color=LIGHT.ink, fontsize=size, family=FONT)


def main() -> None:
    """Write the figure, or compare it with the file."""
    if "--check" not in sys.argv[1:]:
        save_figure(draw(), FIGURE)
        return
    with tempfile.TemporaryDirectory() as folder:
        new = save_figure(draw(), Path(folder) / FIGURE.name).read_bytes()
    if not FIGURE.is_file() or new != FIGURE.read_bytes():
        sys.exit(f"{FIGURE.name} differs from benchmarks/results; run python benchmarks/views_figure.py")


if __name__ == "__main__":
    main()
