"""The protocol of transfer tasks: how rows are split and what the report of the splits contains."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.search.select import Gain, summarise

Layers = tuple[int, ...]
Rows = NDArray[np.intp]
_RESAMPLES = 2000


@dataclass(frozen=True)
class TransferProtocol:
    """The options of splits and regressions; the defaults are the paper's for base models.

    Args:
        outer: The number of random splits into test rows and the rest.
        test: The share of the test rows, rounded up as in scikit-learn.
        inner: The number of random splits of the rest, which choose the layers.
        dev: The share of the rest that scores a set of layers, rounded up.
        C: scikit-learn's C of the regressions.
        tolerance: SAGA's tolerance.
        epochs: SAGA's maximum number of epochs.
        largest: The maximum number of layers in a set (the paper: 4, and 3 for large models).
        seed: The seed of the splits and of SAGA.
    """

    outer: int = 10
    test: float = 0.15
    inner: int = 10
    dev: float = 0.18
    C: float = 10.0
    tolerance: float = 0.01
    epochs: int = 200
    largest: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        checks: dict[str, Callable[[float], bool]] = {
            "1 or more": lambda value: value >= 1,
            "a share of the rows, between 0 and 1": lambda value: 0 < value < 1,
            "above 0": lambda value: 0 < value < math.inf,
            "0 or more": lambda value: value >= 0,
        }
        names = (("outer", "inner", "epochs", "largest"), ("test", "dev"), ("C", "tolerance"), ("seed",))
        for (condition, is_valid), group in zip(checks.items(), names, strict=True):
            for name in group:
                if not is_valid(getattr(self, name)):
                    raise InputError(f"{name} is {getattr(self, name)}; it must be {condition}")


@dataclass(frozen=True)
class OuterSplit:
    """Test rows, the rest, and the inner splits of the rest into training rows and dev rows."""

    test: Rows
    rest: Rows
    inner: tuple[tuple[Rows, Rows], ...]


def draw_splits(rows: int, protocol: TransferProtocol, *, size: float = 1.0) -> list[OuterSplit]:
    """The outer splits, each with its seed; `size` is the share of the rest that is used."""
    splits = []
    for number in range(protocol.outer):
        random = np.random.default_rng([protocol.seed, number])
        rest, test = _hold_out(random.permutation(rows), protocol.test)
        rest = rest[: round(size * len(rest))]
        splits.append(OuterSplit(test, rest, inner_splits(rest, protocol, random)))
    return splits


def inner_splits(rest: Rows, protocol: TransferProtocol, random: np.random.Generator) -> tuple[tuple[Rows, Rows], ...]:
    """Random splits of the rest into training rows and dev rows."""
    inner = tuple(_hold_out(random.permutation(rest), protocol.dev) for _ in range(protocol.inner))
    if len(inner[0][0]) < 2:
        raise InputError(
            f"too few rows: a split leaves {len(rest)} of them to train and to choose by, of which "
            f"{len(inner[0][0])} train; 2 or more must"
        )
    return inner


def _hold_out(rows: Rows, held_out: float) -> tuple[Rows, Rows]:
    size = len(rows) - math.ceil(held_out * len(rows))
    return rows[:size], rows[size:]


@dataclass(frozen=True)
class TransferSplit:
    """The choice of one outer split with its accuracies: mean of the inner splits (`dev`), and on the test rows.

    `pooling` is the layers' token pooling, if poolings were searched.
    """

    layers: Layers
    dev: float
    test: float
    last_dev: float
    last_test: float
    pooling: str | None = None


@dataclass(frozen=True)
class TransferReport:
    """Accuracies of the chosen layers and of the last layer on unseen rows.

    `mean` and `sd` (over the splits) are of the chosen layers, `last_mean` and `last_sd` of the last layer, `gain` and
    `gain_sd` of their difference; `interval` is the gain with its interval by a bootstrap over the test rows;
    `error_reduction` is the gain relative to the last layer's error, as in the paper; `times_chosen` maps a layer to
    the number of splits that chose it; `rows` is the number of training rows of each reported regression.
    """

    mean: float
    sd: float
    last_mean: float
    last_sd: float
    gain: float
    gain_sd: float
    interval: Gain
    error_reduction: float
    times_chosen: dict[int, int]
    rows: int
    splits: tuple[TransferSplit, ...]
    protocol: TransferProtocol

    @classmethod
    def of(cls, splits: Sequence[TransferSplit], interval: Gain, rows: int, protocol: TransferProtocol) -> Self:
        """Summarise splits."""
        test = np.array([[split.test, split.last_test, split.test - split.last_test] for split in splits])
        mean, last, gain = (float(value) for value in test.mean(0))
        sd, last_sd, gain_sd = (float(value) for value in (test.std(0, ddof=1) if len(splits) > 1 else np.zeros(3)))
        chosen = Counter(layer for split in splits for layer in split.layers)
        reduction = gain / (1 - last) if last < 1 else 0.0
        figures = (mean, sd, last, last_sd, gain, gain_sd, interval, reduction)
        return cls(*figures, dict(sorted(chosen.items())), rows, tuple(splits), protocol)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def bootstrap_accuracies(
    rows: int, splits: Sequence[tuple[Rows, NDArray[np.bool_], NDArray[np.bool_]]], *, seed: int = 0
) -> Gain:
    """The mean gain in accuracy over the splits, by a paired bootstrap over the rows.

    Args:
        rows: The total number of rows, which are resampled; every split counts its test rows among them.
        splits: The test rows of each split, and masks of those that the chosen layers and the last layer classify
            correctly.
        seed: The seed of the resamples.
    """
    random = np.random.default_rng(seed)
    tested = np.unique(np.concatenate([test for test, _, _ in splits]))
    gains, counts = np.zeros((len(splits), len(tested))), np.zeros((len(splits), len(tested)))
    for number, (test, chosen, last) in enumerate(splits):
        places = np.searchsorted(tested, test)
        gains[number, places] = chosen.astype(np.float64) - last
        counts[number, places] = 1
    redrawn = []
    for _ in range(_RESAMPLES):
        weights = np.bincount(random.integers(rows, size=rows), minlength=rows)[tested]
        with np.errstate(invalid="ignore"):
            redrawn.append(float(np.mean((gains @ weights) / (counts @ weights))))
    return summarise(float(np.mean(gains.sum(1) / counts.sum(1))), np.array(redrawn))
