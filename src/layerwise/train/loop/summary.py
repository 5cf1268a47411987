"""Means and standard deviations over the seeds of a training."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

Result = Mapping[str, Any]
Spread = dict[str, float | None]


def summarise(results: Sequence[Result]) -> dict[str, Any]:
    """Compute each score's mean over the seeds, and its sd (n - 1) for two or more.

    >>> seeds = [{"seed": 0, "dev": {"best": 70.0}}, {"seed": 1, "dev": {"best": 72.0}}]
    >>> summarise(seeds)["dev"]
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


def format_spread(value: Mapping[str, float | None] | None, digits: int = 2) -> str:
    """Format a spread, such as "71.00 ± 1.41"."""
    if not value or value["mean"] is None:
        return "-"
    sd = value["sd"]
    return f"{value['mean']:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")


def spreads(scores: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """Compute the `spread` of each score by name."""
    return {name: spread([seed.get(name) for seed in scores]) for name in (scores[0] if scores else {})}


def spread(values: Sequence[float | None]) -> Spread | None:
    """Compute mean and sd; None if any seed lacks the value, as a mean of the others is not comparable."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return {"mean": mean(known), "sd": stdev(known) if len(known) > 1 else None}
