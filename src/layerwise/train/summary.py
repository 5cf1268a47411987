"""Means and standard deviations over the seeds of a training."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

Result = Mapping[str, Any]


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Of each figure that every seed has: its mean, and its sd (n - 1) from two seeds on.

    >>> seeds = [{"seed": 0, "dev": {"best": 70.0}}, {"seed": 1, "dev": {"best": 72.0}}]
    >>> summary(seeds)["dev"]
    {'mean': 71.0, 'sd': 1.4142135623730951}
    """
    dev = [(result.get("dev") or {}).get("best") for result in results]
    return {
        "seeds": [result["seed"] for result in results],
        "dev": spread(dev),
        "scores": spreads([result.get("scores") or {} for result in results]),
        "averages": spreads([result.get("averages") or {} for result in results]),
        "seconds": spread([result.get("seconds") for result in results]),
    }


def shown(figure: Mapping[str, float | None] | None, digits: int = 2) -> str:
    """Such as "71.00 ± 1.41"."""
    if not figure or figure["mean"] is None:
        return "-"
    sd = figure["sd"]
    return f"{figure['mean']:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")


def spreads(each: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """`spread` of each figure by its name."""
    return {name: spread([figures.get(name) for figures in each]) for name in (each[0] if each else {})}


def spread(figures: Sequence[float | None]) -> dict[str, float | None] | None:
    """None where a seed has no such figure: the mean of the others would be of something else."""
    known = [figure for figure in figures if figure is not None]
    if not known or len(known) < len(figures):
        return None
    return {"mean": mean(known), "sd": stdev(known) if len(known) > 1 else None}
