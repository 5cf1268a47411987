"""Few-shot classification, as in mteb: ten logistic regressions, each on a few training rows per class."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from layerwise.data import TaskRows, as_number
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.kinds.problem import Codes, Outcome, Redraw, Units, redraw_mean
from layerwise.kinds.sklearn_warnings import no_convergence_warnings

DRAWS, SEED = 10, 42  # mteb's
_MAX_ITER = 100


@dataclass(frozen=True, eq=False)
class FewShot:
    """Rows as indices of the texts, their classes as numbers, the training rows of each draw, and the test rows."""

    unit: ClassVar[str] = "rows"
    redraws: ClassVar[Mapping[str, Redraw]] = {"accuracy": redraw_mean}

    texts: dict[str, list[str]]
    rows: NDArray[np.intp]
    classes: Codes
    draws: list[NDArray[np.intp]]
    tested: NDArray[np.intp]

    @classmethod
    def of(cls, rows: TaskRows) -> "FewShot":
        """The problem of a task, with only its drawn and its test rows."""
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
        needed = rows.pick(used)
        left, _ = needed.positions()
        places = [np.searchsorted(drawn, draw) for draw in draws]
        return cls({"": needed.texts}, left, classes[used], places, np.arange(len(drawn), len(used)))

    def __len__(self) -> int:
        return len(self.tested)

    def pick(self, units: Units) -> "FewShot":
        """Select test rows, with the same draws."""
        return replace(self, tested=self.tested[units])

    def unit_texts(self) -> list[str]:
        """The texts of the test rows and of the drawn training rows."""
        used = np.concatenate([*self.draws, self.tested])
        return [self.texts[""][place] for place in np.unique(self.rows[used])]

    def reseeded(self, count: int) -> list["FewShot"]:  # noqa: ARG002 - as Divisible
        """Return only itself, as its draws are part of the task."""
        return [self]

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """Accuracy and F1 × 100, mean of the draws; for two classes also average precision."""
        from sklearn.linear_model import LogisticRegression

        embeddings, gold = vectors[""][self.rows], self.classes[self.tested]
        model = LogisticRegression(max_iter=_MAX_ITER, random_state=SEED)
        figures, correct = [], []
        for draw in self.draws:
            with no_convergence_warnings():
                predicted = model.fit(embeddings[draw], self.classes[draw]).predict(embeddings[self.tested])
            figures.append(_figures(gold, predicted))
            correct.append(predicted == gold)
        values = {name: [100 * of_draw[name] for of_draw in figures] for name in figures[0]}
        return Outcome(
            {name: float(np.mean(of_draws)) for name, of_draws in values.items()},
            items=np.mean(correct, axis=0),
            sd={name: float(np.std(of_draws, ddof=1)) for name, of_draws in values.items()},
            details={"draws": len(self.draws)},
        )


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


def _figures(gold: Codes, predicted: Codes) -> dict[str, Any]:
    f1, support = _f1_by_class(gold, predicted)
    figures = {
        "accuracy": float((gold == predicted).mean()),
        "f1_macro": float(f1.mean()),
        "f1_weighted": float(np.average(f1, weights=support)),
    }
    if len(np.unique(gold)) == 2:
        from sklearn.metrics import average_precision_score

        figures["ap"] = average_precision_score(gold == gold.max(), predicted)
    return figures


def _f1_by_class(gold: Codes, predicted: Codes) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """F1 and support of each class that occurs; faster than scikit-learn's `f1_score`, which validates its input."""
    count = int(max(gold.max(), predicted.max())) + 1
    support, n_predicted = np.bincount(gold, minlength=count), np.bincount(predicted, minlength=count)
    true_positives = np.bincount(gold[gold == predicted], minlength=count)
    occurs = support + n_predicted > 0
    return 2 * true_positives[occurs] / (support + n_predicted)[occurs], support[occurs]
