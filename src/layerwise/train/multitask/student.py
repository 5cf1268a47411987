"""The student of multitask training: encoder, shared pooler and head, and a head for each task; few passes a step."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder, dropout_rate
from layerwise.errors import InputError
from layerwise.mixes import Mix
from layerwise.model import Head, LayerModel
from layerwise.objectives import gather_rows
from layerwise.predict import Predictor, TaskHead, TaskSetup, task_head
from layerwise.train.loop.student import BaseStudent, Encoded, EncoderPass, freeze, new_layers
from layerwise.train.multitask.losses import contrast_loss, task_loss
from layerwise.train.multitask.rows import TrainingTask
from layerwise.train.multitask.settings import MultitaskRecipe
from layerwise.train.multitask.weights import LearnedWeights, task_weights, weighted_loss

_GPU_PADDING = 1.5  # see `max_padding`


class MultitaskStudent(BaseStudent):
    """The module that is trained.

    Args:
        encoder: The encoder, whose model is trained in place.
        pooler: The resolved mix that computes embeddings; attention includes its network.
        head: Applied after the pooler and before every task's head, or identity.
        heads: The heads by task.
        losses: The losses by task: "cross-entropy", "binary" or "mse".
        weights: The weights by task; a task of weight 0 is not computed.
        learned: Learned weights, used instead of `weights`.
        frozen_encoder: The encoder is not trained and stays in eval mode.

    Attributes:
        max_padding: Tasks share a pass of the encoder that has at most this many times the tokens of one pass each. A
            pass over a few short texts takes a GPU about as long as one over many, as most of its time goes into
            launching; padding costs less than one more pass, unless a task's texts are much longer. 1: only tasks whose
            texts have the same length share a pass; 0: none do.
    """

    def __init__(
        self,
        encoder: LayerEncoder,
        pooler: Mix,
        head: nn.Module,
        heads: Mapping[str, TaskHead],
        losses: Mapping[str, str],
        weights: Mapping[str, float],
        *,
        learned: LearnedWeights | None = None,
        frozen_encoder: bool = False,
    ) -> None:
        super().__init__(encoder, pooler, head)
        self.heads = nn.ModuleDict({_module_name(task): task_head for task, task_head in heads.items()})
        self.losses = dict(losses)
        self.weights = dict(weights)
        self.learned = learned
        self.frozen_encoder = frozen_encoder
        self.max_padding = _GPU_PADDING if encoder.device.type == "cuda" else 1.0
        self.eval()  # a new module is in training mode, regardless of its encoder

    def head_of(self, task: str) -> TaskHead:
        """Return the head of a task."""
        return cast(TaskHead, self.heads[_module_name(task)])

    def train(self, mode: bool = True) -> Self:
        """Set the mode if it changes; a frozen encoder stays in eval mode."""
        if self.training != mode:
            super().train(mode)
            if self.frozen_encoder:
                self.backbone.eval()
        return self

    def passes(self, batch: Mapping[str, Any]) -> Sequence[EncoderPass]:
        """Return the passes over the texts of all tasks, then over the second views, with another dropout mask.

        `batch` has a batch for each task of the step, see `MultitaskBatches`.
        """
        present = [task for task, weight in self.weights.items() if weight and task in batch]
        objectives = {task: self.head_of(task).setup.objective for task in present}
        rates = {name: objective.contrast_dropout for name, objective in objectives.items() if objective.contrast}
        passes = self._shared_passes({task: batch[task] for task in present})
        for rate in dict.fromkeys(rates.values()):
            contrasted = {second_view(task): batch[task] for task in rates if rates[task] == rate}
            passes += self._shared_passes(contrasted, dropout=rate)
        return passes

    def encode(self, tokens: Tensor, mask: Tensor, places: Tensor | None = None) -> Encoded:
        """Run one pass: (n, t) twice -> embeddings after the shared head, (n, width)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen_encoder):
            views = self.encoder.read(tokens, mask, self.pooler.layers, self.pooler.poolings, places)
        with torch.autocast(views.device.type, enabled=False):
            return {"embeddings": self.head(self.pooler.combine(views.float()))}

    def loss(self, encoded: Mapping[str, Encoded], batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the weighted sum of the tasks' losses; its parts are TASK and TASK_contrast."""
        parts: dict[str, Tensor] = {}
        totals: list[Tensor | None] = []
        for task in self.weights:
            if task not in encoded:
                totals.append(None)
                continue
            setup, second = self.head_of(task).setup, encoded.get(second_view(task))
            parts[task] = total = self._supervised_loss(setup, batch[task], encoded[task]["embeddings"])
            if second is not None:
                views = encoded[task]["embeddings"], second["embeddings"]
                parts[f"{task}_contrast"] = contrast = self._contrast_loss(setup, batch[task], *views)
                total = total + setup.objective.contrast * contrast
            totals.append(total)
        loss = self.learned(totals) if self.learned else weighted_loss(totals, list(self.weights.values()))
        return {"loss": loss, "parts": {name: value.detach() for name, value in parts.items()}}

    def to_predictor(self, tasks: Sequence[TrainingTask], *, remember: bool = False, **options: Any) -> Predictor:
        """Build a predictor with the student's weights; `options` are `LayerModel`'s (training, fitted_on)."""
        heads = [self.head] if isinstance(self.head, Head) else []
        model = LayerModel(self.encoder, self.pooler, heads=heads, **options)
        labels = {task.name: task.labels for task in tasks}
        return Predictor(model, {name: self.head_of(name) for name in labels}, labels, remember)

    def _supervised_loss(self, setup: TaskSetup, batch: Mapping[str, Tensor], embeddings: Tensor) -> Tensor:
        """Compute the supervised loss on the joint batch of all processes."""
        embeddings = embeddings if setup.objective.supervised else embeddings.detach()
        with torch.autocast(embeddings.device.type, enabled=False):
            outputs = self.head_of(setup.name)(*embeddings.chunk(_columns(setup)))
        targets, row_mask = gather_rows(batch["targets"]), gather_rows(batch["row_mask"])
        return task_loss(gather_rows(outputs), targets, self.losses[setup.name], row_mask=row_mask)

    def _contrast_loss(self, setup: TaskSetup, batch: Mapping[str, Tensor], first: Tensor, second: Tensor) -> Tensor:
        """Compute InfoNCE between two views; texts of all processes are negatives."""
        columns = _columns(setup)
        first, second = (torch.cat([gather_rows(column) for column in view.chunk(columns)]) for view in (first, second))
        temperature = setup.objective.contrast_temperature
        return contrast_loss(first, second, gather_rows(batch["row_mask"]), columns=columns, temperature=temperature)

    def _shared_passes(
        self, batches: Mapping[str, Mapping[str, Tensor]], *, dropout: float | None = None
    ) -> list[EncoderPass]:
        """Return as few passes over these batches as `max_padding` allows."""
        rows = {name: len(batch["input_ids"]) for name, batch in batches.items()}
        shapes = {name: (rows[name], batch["input_ids"].shape[1]) for name, batch in batches.items()}
        pad_id = int(self.encoder.tokenizer.pad_token_id or 0)
        passes = []
        for names in group_by_length(shapes, max_padding=self.max_padding):
            tokens, mask = stack_batches([batches[name] for name in names], pad_id)
            passes.append(
                EncoderPass(rows={name: rows[name] for name in names}, tokens=tokens, mask=mask, dropout=dropout)
            )
        return passes


def build_student(
    recipe: MultitaskRecipe, tasks: Sequence[TrainingTask], encoder: LayerEncoder, *, seed: int
) -> MultitaskStudent:
    """Build a student with new pooler and heads for tasks; the encoder is trained in place."""
    mixing = recipe.mixing
    layers = new_layers(recipe.model, encoder, seed=seed)
    if layers.pooler.is_prompted:
        raise InputError(f"[model] pooler {layers.pooler}: prompts are for contrastive training; pool the text alone")
    _check_encoder(tasks, encoder)
    sizes = [len(task.parts["train"]) for task in tasks]
    weights = task_weights(mixing.weights, sizes, [task.setup.objective.weight for task in tasks])
    regressions = [not task.setup.task.has_classes for task in tasks]
    student = MultitaskStudent(
        encoder,
        layers.pooler,
        layers.head,
        {
            task.name: task_head(task.setup, layers.width, task.outputs, seed=seed + 2 + number)
            for number, task in enumerate(tasks)
        },
        {task.name: task.loss for task in tasks},
        dict(zip((task.name for task in tasks), weights, strict=True)),
        learned=LearnedWeights(regressions) if mixing.weights == "learned" else None,
        frozen_encoder=mixing.frozen_encoder,
    ).to(encoder.device)
    freeze(student, encoder.model, recipe.model.freeze)
    if mixing.frozen_encoder:
        encoder.model.requires_grad_(False)
    _check_something_is_trained(student)
    return student


def second_view(task: str) -> str:
    """Return the name of a task's second view among the parts of passes."""
    return f"{task} (second view)"


def group_by_length(shapes: Mapping[str, tuple[int, int]], *, max_padding: float) -> list[list[str]]:
    """Group batches that share a pass, shortest texts first.

    >>> group_by_length({"reviews": (32, 256), "pairs": (64, 32), "words": (32, 40)}, max_padding=1.5)
    [['pairs', 'words'], ['reviews']]

    Args:
        shapes: Rows and length of each batch.
        max_padding: A group has at most this many times the tokens of its batches padded one by one.
    """
    groups: list[list[str]] = []
    for name in sorted(shapes, key=lambda name: shapes[name][1]):
        group = [*groups[-1], name] if groups else [name]
        separate = sum(rows * length for rows, length in (shapes[member] for member in group))
        padded = sum(shapes[member][0] for member in group) * shapes[name][1]  # the longest so far
        if groups and padded <= max_padding * separate:
            groups[-1] = group
        else:
            groups.append([name])
    return groups


def stack_batches(batches: Sequence[Mapping[str, Tensor]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Concatenate ids and masks of all batches, padded to the longest: (rows, t) twice."""
    tokens = [batch["input_ids"] for batch in batches]
    masks = [batch["attention_mask"] for batch in batches]
    if len(batches) == 1:
        return tokens[0], masks[0]
    length = max(part.shape[1] for part in tokens)
    return (
        torch.cat([F.pad(part, (0, length - part.shape[1]), value=pad_id) for part in tokens]),
        torch.cat([F.pad(part, (0, length - part.shape[1])) for part in masks]),
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
    parameters = (parameter for name, parameter in student.named_parameters() if not name.startswith("learned."))
    if not any(parameter.requires_grad for parameter in parameters):
        raise InputError(
            "[mixing] frozen_encoder = true: neither pooler nor heads have weights, so nothing would be trained; "
            "give a task head linear or mlp"
        )


def _columns(setup: TaskSetup) -> int:
    return 2 if setup.task.is_pair else 1


def _module_name(task: str) -> str:
    """Return the module name of a task's head; a task may be named "keys", which is a method of ModuleDict."""
    return f"task_{task}"
