"""The settings of a multitask training: frozen values, checked when made."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from layerwise.data import Task, repeated
from layerwise.errors import InputError
from layerwise.multitask.rows import check_splits
from layerwise.predict import TaskObjective, TaskSetup
from layerwise.registry import check_known, did_you_mean
from layerwise.train.settings import ModelSettings, OptimiserSettings

__all__ = [
    "ITERATIONS",
    "WEIGHTS",
    "MixingSettings",
    "MultitaskDev",
    "MultitaskModel",
    "MultitaskRecipe",
    "TaskObjective",
]

ITERATIONS = ("cycling", "padding", "truncating", "proportional", "temperature")
WEIGHTS = ("equal", "inverse-size", "given", "learned")


@dataclass(frozen=True, kw_only=True)
class MultitaskModel(ModelSettings):
    """Encoder, pooler and head; without a pooler the best of those that were compared."""

    pooler: str = "last @ mean"


@dataclass(frozen=True, kw_only=True)
class MixingSettings:
    """How the tasks are trained together.

    Attributes:
        iteration: "cycling" (every step has a batch of each task, smaller ones start again), "padding" (smaller ones
            are padded with rows that have no loss), "truncating" (until the smallest is exhausted); one task a step:
            "proportional" (drawn by its size), "temperature" (by its size to the power of 1/temperature).
        temperature: 1 is proportional; higher values make the shares more equal.
        weights: Of the losses: "equal" (1 each), "inverse-size" (by 1/rows; their sum is the number of tasks), "given"
            (each objective's `weight`), "learned" (by uncertainty, Kendall et al. 2018).
        learned_rate: The learning rate of learned weights; the encoder's is too low for them.
        frozen_encoder: Train only pooler and heads.
    """

    iteration: str = "cycling"
    temperature: float = 1.0
    weights: str = "equal"
    learned_rate: float = 0.02
    frozen_encoder: bool = False

    def __post_init__(self) -> None:
        check_known(self.iteration, ITERATIONS, "[mixing] iteration")
        check_known(self.weights, WEIGHTS, "[mixing] weights")
        if not 0 < self.temperature < float("inf"):
            raise InputError(f"[mixing] temperature {self.temperature}: give a number above 0")
        if not 0 < self.learned_rate < float("inf"):
            raise InputError(f"[mixing] learned_rate {self.learned_rate}: give a number above 0")
        if self.temperature != 1 and self.iteration != "temperature":
            raise InputError(
                f"[mixing] temperature {self.temperature:g} is not read with iteration = {self.iteration!r}; set "
                f'temperature = 1, or iteration = "temperature"'
            )


@dataclass(frozen=True, kw_only=True)
class MultitaskDev:
    """Evaluation while training, on the dev rows of every task; the best overall score decides which weights are saved.

    Attributes:
        every: Steps between evaluations.
        patience: Stop after so many evaluations without a better score; 0: never.
        log_every: Steps between logged losses.
        limit: At most so many dev rows of a task in an evaluation, always the same ones; 0: all. The finished model is
            scored on all rows.
    """

    every: int = 250
    patience: int = 0
    log_every: int = 25
    limit: int = 0

    def __post_init__(self) -> None:
        if self.every < 1 or self.log_every < 1 or self.patience < 0:
            raise InputError("[dev] every and log_every are 1 or more, patience 0 or more")
        if self.limit < 0 or self.limit == 1:
            raise InputError(f"[dev] limit {self.limit}: give 2 rows or more, or 0 for all of them")


@dataclass(frozen=True, kw_only=True)
class MultitaskRecipe:
    """Everything that decides a multitask training but the seed.

    Attributes:
        name: The recipe's name.
        about: What it is for.
        reached: The scores it reached.
        model: Encoder, pooler and head.
        tasks: The declarations of the tasks.
        objectives: How they are learned, in the order of the tasks; a task without one has the defaults.
        mixing: How the tasks are trained together.
        train: The optimiser.
        dev: Evaluation while training.
    """

    name: str
    about: str = ""
    reached: str = ""
    model: MultitaskModel = field(default_factory=MultitaskModel)
    tasks: tuple[Task, ...]
    objectives: tuple[TaskObjective, ...] = ()
    mixing: MixingSettings = field(default_factory=MixingSettings)
    train: OptimiserSettings = field(default_factory=OptimiserSettings)
    dev: MultitaskDev = field(default_factory=MultitaskDev)

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InputError(
                f"recipe {self.name!r} has no tasks; name task files, tasks = [...], or write [[task]] tables"
            )
        for key, names in (("task", self._names), ("objective of task", [one.task for one in self.objectives])):
            if twice := repeated(names):
                raise InputError(f"recipe {self.name!r}: {key} {twice!r} comes twice; give it once")
        for objective in self.objectives:
            if objective.task not in self._names:
                guess = did_you_mean(objective.task, self._names)
                raise InputError(f"objective of task {objective.task!r}: no such task.{guess} Known: {self._listed}")
        declared = {objective.task: objective for objective in self.objectives}
        objectives = tuple(declared.get(name) or TaskObjective(task=name) for name in self._names)
        object.__setattr__(self, "objectives", objectives)
        self._check_weights()
        for setup in self.setups:
            check_splits(setup.task)

    @property
    def _names(self) -> list[str]:
        return [task.name for task in self.tasks]

    @property
    def _listed(self) -> str:
        return ", ".join(self._names)

    def _check_weights(self) -> None:
        if self.mixing.weights != "given":
            for objective in self.objectives:
                if objective.weight != 1:
                    raise InputError(
                        f"objective of task {objective.task!r}: weight {objective.weight:g} has no effect with "
                        f'[mixing] weights = {self.mixing.weights!r}; set weights = "given", or weight = 1'
                    )
        if not any(objective.weight for objective in self.objectives):
            raise InputError(f"recipe {self.name!r}: every task has the weight 0, so nothing would be trained")

    @property
    def setups(self) -> tuple[TaskSetup, ...]:
        """Every task with its objective."""
        return tuple(map(TaskSetup, self.tasks, self.objectives))

    @property
    def trained(self) -> tuple[TaskSetup, ...]:
        """The tasks of a weight above 0, with their objectives."""
        return tuple(setup for setup in self.setups if setup.objective.weight)

    def only(self, names: Collection[str]) -> Self:
        """The same recipe for some of its tasks."""
        tasks = tuple(task for task in self.tasks if task.name in names)
        return replace(self, tasks=tasks, objectives=tuple(one for one in self.objectives if one.task in names))

    def facts(self) -> dict[str, Any]:
        """For JSON and the model card."""
        tables = {key: asdict(getattr(self, key)) for key in ("model", "mixing", "train", "dev")}
        listed = {
            key: [value.model_dump(exclude_none=True) for value in getattr(self, key)]
            for key in ("tasks", "objectives")
        }
        return {"name": self.name, "about": self.about, "reached": self.reached, **tables, **listed}
