"""The interface of all kinds of tasks: a problem with texts to embed, and the outcome of scoring their vectors."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from layerwise.data import Task, TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds.protocol import Protocol
from layerwise.metrics import Figures, Numbers, Redraw

if TYPE_CHECKING:
    from torch import Tensor

Units = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The figures of a task (correlations, accuracies and shares × 100), and the values of single rows behind them.

    Args:
        figures: The figure of each metric; the mean over seeds if there are several.
        items: The contribution of each test row or query to the main figure: a similarity (sts, pairs), whether it
            was correct (classes), a score (retrieval, reranking, bitext), a cluster (clustering); the mean over seeds.
            Paired comparisons of runs need it.
        gold: The rows' grades, labels or classes, if the main figure needs them; else empty.
        sd: The standard deviation of each figure over the seeds, if it is random.
        details: Figures by subset, chosen settings, times.
    """

    figures: Figures
    items: Numbers
    gold: Numbers = field(default_factory=lambda: np.empty(0))
    sd: Figures = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


class Problem(ABC):
    """A task that is ready to be scored. Its units (rows, pairs or queries) can be picked and resampled.

    The class methods say how a protocol applies to a task, without its rows: by mteb's protocol the test rows are
    scored, whatever the settings of other kinds.

    Attributes:
        splits_at_random: Whether the protocol "lc" splits its rows at random, and may search layers split by split.
        task: The declaration.
        texts: The unique texts to embed, by role ("query", "document" or "" for none).
    """

    splits_at_random: ClassVar[bool] = False

    task: Task
    texts: Mapping[str, Sequence[str]]

    @classmethod
    @abstractmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> "Problem":
        """Build from the rows of a task."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def pick(self, units: Units) -> Self:
        """The problem on a subset of the units, with the texts of all units."""

    @abstractmethod
    def unit_texts(self) -> list[str]:
        """The texts of its units."""

    @abstractmethod
    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """The outcome for the vectors of `texts`, by role: (texts, width)"""

    def reseeded(self, count: int) -> Sequence[Self]:  # noqa: ARG002 - what is random needs it
        """Return itself, and copies with other random seeds if its score depends on one."""
        return [self]

    @property
    def unit(self) -> str:
        """What is picked, such as "queries"."""
        return self.task.declaration.unit

    @property
    def redraw(self) -> Redraw | None:
        """The function that computes the task's metric on resamples; None if there is none."""
        return self.task.declaration.redraw(self.task.metric)

    @classmethod
    def settings(cls, task: Task, protocol: Protocol) -> dict[str, Any]:  # noqa: ARG003 - other kinds need it
        """Return everything that determines a task's outcome besides its rows and the model."""
        return {"protocol": "mteb", "metric": task.metric}

    @classmethod
    def scored(cls, task: Task, roles: Collection[str], protocol: Protocol) -> str | None:
        """Return the role of the scored rows; None for all rows."""
        if protocol.split != "test":
            raise InputError(f"--split {protocol.split} is for STS; task {task.name!r} is scored on its test rows")
        return present("test", task, roles)

    @classmethod
    def split(cls, task: Task, protocol: Protocol) -> str:  # noqa: ARG003 - other kinds need it
        """Return the description of the scored rows for the stamp."""
        return "test" if task.splits else "all rows"

    @classmethod
    def headline(cls, task: Task, protocol: Protocol) -> str:  # noqa: ARG003 - other kinds need it
        """The name of the headline figure."""
        return task.metric

    @classmethod
    def aggregation(cls, protocol: Protocol) -> str | None:  # noqa: ARG003 - other kinds need it
        """Return how subsets are averaged, for the stamp; None if there is only one way."""
        return None


@dataclass(frozen=True, eq=False)
class RowProblem(Problem):
    """Rows of one text or two, without roles.

    Args:
        task: The declaration.
        texts: The unique texts, under the role "".
        left: Each row's text as an index: (rows,)
        right: Each row's second text; None for rows of one text.
        labels: The label of each row; empty without labels.
    """

    task: Task
    texts: Mapping[str, Sequence[str]]
    left: NDArray[np.intp]
    right: NDArray[np.intp] | None
    labels: NDArray[Any]

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:  # noqa: ARG003 - other kinds need it
        """Build from the test rows."""
        return cls._of(rows.of_role("test"))

    @classmethod
    def _of(cls, rows: TaskRows, **others: Any) -> Self:
        """Build from all of these rows; others are fields of the subclass."""
        return cls(rows.task, {"": rows.texts}, *rows.positions(), np.asarray(rows.labels), **others)

    def __len__(self) -> int:
        return len(self.left)

    def pick(self, units: Units) -> Self:
        """Select rows."""
        right, labels = self.right, self.labels
        return replace(
            self,
            left=self.left[units],
            right=None if right is None else right[units],
            labels=labels[units] if len(labels) else labels,
        )

    def unit_texts(self) -> list[str]:
        """The texts of both sides."""
        places = np.unique(self.left if self.right is None else np.concatenate([self.left, self.right]))
        return [self.texts[""][place] for place in places]

    def sides(self, vectors: Mapping[str, Array]) -> tuple[Array, Array | None]:
        """The vectors (or views) of left and right texts, row by row."""
        return vectors[""][self.left], None if self.right is None else vectors[""][self.right]

    def pair_sides(self, vectors: Mapping[str, Array]) -> tuple[Array, Array]:
        """The sides of rows that have two texts."""
        return cast(tuple[Array, Array], self.sides(vectors))


def problem_class(task: Task) -> type[Problem]:
    """The class of a task's problem."""
    return cast(type[Problem], task.declaration.problem_class)


def prepare(rows: TaskRows, protocol: Protocol | None = None) -> Problem:
    """The problem of a task's scored rows."""
    how = protocol or Protocol()
    kind = problem_class(rows.task)
    kind.scored(rows.task, rows.splits, how)  # raises for what cannot be scored
    return kind.of(rows, how)


def present(role: str, task: Task, roles: Collection[str]) -> str:
    """Return a role; raise if there are no rows of it."""
    if role not in roles:
        raise InputError(f"task {task.name!r} has no {role} rows; it has {', '.join(roles)}")
    return role


def over_seeds(outcomes: Mapping[int, Outcome]) -> Outcome:
    """The mean of several seeds' outcomes, with standard deviations; details by seed."""
    runs = list(outcomes.values())
    if len(runs) == 1:
        return runs[0]
    figures, sd = mean_and_sd([outcome.figures for outcome in runs])
    return Outcome(
        figures,
        items=np.mean([outcome.items for outcome in runs], axis=0),
        gold=runs[0].gold,
        sd=sd,
        details={"seeds": {str(seed): outcome.figures | outcome.details for seed, outcome in outcomes.items()}},
    )


def mean_and_sd(figures: Sequence[Mapping[str, float]]) -> tuple[Figures, Figures]:
    """The mean and the standard deviation of each figure over repetitions."""
    values = {name: [one[name] for one in figures] for name in figures[0]}
    means = {name: float(np.mean(repeated)) for name, repeated in values.items()}
    return means, {name: float(np.std(repeated, ddof=1)) for name, repeated in values.items()}


def unit_vectors(vectors: Array) -> "Tensor":
    """Normalise rows to length 1, in float32."""
    import torch

    rows = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    return torch.nn.functional.normalize(rows, p=2, dim=1)
