"""Classification (transfer and probing tasks): how well a linear classifier, or a small perceptron, predicts classes.

The classifier learns from fixed embeddings of train rows, or of folds where there are no splits, as in SentEval.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.data import Task, TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds.problem import Outcome, RowProblem, Units, over_seeds
from layerwise.kinds.protocol import Protocol
from layerwise.muted import muted

log = logging.getLogger(__name__)

Splits = Mapping[str, NDArray[np.intp]]


@dataclass(frozen=True, eq=False)
class Classification(RowProblem):
    """All rows with their classes. Units are the test rows, or all rows where they are folded or split at random."""

    splits_at_random: ClassVar[bool] = True

    protocol: Protocol = field(default_factory=Protocol)
    splits: Splits | None = None

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:
        """Build from all rows: train rows are learnt from, dev rows choose the classifier's setting."""
        splits = rows.splits if rows.task.splits and protocol.name != "lc" else None
        return cls._of(rows, protocol=protocol, splits=splits)

    def __len__(self) -> int:
        return len(self.left) if self.splits is None else len(self.splits["test"])

    def pick(self, units: Units) -> Self:
        """Select test rows, with all rows to learn from; without splits any rows."""
        if self.splits is None:
            return super().pick(units)
        return replace(self, splits={**self.splits, "test": self.splits["test"][units]})

    @property
    def answers(self) -> NDArray[Any]:
        """The class of each row, which sorts as the declared classes do: F1 is of the second of two."""
        if not self.task.labels:
            return self.labels
        numbers = {name: number for number, name in enumerate(self.task.labels)}
        return np.array([numbers[name] for name in self.labels])

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """Accuracy × 100, and of two classes F1, by SentEval's protocol: once for each seed."""
        import torch

        from layerwise.classify import SentEvalProtocol, evaluate_classes, pair_features

        self._check()
        left, right = self.sides(vectors)
        features = left if right is None else pair_features(left, right)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        classifier = "mlp" if self.protocol.name == "senteval-mlp" else "logistic"
        outcomes = {}
        for seed in self.protocol.seeds if self.protocol.is_random(self.task) else self.protocol.seeds[:1]:
            how = SentEvalProtocol(classifier=classifier, seed=seed)
            with muted("layerwise.classify.senteval"):  # it would warn at every seed, without the task
                result = evaluate_classes(features, self.answers, how, self.splits, device=device)
            figures = {"accuracy": 100 * result.accuracy} | ({} if result.f1 is None else {"f1": 100 * result.f1})
            outcomes[seed] = Outcome(
                figures, items=result.correct.astype(np.float64), details={"chosen": result.chosen}
            )
        return over_seeds(outcomes)

    def _check(self) -> None:
        """Raise for classes of which F1 is not defined; warn of those that are never predicted."""
        splits = self.splits or {}
        known = set(self.labels[splits["train"]] if splits else self.labels)
        if self.task.metric == "f1":
            self.task.check_classes(len(known))
        unseen = sum(label not in known for label in self.labels[splits["test"]]) if splits else 0
        if unseen:
            message = "%s: %d tested rows are of classes that no training row has; they count as errors"
            log.warning(message, self.task.name, unseen)

    @classmethod
    def settings(cls, task: Task, protocol: Protocol) -> dict[str, Any]:
        """The protocol, and the seeds where something is random."""
        seeds = {"seeds": list(protocol.seeds)} if protocol.is_random(task) else {}
        return {"protocol": protocol.name, **seeds}

    @classmethod
    def scored(cls, task: Task, roles: Collection[str], protocol: Protocol) -> str | None:
        """The test rows, or all where they are folded or split at random."""
        if protocol.name == "lc":
            if task.metric == "f1":
                raise InputError(
                    f"task {task.name!r}: the protocol 'lc' gives accuracies, not f1; use another protocol"
                )
            protocol.check_mixable(task)
            return None
        if protocol.split == "test" and task.splits and "train" not in roles:
            raise InputError(f"task {task.name!r} has no train rows; it has {', '.join(roles)}")
        return super().scored(task, roles, protocol)

    @classmethod
    def split(cls, task: Task, protocol: Protocol) -> str:
        """As the protocol says."""
        if protocol.name == "lc":
            return "random splits of all rows"
        return "test" if task.splits else "folds of all rows"
