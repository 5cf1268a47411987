"""The settings of a multitask training: frozen values, checked when made."""

from dataclasses import asdict, dataclass, field
from typing import Any

from layerwise.errors import InputError
from layerwise.multitask.task import TaskSettings
from layerwise.registry import check_known
from layerwise.train.settings import ModelSettings, OptimiserSettings

__all__ = [
    "ITERATIONS",
    "WEIGHTS",
    "MixingSettings",
    "MultitaskDev",
    "MultitaskModel",
    "MultitaskRecipe",
    "TaskSettings",
]

ITERATIONS = ("cycling", "padding", "truncating", "proportional", "temperature")
WEIGHTS = ("equal", "inverse-size", "given", "learned")


@dataclass(frozen=True, kw_only=True)
class MultitaskModel(ModelSettings):
    """Encoder, pooler and head; without a pooler the best of those that were compared."""

    pooler: str = "last @ mean"


@dataclass(frozen=True, kw_only=True)
class MixingSettings:
    """How the tasks go together.

    Attributes:
        iteration: "cycling" (every step has a batch of each task, smaller ones begin again), "padding" (smaller ones
            are filled up with rows that don't count), "truncating" (until the smallest is through); one task a step:
            "proportional" (drawn by its size), "temperature" (by its size to the power of 1/temperature).
        temperature: 1 is proportional; the higher, the more alike the shares.
        weights: Of the losses: "equal" (1 each), "inverse-size" (by 1/rows; their sum is the number of tasks), "given"
            (each task's `weight`), "learned" (by uncertainty, Kendall et al. 2018).
        learned_rate: The learning rate of learned weights, which the encoder's would hardly move.
        frozen_encoder: Train pooler and heads alone ("pretrain").
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
    """What is looked at while training: the dev rows of every task; the best overall score picks the weights kept.

    Attributes:
        every: Steps between looks.
        patience: Stop after so many looks without a better score; 0: never.
        log_every: Steps between logged losses.
        limit: At most so many dev rows of a task a look, always the same ones; 0: all. The finished model is scored on
            all rows in any case.
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
    """Everything that decides a multitask training but the seed."""

    name: str
    about: str = ""
    reached: str = ""
    model: MultitaskModel = field(default_factory=MultitaskModel)
    tasks: tuple[TaskSettings, ...]
    mixing: MixingSettings = field(default_factory=MixingSettings)
    train: OptimiserSettings = field(default_factory=OptimiserSettings)
    dev: MultitaskDev = field(default_factory=MultitaskDev)

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InputError(f"recipe {self.name!r} has no [[task]]; each is one, with a name, kind, file and columns")
        names = [task.name for task in self.tasks]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"recipe {self.name!r}: task {twice!r} comes twice; give each its own name")
        self._check_weights()

    def _check_weights(self) -> None:
        if self.mixing.weights != "given":
            for task in self.tasks:
                if task.weight != 1:
                    raise InputError(
                        f"task {task.name!r}: weight {task.weight:g} is not read with [mixing] weights = "
                        f'{self.mixing.weights!r}; set weights = "given", or the weight 1'
                    )
        if not any(task.weight for task in self.tasks):
            raise InputError(f"recipe {self.name!r}: every task has the weight 0, so nothing would be trained")

    def facts(self) -> dict[str, Any]:
        """For JSON and the model card."""
        return asdict(self)
