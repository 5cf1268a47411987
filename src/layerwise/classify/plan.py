"""The rows that train, choose and test: SentEval's three protocols, by the splits of a task."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layerwise.errors import InputError
from layerwise.extras import require

Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]

_SPLITS = ({"train", "test"}, {"train", "dev", "test"})


@dataclass(frozen=True)
class Fold:
    """The training rows, the test rows, and the pairs (train, score) of rows that choose the setting."""

    train: Mask
    test: Mask
    inner: tuple[tuple[Mask, Mask], ...]


@dataclass(frozen=True)
class Plan:
    """The folds of a task.

    `kind` is "kfold", "train-test" or "train-dev-test"; `sizes` are the numbers of rows of each split; `dev` are the
    rows for early stopping, if the task has them.
    """

    kind: str
    folds: tuple[Fold, ...]
    sizes: dict[str, int]
    dev: Mask | None = None


def kfold_plan(codes: Codes, *, folds: int, inner: int, seed: int) -> Plan:
    """A task without splits: every row is tested once, and inner folds of the others choose."""
    outer_folds = tuple(
        Fold(train, test, stratified(codes, np.flatnonzero(train), folds=inner, seed=seed))
        for train, test in stratified(codes, np.arange(len(codes)), folds=folds, seed=seed)
    )
    return Plan("kfold", outer_folds, {"all": len(codes)})


def split_plan(codes: Codes, splits: Mapping[str, ArrayLike], *, inner: int, seed: int) -> Plan:
    """A task with splits: dev rows choose, else inner folds of the training rows."""
    masks = _masks(splits, len(codes))
    train, test, dev = masks["train"], masks["test"], masks.get("dev")
    sizes = {name: int(mask.sum()) for name, mask in masks.items()}
    if dev is None:
        pairs = stratified(codes, np.asarray(splits["train"]), folds=inner, seed=seed)
        return Plan("train-test", (Fold(train, test, pairs),), sizes)
    return Plan("train-dev-test", (Fold(train, test, ((train, dev),)),), sizes, dev)


def stratified(codes: Codes, rows: Codes, *, folds: int, seed: int) -> tuple[tuple[Mask, Mask], ...]:
    """scikit-learn's StratifiedKFold of rows, shuffled by the seed: masks (train, held out) of each fold."""
    require("evaluate", "a classification by folds", "sklearn")
    from sklearn.model_selection import StratifiedKFold

    largest = np.unique(codes[rows], return_counts=True)[1].max()
    if largest < folds:
        raise InputError(
            f"{len(rows)} rows of which no class has more than {largest} cannot be split into {folds} folds: "
            f"give more rows, or ask for fewer folds"
        )
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    return tuple(
        (_mask(rows[train], len(codes)), _mask(rows[held_out], len(codes)))
        for train, held_out in splitter.split(rows, codes[rows])
    )


def _masks(splits: Mapping[str, ArrayLike], n: int) -> dict[str, Mask]:
    if set(splits) not in _SPLITS:
        raise InputError(f"splits has {', '.join(map(str, splits)) or 'nothing'}; expected train, test and maybe dev")
    counts = np.zeros(n, dtype=np.int64)
    masks = {}
    for name in sorted(splits, key=["train", "dev", "test"].index):
        rows = np.asarray(splits[name])
        is_valid = rows.ndim == 1 and rows.size and rows.dtype.kind in "iu"
        if not is_valid or rows.min() < 0 or rows.max() >= n:
            raise InputError(f"split {name!r} must be a list of row numbers from 0 to {n - 1}, not {_describe(rows)}")
        np.add.at(counts, rows, 1)
        masks[name] = _mask(rows, n)
    if counts.max() > 1:
        raise InputError(f"row {int(counts.argmax())} is in the splits twice; a row trains, chooses or tests, once")
    return masks


def _describe(rows: NDArray[np.generic]) -> str:
    return f"{rows.dtype} of shape {rows.shape}" if rows.dtype.kind not in "iu" or not rows.size else "others"


def _mask(rows: NDArray[np.int64], n: int) -> Mask:
    mask = np.zeros(n, dtype=bool)
    mask[rows] = True
    return mask
