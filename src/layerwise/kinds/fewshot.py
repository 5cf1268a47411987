"""Few-shot classification, as in mteb: ten logistic regressions, each on a few training rows per class."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.data import Task, TaskRows, as_number
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.kinds.problem import Outcome, RowProblem, Units, mean_and_sd
from layerwise.kinds.protocol import Protocol
from layerwise.metrics import accuracy, f1_by_class
from layerwise.metrics.numbers import Codes
from layerwise.muted import no_convergence_warnings

DRAWS, SEED = 10, 42  # mteb's
_MAX_ITER = 100


@dataclass(frozen=True, eq=False)
class FewShot(RowProblem):
    """The drawn and the test rows with their classes as numbers, and the rows of each draw; units are test rows."""

    draws: list[NDArray[np.intp]] = field(default_factory=list)
    tested: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:  # noqa: ARG003 - as Problem
        """Build from only the drawn and the test rows."""
        require("evaluate", "few-shot classification", "sklearn")
        if "train" not in rows.splits:
            raise InputError(
                f"task {rows.task.name!r} has no train rows to draw from; declare splits = "
                f"{{ train = [...], test = [...] }}"
            )
        classes, train, test = _codes(rows), rows.splits["train"], rows.splits["test"]
        if len(np.unique(classes[train])) < 2:
            raise InputError(f"task {rows.task.name!r}: all train rows have one class; a classifier needs 2 or more")
        draws = [train[draw] for draw in few_shot_draws(classes[train], rows.task.shots)]
        drawn = np.unique(np.concatenate(draws))
        used = np.concatenate([drawn, test])
        places = [np.searchsorted(drawn, draw) for draw in draws]
        problem = cls._of(rows.pick(used), draws=places, tested=np.arange(len(drawn), len(used)))
        return replace(problem, labels=classes[used])

    def __len__(self) -> int:
        return len(self.tested)

    def pick(self, units: Units) -> Self:
        """Select test rows, with the same draws."""
        return replace(self, tested=self.tested[units])

    def unit_texts(self) -> list[str]:
        """The texts of the test rows and of the drawn training rows."""
        used = np.concatenate([*self.draws, self.tested])
        return [self.texts[""][place] for place in np.unique(self.left[used])]

    @classmethod
    def settings(cls, task: Task, protocol: Protocol) -> dict[str, Any]:
        """With the number of rows of each class."""
        return super().settings(task, protocol) | {"shots": task.shots}

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """Accuracy and F1 × 100, mean of the draws; for two classes also average precision."""
        from sklearn.linear_model import LogisticRegression

        embeddings, gold = vectors[""][self.left], self.labels[self.tested]
        model = LogisticRegression(max_iter=_MAX_ITER, random_state=SEED)
        figures, correct = [], []
        for draw in self.draws:
            with no_convergence_warnings():
                predicted = model.fit(embeddings[draw], self.labels[draw]).predict(embeddings[self.tested])
            figures.append(_figures(gold, predicted))
            correct.append(predicted == gold)
        means, sd = mean_and_sd(figures)
        return Outcome(means, items=np.mean(correct, axis=0), sd=sd, details={"draws": len(self.draws)})


def few_shot_draws(classes: Codes, shots: int) -> list[NDArray[np.intp]]:
    """The rows of each draw, up to `shots` per class. As in mteb, each draw reshuffles the last order by one seed."""
    order = np.arange(len(classes))
    draws = []
    for _ in range(DRAWS):
        np.random.RandomState(SEED).shuffle(order)
        draws.append(order[_first_of_each(classes[order], shots)])
    return draws


def _first_of_each(classes: Codes, shots: int) -> NDArray[np.intp]:
    """The indices of the first rows of each class, in their order."""
    by_class = np.argsort(classes, kind="stable")
    starts = np.searchsorted(classes[by_class], classes[by_class])
    return np.sort(by_class[np.arange(len(classes)) - starts < shots])


def _codes(rows: TaskRows) -> Codes:
    """Classes as numbers, in the declared order; else in numerical order if all are numbers, else by name."""
    names = list(dict.fromkeys(rows.labels))
    numbers = {name: as_number(name) for name in names}
    if rows.task.labels:
        names = list(rows.task.labels)
    elif None in numbers.values():
        names = sorted(names)
    else:
        names = sorted(names, key=lambda name: (numbers[name], name))
    code = {name: number for number, name in enumerate(names)}
    return np.array([code[name] for name in rows.labels], dtype=np.intp)


def _figures(gold: Codes, predicted: Codes) -> dict[str, float]:
    f1, support = f1_by_class(gold, predicted)
    figures = {
        "accuracy": accuracy(gold, predicted),
        "f1_macro": float(f1.mean()),
        "f1_weighted": float(np.average(f1, weights=support)),
    }
    if len(np.unique(gold)) == 2:
        from sklearn.metrics import average_precision_score

        figures["ap"] = average_precision_score(gold == gold.max(), predicted)
    return {name: 100 * value for name, value in figures.items()}
