"""Which rows train, choose and test: SentEval's three protocols, by the splits of a task."""

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
    """One test: the rows that train, the rows that test, and the pairs (train, score) that choose the setting."""

    train: Mask
    test: Mask
    inner: tuple[tuple[Mask, Mask], ...]


@dataclass(frozen=True)
class Plan:
    """The folds of a task.

    `kind` is "kfold", "train-test" or "train-dev-test"; `sizes` the rows of each split; `dev` the rows that say when to
    stop training, where the task has such rows.
    """

    kind: str
    folds: tuple[Fold, ...]
    sizes: dict[str, int]
    dev: Mask | None = None


def kfold_plan(codes: Codes, *, folds: int, inner: int, seed: int) -> Plan:
    """A task without splits: every row tests once, and inner folds of the others choose."""
    made = tuple(
        Fold(train, test, stratified(codes, np.flatnonzero(train), folds=inner, seed=seed))
        for train, test in stratified(codes, np.arange(len(codes)), folds=folds, seed=seed)
    )
    return Plan("kfold", made, {"all": len(codes)})


def split_plan(codes: Codes, splits: Mapping[str, ArrayLike], *, inner: int, seed: int) -> Plan:
    """A task with splits: dev rows choose, or without them inner folds of the training rows."""
    masks = _masks(splits, len(codes))
    train, test, dev = masks["train"], masks["test"], masks.get("dev")
    sizes = {name: int(mask.sum()) for name, mask in masks.items()}
    if dev is None:
        pairs = stratified(codes, np.asarray(splits["train"]), folds=inner, seed=seed)
        return Plan("train-test", (Fold(train, test, pairs),), sizes)
    return Plan("train-dev-test", (Fold(train, test, ((train, dev),)),), sizes, dev)


def stratified(codes: Codes, rows: Codes, *, folds: int, seed: int) -> tuple[tuple[Mask, Mask], ...]:
    """scikit-learn's StratifiedKFold, shuffled by the seed, of some rows, in their order: (train, held out) by fold."""
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
        (_mask(rows[train], len(codes)), _mask(rows[held], len(codes)))
        for train, held in splitter.split(rows, codes[rows])
    )


def _masks(splits: Mapping[str, ArrayLike], n: int) -> dict[str, Mask]:
    if set(splits) not in _SPLITS:
        raise InputError(f"splits has {', '.join(map(str, splits)) or 'nothing'}; expected train, test and maybe dev")
    taken = np.zeros(n, dtype=np.int64)
    masks = {}
    for name in sorted(splits, key=["train", "dev", "test"].index):
        rows = np.asarray(splits[name])
        whole = rows.ndim == 1 and rows.size and rows.dtype.kind in "iu"
        if not whole or rows.min() < 0 or rows.max() >= n:
            raise InputError(f"split {name!r} must be a list of row numbers from 0 to {n - 1}, not {_shown(rows)}")
        np.add.at(taken, rows, 1)
        masks[name] = _mask(rows, n)
    if taken.max() > 1:
        raise InputError(f"row {int(taken.argmax())} is in the splits twice; a row trains, chooses or tests, once")
    return masks


def _shown(rows: NDArray[np.generic]) -> str:
    return f"{rows.dtype} of shape {rows.shape}" if rows.dtype.kind not in "iu" or not rows.size else "others"


def _mask(rows: NDArray[np.int64], n: int) -> Mask:
    mask = np.zeros(n, dtype=bool)
    mask[rows] = True
    return mask
