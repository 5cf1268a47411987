"""Draws the figures of gains of docs/kinds.md from kinds.json: what other layers than the last are worth on each task.

python benchmarks/kinds_figure.py [--check]    # with --check nothing is written; 1 where a file differs
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from kinds_tables import KINDS, by_kind
from layerwise.plots import LIGHT, save_figure
from layerwise.plots.style import FONT, TEXT, Drawing, finish, new_panel
from measure import RESULTS

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = {
    "kinds-sts-set.svg": ("sts_gain", "The set that STS-B chose"),
    "kinds-own-set.svg": ("own_gain", "The set that the task itself chose"),
}


def draw(gain: str, what: str) -> Drawing:
    """For each task the gain over the last layer with its 95 % interval, a colour for each model."""
    models: dict[str, Any] = json.loads((RESULTS / "kinds.json").read_text(encoding="utf-8"))["models"]
    tasks = next(iter(models.values()))["tasks"]
    names = list(by_kind(tasks))
    drawing, panel = new_panel(LIGHT, size=(6.4, 6.8), x="gain over the last layer, points", grid="x")
    for number, (model, facts) in enumerate(models.items()):
        found = [facts["tasks"][name][gain] for name in names]
        means = [100 * one["mean"] for one in found]
        below = [100 * max(0.0, one["mean"] - one["low"]) for one in found]
        above = [100 * max(0.0, one["high"] - one["mean"]) for one in found]
        places = [line + 0.15 * (number - (len(models) - 1) / 2) for line in range(len(names))]
        style = {"fmt": "o", "markersize": 3.5, "linewidth": 1.2, "color": LIGHT.colour(number), "label": model}
        panel.errorbar(means, places, xerr=[below, above], **style)
    panel.axvline(0, color=LIGHT.muted, linewidth=1)
    panel.set_yticks(range(len(names)), [f"{name}\n{KINDS[tasks[name]['suite']]}" for name in names])
    panel.tick_params(axis="y", labelsize=TEXT - 1)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(-0.45, 1), ncols=2, prop={"family": FONT, "size": TEXT},
        labelcolor=LIGHT.ink, borderaxespad=0.2,
    )  # fmt: skip
    return finish(drawing, f"{what}: gain over the last layer on {len(names)} tasks by {len(models)} models")


def main() -> None:
    """Write the figures, or compare them with the files."""
    for name, (gain, what) in FIGURES.items():
        if "--check" not in sys.argv[1:]:
            save_figure(draw(gain, what), DOCS / name)
            continue
        with tempfile.TemporaryDirectory() as folder:
            new = save_figure(draw(gain, what), Path(folder) / name).read_bytes()
        if not (DOCS / name).is_file() or new != (DOCS / name).read_bytes():
            sys.exit(f"{name} differs from benchmarks/results; run python benchmarks/kinds_figure.py")


if __name__ == "__main__":
    main()
