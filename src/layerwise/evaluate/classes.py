"""Transfer and probing: how well a linear classifier, or a small perceptron, reads classes from fixed embeddings."""

import logging

import numpy as np
import torch

from layerwise.classify import SentEvalProtocol, evaluate_classes, pair_features
from layerwise.data import Task, TaskRows
from layerwise.encoder import Array
from layerwise.evaluate.outcomes import Outcome, over_seeds
from layerwise.evaluate.protocols import Protocol
from layerwise.muted import muted
from layerwise.search import TransferProtocol, fixed_accuracies

log = logging.getLogger(__name__)


def is_random(task: Task, protocol: Protocol) -> bool:
    """Whether seeds decide what is learned: a regression whose setting dev rows choose leaves nothing to chance."""
    return protocol.name != "senteval" or "dev" not in task.splits


def score_classes(rows: TaskRows, left: Array, right: Array | None, protocol: Protocol) -> Outcome:
    """SentEval's protocol, by each seed."""
    features = left if right is None else pair_features(left, right)
    splits = rows.splits if rows.task.splits else None
    classifier = "mlp" if protocol.name == "senteval-mlp" else "logistic"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    _warn_of_strange_classes(rows)
    found = {}
    for seed in protocol.seeds if is_random(rows.task, protocol) else protocol.seeds[:1]:
        how = SentEvalProtocol(classifier=classifier, seed=seed)
        with muted("layerwise.classify.senteval"):  # warns of the same at every seed, and knows no task
            result = evaluate_classes(features, np.asarray(rows.labels), how, splits, device=device)
        figures = {"accuracy": 100 * result.accuracy} | ({} if result.f1 is None else {"f1": 100 * result.f1})
        found[seed] = Outcome(figures, items=result.correct.astype(np.float64), details={"chosen": result.chosen})
    return over_seeds(found)


def split_accuracies(rows: TaskRows, left: Array, right: Array | None, protocol: Protocol) -> Outcome:
    """BERT-LC's protocol for a mix that was chosen beforehand: all rows, 10 times 85 % train and 15 % test."""
    accuracies = []
    for seed in protocol.seeds:
        pairs = None if right is None else right[:, None]
        how = TransferProtocol(seed=seed)
        found = fixed_accuracies(left[:, None], np.asarray(rows.labels), (0,), pair_views=pairs, protocol=how)
        accuracies += [100 * accuracy for accuracy in found]
    sd = float(np.std(accuracies, ddof=1))
    return Outcome({"accuracy": float(np.mean(accuracies))}, items=np.empty(0), sd={"accuracy": sd})


def _warn_of_strange_classes(rows: TaskRows) -> None:
    """Once for a task, however many seeds: classes that are only tested are never predicted."""
    known = {rows.labels[row] for row in rows.splits.get("train", range(len(rows)))}
    strange = sum(rows.labels[row] not in known for row in rows.splits["test"])
    if strange:
        told = "%s: %d tested rows are of classes that no training row has; they count as errors"
        log.warning(told, rows.task.name, strange)
