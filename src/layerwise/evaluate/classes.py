"""Transfer and probing: how well a linear classifier, or a small perceptron, reads classes from fixed embeddings."""

import numpy as np
import torch

from layerwise.classify.senteval import SentEvalProtocol, evaluate_classes, pair_features
from layerwise.data.task_rows import TaskRows
from layerwise.encoder.stream import Array
from layerwise.evaluate.outcomes import Outcome, over_seeds
from layerwise.evaluate.protocols import Protocol
from layerwise.search.transfer import fixed_accuracies
from layerwise.search.transfer_protocol import TransferProtocol


def score_classes(rows: TaskRows, left: Array, right: Array | None, protocol: Protocol) -> Outcome:
    """SentEval's protocol, by each seed."""
    features = left if right is None else pair_features(left, right)
    splits = rows.splits if rows.task.splits else None
    classifier = "mlp" if protocol.name == "senteval-mlp" else "logistic"
    fixed = classifier == "logistic" and "dev" in rows.splits  # nothing is random then
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {}
    for seed in protocol.seeds[:1] if fixed else protocol.seeds:
        how = SentEvalProtocol(classifier=classifier, seed=seed)
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
