"""From a recipe and its tasks' rows to the modules, and to the predictor that they leave."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from layerwise.encoder.dropout import dropout_rate
from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.mixes import LayerMix
from layerwise.model.head import Head
from layerwise.model.layer_model import LayerModel
from layerwise.multitask.rows import TrainingTask
from layerwise.multitask.settings import MultitaskRecipe
from layerwise.multitask.student import MultitaskStudent
from layerwise.multitask.weights import LearnedWeights, task_weights
from layerwise.predict import Predictor, task_head
from layerwise.train.loop.student import freeze, set_dropout
from layerwise.train.loop.student import new_head as fresh_head
from layerwise.train.loop.student import new_pooler as fresh_pooler


@dataclass(frozen=True)
class MultitaskParts:
    """What is trained, and how it becomes a predictor."""

    encoder: LayerEncoder
    pooler: LayerMix
    head: nn.Module
    student: MultitaskStudent
    tasks: tuple[TrainingTask, ...]

    def predictor(self, *, remember: bool = False, **about: Any) -> Predictor:
        """The tasks' heads behind the same weights; `about` goes to `LayerModel` (training, fitted_on)."""
        shared = [self.head] if isinstance(self.head, Head) else []
        model = LayerModel(self.encoder, self.pooler, heads=shared, **about)
        heads = {task.name: self.student.head_of(task.name) for task in self.tasks}
        return Predictor(model, heads, {task.name: task.labels for task in self.tasks}, remember)


def build(
    recipe: MultitaskRecipe, tasks: Sequence[TrainingTask], encoder: LayerEncoder, *, seed: int
) -> MultitaskParts:
    """Fresh pooler and heads around an encoder, which is trained in place; `tasks` are those of a weight above 0."""
    check_trainable(recipe)
    settings, mixing = recipe.model, recipe.mixing
    set_dropout(encoder, settings.dropout)
    _check_encoder(tasks, encoder)
    pooler = fresh_pooler(settings.pooler, encoder, seed=seed)
    wide = pooler.width(encoder.width)
    width = settings.width or (encoder.width if settings.head != "none" else wide)
    head = fresh_head(settings.head, wide, width, seed=seed + 1)
    names = [task.name for task in tasks]
    sizes = [len(task.parts["train"]) for task in tasks]
    weights = task_weights(mixing.weights, sizes, [task.setup.objective.weight for task in tasks])
    regressions = [not task.setup.task.has_classes for task in tasks]
    student = MultitaskStudent(
        encoder,
        pooler,
        head,
        {
            task.name: task_head(task.setup, width, task.outputs, seed=seed + 2 + number)
            for number, task in enumerate(tasks)
        },
        {task.name: task.loss for task in tasks},
        dict(zip(names, weights, strict=True)),
        learned=LearnedWeights(regressions) if mixing.weights == "learned" else None,
        frozen_encoder=mixing.frozen_encoder,
    ).to(encoder.device)
    freeze(student, encoder.model, settings.freeze)
    if mixing.frozen_encoder:
        encoder.model.requires_grad_(False)
    _check_something_is_trained(student)
    return MultitaskParts(encoder, pooler, head, student, tuple(tasks))


def check_trainable(recipe: MultitaskRecipe) -> None:
    """Refuse what a training by one embedding has and this one has not."""
    if recipe.model.inference:
        raise InputError("[model] inference: the tasks' heads stand behind the pooler itself; leave it out")
    if recipe.model.head == "mlp-bn":
        raise InputError('[model] head = "mlp-bn" is for training alone; before tasks\' heads take mlp, linear or none')
    if recipe.train.chunk:
        raise InputError("[train] chunk: gradient caching is not for several tasks; lower batch_size instead")
    for setup in recipe.trained:
        if recipe.mixing.frozen_encoder and setup.objective.contrast:
            raise InputError(
                f"objective of task {setup.name!r}: contrast compares two dropout passes of the encoder, but [mixing] "
                f"frozen_encoder = true leaves it no dropout; set contrast = 0, or train the encoder"
            )


def _check_encoder(tasks: Sequence[TrainingTask], encoder: LayerEncoder) -> None:
    rate = dropout_rate(encoder.model)
    for objective in (task.setup.objective for task in tasks):
        if objective.max_length > encoder.max_length:
            raise InputError(
                f"objective of task {objective.task!r}: max_length is {objective.max_length}, but {encoder.name} takes "
                f"at most {encoder.max_length} tokens"
            )
        if objective.contrast and not (rate or objective.contrast_dropout):
            raise InputError(
                f"objective of task {objective.task!r}: {encoder.name} has no dropout, so two passes over a text are "
                f"equal; set dropout = 0.1 under [model], or contrast_dropout"
            )


def _check_something_is_trained(student: MultitaskStudent) -> None:
    own = (parameter for name, parameter in student.named_parameters() if not name.startswith("learned."))
    if not any(parameter.requires_grad for parameter in own):
        raise InputError(
            "[mixing] frozen_encoder = true: neither pooler nor heads have weights, so nothing would be trained; "
            "give a task head linear or mlp"
        )
