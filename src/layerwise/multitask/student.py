"""The multitask student: encoder, shared pooler and a head a task as one module; one encoder pass a task and step."""

from collections.abc import Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.mixes import LayerMix
from layerwise.multitask.heads import TaskHead
from layerwise.multitask.losses import task_loss
from layerwise.multitask.second_view import dropout_set
from layerwise.multitask.task import TaskSettings
from layerwise.multitask.weights import LearnedWeights, weighted_loss
from layerwise.objectives import info_nce
from layerwise.train.learner import Learner


class MultitaskStudent(Learner):
    """What the trainer trains.

    Args:
        encoder: Its model is trained in place.
        pooler: The mix that makes embeddings, resolved; attention has its network.
        head: Behind the pooler and before every task's head, or identity.
        heads: By the task's name.
        losses: Each task's loss by its name: "cross-entropy", "binary" or "mse".
        weights: Each task's; one of weight 0 is not computed.
        learned: Instead of the weights.
        frozen_encoder: The encoder stays as it is, in eval mode.
    """

    def __init__(
        self,
        encoder: LayerEncoder,
        pooler: LayerMix,
        head: nn.Module,
        heads: Mapping[str, TaskHead],
        losses: Mapping[str, str],
        weights: Mapping[str, float],
        *,
        learned: LearnedWeights | None = None,
        frozen_encoder: bool = False,
    ) -> None:
        super().__init__(encoder, pooler, head)
        self.heads = nn.ModuleDict({_module(name): own for name, own in heads.items()})
        self.losses = dict(losses)
        self.weights = dict(weights)
        self.learned = learned
        self.frozen_encoder = frozen_encoder
        self.eval()  # a fresh module calls itself training, whatever mode its encoder is in

    def head_of(self, task: str) -> TaskHead:
        """A task's own head."""
        return cast(TaskHead, self.heads[_module(task)])

    def train(self, mode: bool = True) -> Self:
        """Only a change of mode goes through the modules; a frozen encoder never leaves eval mode."""
        if self.training != mode:
            super().train(mode)
            if self.frozen_encoder:
                self.backbone.eval()
        return self

    def forward(self, batches: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
        """The loss of a step, a batch by task (see `MultitaskBatches`), and each task's parts of it."""
        parts: dict[str, Tensor] = {}
        totals: list[Tensor | None] = []
        for name in self.weights:
            batch = batches.get(name) if self.weights[name] else None
            found = {} if batch is None else self._task_parts(self.head_of(name).settings, batch)
            totals.append(_total(found, self.head_of(name).settings.contrast))
            parts |= {name if part == "supervised" else f"{name}_{part}": value for part, value in found.items()}
        loss = self.learned(totals) if self.learned else weighted_loss(totals, list(self.weights.values()))
        return {"loss": loss, "parts": {name: value.detach() for name, value in parts.items()}}

    def _task_parts(self, task: TaskSettings, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The supervised loss of a batch and, where it is asked for, the contrast between two dropout passes."""
        embeddings = self.encode(batch["input_ids"], batch["attention_mask"])
        seen = embeddings if task.supervised else embeddings.detach()
        columns = seen.chunk(2) if task.is_pair else (seen,)
        with torch.autocast(embeddings.device.type, enabled=False):
            outputs = self.head_of(task.name)(*columns)
        found = {"supervised": task_loss(outputs, batch["targets"], self.losses[task.name], kept=batch["kept"])}
        if task.contrast:
            found["contrast"] = self._contrast(task, batch, embeddings)
        return found

    def _contrast(self, task: TaskSettings, batch: Mapping[str, Tensor], first: Tensor) -> Tensor:
        """SimCSE over the texts of a batch without its padding: every other text is a negative."""
        with dropout_set(self.backbone, task.contrast_dropout):
            second = self.encode(batch["input_ids"], batch["attention_mask"])
        kept = batch["kept"].repeat(2 if task.is_pair else 1)
        return info_nce(first[kept], second[kept], temperature=task.contrast_temperature)

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """One pass: (n, t) twice -> embeddings behind the shared head, (n, width)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen_encoder):
            views = self.encoder.read(tokens, mask, self.pooler.layers, self.pooler.poolings)
        with torch.autocast(views.device.type, enabled=False):
            embeddings: Tensor = self.head(self.pooler.combine_poolings(views.float()))
        return embeddings


def _total(parts: Mapping[str, Tensor], contrast: float) -> Tensor | None:
    """A task's loss, before its weight; None where it is not in the step."""
    if not parts:
        return None
    return parts["supervised"] + contrast * parts["contrast"] if "contrast" in parts else parts["supervised"]


def _module(task: str) -> str:
    """What a task's head is called among the modules: a task may be named "keys", which a ModuleDict has already."""
    return f"task_{task}"
