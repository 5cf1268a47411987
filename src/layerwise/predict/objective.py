"""The training objective of a task (head, loss, weight, contrast), and a task with its objective."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from layerwise.data import KINDS, Task
from layerwise.errors import InputError
from layerwise.registry import check_known
from layerwise.settings import Settings

FEATURES = ("concat", "difference-sum", "all")
SCALE = (0.0, 5.0)
_NAME = re.compile(r"[A-Za-z0-9_-]+")  # it names a module, a file and a key of the results


class TaskObjective(Settings):
    """The training objective of a task: an [[objective]] table of a recipe.

    Attributes:
        task: The name of the task.
        head: "linear", "mlp" (three linear layers with ReLU between); for sts also "cosine", which has no weights.
            Dropout comes before every linear layer. Empty: "cosine" for sts, otherwise "linear".
        features: What a head takes of two embeddings u and v: "concat" [u; v], "difference-sum" [|u−v|; |u+v|], "all"
            [u; v; |u−v|; u·v], where u·v is the product of each pair of numbers.
        loss: "cross-entropy", "binary" (two classes, one logit), "mse" (on the task's scale). Empty: "mse" for sts,
            "binary" for pairs of two classes, otherwise "cross-entropy".
        dropout: The head's.
        weight: The weight of the loss, with [mixing] weights = "given"; 0 leaves the task out of training.
        supervised: False: the encoder learns from this task's texts by contrast alone. Its head is trained on detached
            embeddings, so that the task has a score.
        contrast: The weight of the contrastive term (SimCSE: every text is its own positive, by dropout); 0: none.
        contrast_temperature: The temperature of its cosines.
        contrast_dropout: The dropout rate of the second view; by default the encoder's.
        max_length: Texts are cut to so many tokens.
        limit: Train on the first so many rows; dev and test stay whole, so that scores can be compared.
    """

    task: str
    head: str = ""
    features: Literal["concat", "difference-sum", "all"] = "difference-sum"
    loss: str = ""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.3
    weight: Annotated[float, Field(ge=0)] = 1.0
    supervised: bool = True
    contrast: Annotated[float, Field(ge=0)] = 0.0
    contrast_temperature: Annotated[float, Field(gt=0)] = 0.05
    contrast_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    max_length: Annotated[int, Field(ge=3)] = 128
    limit: Annotated[int, Field(ge=2)] | None = None

    @classmethod
    def labelled(cls, values: Mapping[str, Any]) -> str:
        """Return the prefix of errors about these values."""
        return f"objective of task {values['task']!r}:" if values.get("task") else "[[objective]]:"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.contrast_dropout is not None and not self.contrast:
            raise InputError("contrast_dropout has no effect without contrast; set contrast = 0.1")
        if not self.supervised and not self.contrast:
            raise InputError("supervised = false leaves contrast alone, but contrast is 0; set contrast = 1")
        return self


@dataclass(frozen=True)
class TaskSetup:
    """A task and its matching objective."""

    task: Task
    objective: TaskObjective

    def __post_init__(self) -> None:
        task, objective = self.task, self.objective
        if not _NAME.fullmatch(task.name):
            raise InputError(f"task {task.name!r}: a trained task's name has letters, digits, - and _ only; rename it")
        kind = task.declaration
        if not kind.heads:
            trainable = " and ".join(name for name in KINDS if KINDS[name].heads)
            raise InputError(f"task {task.name!r}: a {task.kind} task cannot be trained; {trainable} tasks can")
        try:
            check_known(self.head, kind.heads, f"head of {task.kind}")
            check_known(objective.loss or kind.losses[0], kind.losses, f"loss of {task.kind}")
        except InputError as error:
            raise InputError(f"objective of task {task.name!r}: {error}") from None
        if task.labels:
            self.check_classes(len(task.labels))

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    @property
    def head(self) -> str:
        """The head by its name."""
        return self.objective.head or self.task.declaration.heads[0]

    @property
    def scale(self) -> tuple[float, float]:
        """STS: the lowest and the highest score."""
        return self.task.scale or SCALE

    def check_classes(self, classes: int) -> None:
        """Raise for a number of classes for which the metric or the loss is not defined."""
        self.task.check_classes(classes)
        if self.objective.loss == "binary" and classes != 2:
            raise InputError(f"objective of task {self.name!r}: loss 'binary' is for two classes, there are {classes}")

    def loss_for(self, classes: int) -> str:
        """The loss by its name; `classes` is 0 for sts."""
        if self.objective.loss:
            return self.objective.loss
        if not self.task.has_classes:
            return self.task.declaration.losses[0]
        return "binary" if self.task.is_pair and classes == 2 else "cross-entropy"

    def outputs_for(self, classes: int) -> int:
        """Return the number of the head's outputs: one per class, or one."""
        return classes if self.loss_for(classes) == "cross-entropy" else 1
