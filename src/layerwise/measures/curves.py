"""How trainings went: losses, dev scores and measures by step, from their metrics.jsonl (SSCL, figure 6)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.measures.measure import Measured, Row
from layerwise.measures.names import told_apart

METRICS = "metrics.jsonl"
_NO_FIGURES = ("epoch",)


@dataclass(frozen=True, eq=False)
class Series:
    """One figure as it was logged: (points,) each; of joined seeds the values are (seeds, points)."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Over the seeds: (points,)"""
        found: NDArray[np.float64] = np.atleast_2d(self.values).mean(axis=0)
        return found


@dataclass(frozen=True, eq=False)
class TrainingCurve(Measured):
    """A training's figures by name: "loss", "loss_<term>", "eval_spearman", "eval_uniformity", … as logged."""

    name: str
    series: Mapping[str, Series]

    def rows(self) -> list[Row]:
        """A row for each step, with every figure that was logged at it; its mean where seeds are joined."""
        table: dict[int, Row] = {}
        for name, series in self.series.items():
            for step, value in zip(series.steps.tolist(), series.mean.tolist(), strict=True):
                table.setdefault(step, {"step": step} | dict.fromkeys(self.series))[name] = value
        return [table[step] for step in sorted(table)]


def training_curve(folder: str | Path) -> TrainingCurve:
    """The figures of one training, from the metrics.jsonl in its folder (or that file itself)."""
    path = Path(folder).expanduser()
    file = path / METRICS if path.is_dir() else path
    if not file.is_file():
        where = path.parent if path.name == METRICS else path
        raise InputError(f"{where}: no {METRICS} there; give the folder of one training, such as that of its seed")
    points: dict[str, dict[int, float]] = {}
    for number, line in enumerate(_lines(file), start=1):
        facts = _facts(file, number, line)
        step = facts.pop("step")
        for name, value in facts.items():
            points.setdefault(name, {})[step] = value  # the last word on a step, where it was logged twice
    if not points:
        raise InputError(f"{file}: holds no figures; the training has logged nothing yet")
    return TrainingCurve(_name(file), {name: _series(values) for name, values in points.items()})


def training_curves(folders: Sequence[str | Path]) -> list[TrainingCurve]:
    """Several trainings by names that differ; a folder of several seeds stands for all of them."""
    files: dict[Path, Path] = {}  # metrics, and the folder of the run
    for folder in (Path(folder).expanduser() for folder in folders):
        for file in sorted(folder.glob(f"seed-*/{METRICS}")) or [folder / METRICS if folder.is_dir() else folder]:
            files[file.absolute()] = _run(file)
    curves = [training_curve(file) for file in files]
    runs = list(dict.fromkeys(files.values()))
    names = dict(zip(runs, told_apart([str(run) for run in runs]), strict=True))
    return [
        replace(curve, name=names[run] if run == file.parent else f"{names[run]}/{file.parent.name}")
        for curve, (file, run) in zip(curves, files.items(), strict=True)
    ]


def joined_seeds(curves: Sequence[TrainingCurve]) -> list[TrainingCurve]:
    """The seeds of each run as one curve, of the steps that all of them have logged."""
    runs: dict[str, list[TrainingCurve]] = {}
    for curve in curves:
        run, _, seed = curve.name.rpartition("/")
        runs.setdefault(run if seed.startswith("seed-") else curve.name, []).append(curve)
    return [seeds[0] if len(seeds) == 1 else _joined(run, seeds) for run, seeds in runs.items()]


def _joined(run: str, seeds: Sequence[TrainingCurve]) -> TrainingCurve:
    found = {}
    for name in seeds[0].series:
        own = [seed.series[name] for seed in seeds if name in seed.series]
        steps = set.intersection(*(set(series.steps.tolist()) for series in own))
        if len(own) == len(seeds) and steps:
            kept = [series.values[np.isin(series.steps, list(steps))] for series in own]
            found[name] = Series(np.array(sorted(steps), dtype=np.int64), np.stack(kept))
    return TrainingCurve(run, found)


def _name(file: Path) -> str:
    """The training's folder, with the one above for a seed."""
    folder, run = file.absolute().parent, _run(file)
    return run.name if run == folder else f"{run.name}/{folder.name}"


def _run(file: Path) -> Path:
    """The folder of the run that a file of metrics is of: that of its seed, or the one above."""
    folder = file.absolute().parent
    return folder.parent if folder.name.startswith("seed-") else folder


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text; give a {METRICS} of `layerwise train`") from error


def _facts(file: Path, number: int, line: str) -> dict[str, Any]:
    """A line's step and its numbers; null is a figure that was not one."""
    try:
        facts = json.loads(line)
    except ValueError as error:
        raise InputError(f"{file}:{number}: not JSON; where a killed run left half a line, delete it") from error
    if not isinstance(facts, dict) or type(facts.get("step")) is not int:
        raise InputError(f"{file}:{number}: has no step; each line is an object with a whole number as its step")
    kept = {name: value for name, value in facts.items() if name not in _NO_FIGURES}
    for name, value in kept.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{file}:{number}: {name} is {value!r}, not a number")
    return {name: math.nan if value is None else value for name, value in kept.items()}


def _series(values: Mapping[int, float]) -> Series:
    steps = sorted(values)
    return Series(np.array(steps, dtype=np.int64), np.array([values[step] for step in steps], dtype=np.float64))
