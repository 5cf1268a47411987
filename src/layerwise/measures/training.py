"""Training curves: losses, dev scores and measures by step, from metrics.jsonl (SSCL, figure 6)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise import plots
from layerwise.errors import InputError
from layerwise.measures.measure import Figure, Measure, MeasureValue, Row, Values
from layerwise.measures.names import short_names

METRICS = "metrics.jsonl"
_IGNORED = ("epoch",)
_DRAWN = {
    "spearman": "dev score",
    "eval_overall": "overall dev score",
    "loss": "loss",
}  # endings, the first that is logged


@dataclass(frozen=True, eq=False)
class Series:
    """One logged number by step: (points,) each; for joined seeds the values are (seeds, points)."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Over the seeds: (points,)"""
        mean: NDArray[np.float64] = np.atleast_2d(self.values).mean(axis=0)
        return mean


@dataclass(frozen=True, eq=False)
class TrainingCurve(MeasureValue):
    """What a training logged, by name: "loss", "loss_<term>", "eval_spearman", "eval_uniformity", …"""

    series: Mapping[str, Series]

    def rows(self) -> list[Row]:
        """Return a row per step with all values logged at it; the mean if seeds are joined."""
        table: dict[int, Row] = {}
        for name, series in self.series.items():
            for step, value in zip(series.steps.tolist(), series.mean.tolist(), strict=True):
                table.setdefault(step, {"step": step} | dict.fromkeys(self.series))[name] = value
        return [table[step] for step in sorted(table)]

    def logged(self, ending: str) -> Series | None:
        """The first series whose name has this ending."""
        return next((series for name, series in self.series.items() if name.endswith(ending)), None)


def training_curve(folder: str | Path) -> TrainingCurve:
    """Read the curve of one training from the metrics.jsonl in its folder (or the file itself)."""
    path = Path(folder).expanduser()
    file = path / METRICS if path.is_dir() else path
    if not file.is_file():
        run = path.parent if path.name == METRICS else path
        raise InputError(f"{run}: no {METRICS} there; give the folder of one training, such as that of its seed")
    points: dict[str, dict[int, float]] = {}
    for number, line in enumerate(_lines(file), start=1):
        facts = _facts(file, number, line)
        step = facts.pop("step")
        for name, value in facts.items():
            points.setdefault(name, {})[step] = value  # the last value of a step, where it was logged twice
    if not points:
        raise InputError(f"{file}: holds no figures; the training has logged nothing yet")
    return TrainingCurve({name: _series(values) for name, values in points.items()})


def training_curves(folders: Sequence[str | Path]) -> dict[str, TrainingCurve]:
    """The curves of several trainings by short names; the folder of several seeds gives the curve of each."""
    runs: dict[Path, Path] = {}  # metrics file -> folder of the run
    for folder in (Path(folder).expanduser() for folder in folders):
        for file in sorted(folder.glob(f"seed-*/{METRICS}")) or [folder / METRICS if folder.is_dir() else folder]:
            runs[file.absolute()] = _run(file)
    curves = [training_curve(file) for file in runs]
    unique = list(dict.fromkeys(runs.values()))
    short = dict(zip(unique, short_names([str(run) for run in unique]), strict=True))
    names = [short[run] if run == file.parent else f"{short[run]}/{file.parent.name}" for file, run in runs.items()]
    return dict(zip(names, curves, strict=True))


def join_seeds(curves: Mapping[str, TrainingCurve]) -> dict[str, TrainingCurve]:
    """Join the seeds of each run to one curve, over the steps that all of them have logged."""
    runs: dict[str, list[TrainingCurve]] = {}
    for name, curve in curves.items():
        run, _, seed = name.rpartition("/")
        runs.setdefault(run if seed.startswith("seed-") else name, []).append(curve)
    return {run: _joined(seeds) if len(seeds) > 1 else seeds[0] for run, seeds in runs.items()}


def _joined(seeds: Sequence[TrainingCurve]) -> TrainingCurve:
    joined = {}
    for name in seeds[0].series:
        by_seed = [seed.series[name] for seed in seeds if name in seed.series]
        steps = set.intersection(*(set(series.steps.tolist()) for series in by_seed))
        if len(by_seed) == len(seeds) and steps:
            values = [series.values[np.isin(series.steps, list(steps))] for series in by_seed]
            joined[name] = Series(np.array(sorted(steps), dtype=np.int64), np.stack(values))
    return TrainingCurve(joined)


def _run(file: Path) -> Path:
    """Return the run folder of a metrics file: its parent, or for a seed its grandparent."""
    folder = file.absolute().parent
    return folder.parent if folder.name.startswith("seed-") else folder


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text; give a {METRICS} of `layerwise train`") from error


def _facts(file: Path, number: int, line: str) -> dict[str, Any]:
    """The step and the numbers of a line; null is NaN."""
    try:
        facts = json.loads(line)
    except ValueError as error:
        raise InputError(f"{file}:{number}: not JSON; where a killed run left half a line, delete it") from error
    if not isinstance(facts, dict) or type(facts.get("step")) is not int:
        raise InputError(f"{file}:{number}: has no step; each line is an object with a whole number as its step")
    facts = {name: value for name, value in facts.items() if name not in _IGNORED}
    for name, value in facts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{file}:{number}: {name} is {value!r}, not a number")
    return {name: math.nan if value is None else value for name, value in facts.items()}


def _series(values: Mapping[int, float]) -> Series:
    steps = sorted(values)
    return Series(np.array(steps, dtype=np.int64), np.array([values[step] for step in steps], dtype=np.float64))


def _plot(values: Values[TrainingCurve], theme: "plots.Theme") -> "plots.Drawing":
    """Draw the dev score by step of each training, seeds as a band; the loss if no dev score was logged."""
    curves = join_seeds(values)
    for ending, label in _DRAWN.items():
        logged = {run: series for run, curve in curves.items() if (series := curve.logged(ending)) is not None}
        if logged:
            return plots.convergence(
                steps={run: series.steps for run, series in logged.items()},
                scores={run: series.values for run, series in logged.items()},
                measure=label,
                theme=theme,
            )
    raise InputError("the trainings have logged neither a dev score nor a loss")


MEASURE = Measure(
    "training",
    "A training by step",
    "As logged.",
    training_curves,
    of="trainings",
    default=True,
    figures=(
        Figure(
            _plot,
            title="Convergence",
            reading="Where a curve is flat, training longer would not have helped.",
            section="training",
        ),
    ),
)
