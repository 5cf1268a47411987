"""The figures of docs/background, from raw results; `tables.py` writes them."""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from evaluation_tables import read
from layerwise.plots import LIGHT, Drawing, convergence, score_by_size, score_without_layer
from layerwise.plots.labels import legend
from layerwise.plots.style import LINE, MARKERS, finish, new_drawing, new_panels, style_axes
from paper_tables import ABLATED, WIKI
from training_views_rows import TEMPERATURES, WIDTHS

MEASURE = "Spearman × 100"
SWEPT = {"simcse": "SimCSE", "sscl-simcse": "SSCL-SimCSE"}


def lc_sizes() -> Drawing:
    """BERT-LC, figures 2 and 3: the best set of N layers."""
    sizes, gains = _gains("sizes", "last")
    title = f"{WIKI}: the best set of N layers"
    return score_by_size(sizes=sizes, scores=gains, last=0.0, measure="points above the last layer", title=title)


def lc_without() -> Drawing:
    """BERT-LC, figure 4: the best set without a layer."""
    layers, gains = _gains("without", "best")
    title = f"{WIKI}: the best set without a layer"
    return score_without_layer(layers=layers, scores=gains, full=0.0, measure="points to the best set", title=title)


def sscl_sweeps() -> Drawing:
    """SSCL, tables 5 and 6: the score by temperature and by width."""
    drawing = new_drawing(LIGHT, size=(7.6, 3.4))
    panels = new_panels(drawing, 2, share_y=True)
    lines = _sweep(drawing, panels[0], "t", TEMPERATURES, "temperature")
    _sweep(drawing, panels[1], "d", WIDTHS, "width of the embedding")
    panels[0].set_ylabel(f"seven STS sets, {MEASURE}")
    legend(drawing, lines, list(SWEPT.values()))
    return finish(drawing, f"Average of seven STS sets by temperature and by width: {', '.join(SWEPT.values())}")


def sscl_convergence() -> Drawing:
    """SSCL, figure 6: the dev score by training step."""
    curves: dict[str, list[list[list[float]]]] = {}
    for run in read("training")["runs"]:
        if run["row"] in SWEPT:
            curves.setdefault(SWEPT[run["row"]], []).append(run["curve"])
    return convergence(
        steps={name: [step for step, _ in seeds[0]] for name, seeds in curves.items()},
        scores={name: [[100 * score for _, score in seed] for seed in seeds] for name, seeds in curves.items()},
        measure=f"STS-B dev, {MEASURE}",
    )


FIGURES: dict[str, Callable[[], Drawing]] = {
    "docs/bert-lc-sizes.svg": lc_sizes,
    "docs/bert-lc-without.svg": lc_without,
    "docs/sscl-sweeps.svg": sscl_sweeps,
    "docs/sscl-convergence.svg": sscl_convergence,
}


def _gains(ablation: str, reference: str) -> tuple[list[int], dict[str, list[float]]]:
    """What an ablation varies, and by task the points above a reference."""
    tasks = read("ablations")["encoders"][WIKI]
    numbers = [line["number"] for line in tasks["stsb"][ablation]]
    gains = {
        label: [line["mean"] - tasks[task][reference]["mean"] for line in tasks[task][ablation]]
        for task, label in ABLATED.items()
    }
    return numbers, gains


def _sweep(drawing: Drawing, panel: Any, letter: str, values: Sequence[float], name: str) -> list[Any]:
    """A line for each objective over a setting that is varied."""
    scores: dict[str, list[float]] = {}
    for run in read("training-views")["runs"]:
        scores.setdefault(run["row"], []).append(run["test"]["average"])
    style_axes(panel, LIGHT, x=name)
    lines = []
    for order, (row, label) in enumerate(SWEPT.items()):
        heights = [mean(scores[f"{row}-{letter}{value}"]) for value in values]
        (line,) = panel.plot(values, heights, color=LIGHT.colour(order), linewidth=LINE, marker=MARKERS[order])
        points = zip(values, heights, strict=True)
        drawing.label_points(line, [f"{label}, {name} {value:g}: {height:.2f}" for value, height in points])
        lines.append(line)
    panel.set_xscale("log")
    panel.minorticks_off()
    panel.set_xticks(values, [f"{value:g}" for value in values])
    return lines
