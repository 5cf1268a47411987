"""Scores the vectors of rows by the protocol: graded pairs, and classes by transfer or probing.

Transfer and probing tasks show how well a linear classifier, or a small perceptron, predicts classes from fixed
embeddings. Other kinds are in `layerwise.kinds` and `layerwise.evaluate.retrieval`.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.classify import SentEvalProtocol, evaluate_classes, pair_features
from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.evaluate.kinds import is_random
from layerwise.evaluate.protocol import Protocol
from layerwise.evaluate.sts import score_splits, score_sts
from layerwise.kinds import Outcome, over_seeds
from layerwise.muted import muted
from layerwise.search import TransferProtocol, fixed_accuracies

log = logging.getLogger(__name__)

Scorer = Callable[[TaskRows, Array, Protocol], Outcome]


def score_task(rows: TaskRows, vectors: Array, protocol: Protocol) -> Outcome:
    """Score a task by the vectors of `rows.texts`, (texts, width); of graded pairs every row is scored."""
    return _SCORERS[rows.task.kind](rows, vectors, protocol)


def sides(rows: TaskRows, vectors: Array) -> tuple[Array, Array | None]:
    """The vectors of left and right texts, row by row."""
    left, right = rows.positions()
    return vectors[left], None if right is None else vectors[right]


def _sts(rows: TaskRows, vectors: Array, protocol: Protocol) -> Outcome:
    left, right = sides(rows, vectors)
    assert right is not None  # noqa: S101 - a task of pairs
    gold = np.asarray(rows.labels, dtype=np.float64)
    if protocol.name == "lc":
        return score_splits(left, right, gold, seeds=protocol.seeds)
    return score_sts(left, right, gold, rows.subsets)


def _classes(rows: TaskRows, vectors: Array, protocol: Protocol) -> Outcome:
    left, right = sides(rows, vectors)
    score = split_accuracies if protocol.name == "lc" else score_classes
    return score(rows, left, right, protocol)


_SCORERS: dict[str, Scorer] = {"sts": _sts, "classification": _classes}


def score_classes(rows: TaskRows, left: Array, right: Array | None, protocol: Protocol) -> Outcome:
    """Score classes by SentEval's protocol, once for each seed."""
    features = left if right is None else pair_features(left, right)
    splits = rows.splits if rows.task.splits else None
    classifier = "mlp" if protocol.name == "senteval-mlp" else "logistic"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    answers = _answers(rows)
    _warn_of_unseen_classes(rows)
    outcomes = {}
    for seed in protocol.seeds if is_random(rows.task, protocol) else protocol.seeds[:1]:
        how = SentEvalProtocol(classifier=classifier, seed=seed)
        with muted("layerwise.classify.senteval"):  # it would warn at every seed, without the task
            result = evaluate_classes(features, answers, how, splits, device=device)
        figures = {"accuracy": 100 * result.accuracy} | ({} if result.f1 is None else {"f1": 100 * result.f1})
        outcomes[seed] = Outcome(figures, items=result.correct.astype(np.float64), details={"chosen": result.chosen})
    return over_seeds(outcomes)


def split_accuracies(rows: TaskRows, left: Array, right: Array | None, protocol: Protocol) -> Outcome:
    """Score a fixed mix by BERT-LC's protocol: all rows, 10 times 85 % train and 15 % test."""
    accuracies = []
    for seed in protocol.seeds:
        pairs = None if right is None else right[:, None]
        how = TransferProtocol(seed=seed)
        shares = fixed_accuracies(left[:, None], np.asarray(rows.labels), (0,), pair_views=pairs, protocol=how)
        accuracies += [100 * share for share in shares]
    sd = float(np.std(accuracies, ddof=1))
    return Outcome({"accuracy": float(np.mean(accuracies))}, items=np.empty(0), sd={"accuracy": sd})


def _answers(rows: TaskRows) -> NDArray[Any]:
    """The class of each row, which sorts as the declared classes do: F1 is of the second of two."""
    if rows.task.metric == "f1":
        rows.task.check_classes(len({rows.labels[row] for row in rows.splits.get("train", range(len(rows)))}))
    if not rows.task.labels:
        return np.asarray(rows.labels)
    numbers = {name: number for number, name in enumerate(rows.task.labels)}
    return np.array([numbers[name] for name in rows.labels])


def _warn_of_unseen_classes(rows: TaskRows) -> None:
    """Warn, once for a task, of classes that only test rows have: they are never predicted."""
    known = {rows.labels[row] for row in rows.splits.get("train", range(len(rows)))}
    unseen = sum(rows.labels[row] not in known for row in rows.splits["test"])
    if unseen:
        message = "%s: %d tested rows are of classes that no training row has; they count as errors"
        log.warning(message, rows.task.name, unseen)
