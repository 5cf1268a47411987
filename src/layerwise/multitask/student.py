"""The multitask student: encoder, shared pooler and a head a task as one module."""

from collections.abc import Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.mixes import LayerMix
from layerwise.multitask.joined import joined, stacked
from layerwise.multitask.losses import contrast_loss, task_loss
from layerwise.multitask.second_view import dropout_set
from layerwise.multitask.weights import LearnedWeights, weighted_loss
from layerwise.predict import TaskHead, TaskSetup
from layerwise.train.loop.student import BaseStudent as Learner

_GPU_PADDING = 1.5  # a pass for several tasks may have so many times the tokens of a pass each


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

    Tasks share an encoder pass as far as `most_padding` goes: see `layerwise.multitask.joined`.
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
        self.most_padding = _GPU_PADDING if encoder.device.type == "cuda" else 1.0
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
        present = {name: batches[name] for name, weight in self.weights.items() if weight and name in batches}
        first, second = self.encode_tasks(present), self._second_views(present)
        parts: dict[str, Tensor] = {}
        totals: list[Tensor | None] = []
        for name in self.weights:
            setup = self.head_of(name).setup
            found = self._task_parts(setup, batches[name], first[name], second.get(name)) if name in present else {}
            totals.append(_total(found, setup.objective.contrast))
            parts |= {name if part == "supervised" else f"{name}_{part}": value for part, value in found.items()}
        loss = self.learned(totals) if self.learned else weighted_loss(totals, list(self.weights.values()))
        return {"loss": loss, "parts": {name: value.detach() for name, value in parts.items()}}

    def _task_parts(
        self, setup: TaskSetup, batch: Mapping[str, Tensor], first: Tensor, second: Tensor | None
    ) -> dict[str, Tensor]:
        """The supervised loss of a batch and, where there is a second view, the contrast."""
        seen = first if setup.objective.supervised else first.detach()
        columns = seen.chunk(2) if setup.task.is_pair else (seen,)
        with torch.autocast(first.device.type, enabled=False):
            outputs = self.head_of(setup.name)(*columns)
        found = {"supervised": task_loss(outputs, batch["targets"], self.losses[setup.name], kept=batch["kept"])}
        if second is not None:
            found["contrast"] = contrast_loss(
                first, second, batch["kept"], columns=len(columns), temperature=setup.objective.contrast_temperature
            )
        return found

    def _second_views(self, batches: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Another dropout pass over the tasks that have a contrastive term, those of one rate together."""
        rates = {
            name: objective.contrast_dropout
            for name in batches
            if (objective := self.head_of(name).setup.objective).contrast
        }
        found: dict[str, Tensor] = {}
        for rate in dict.fromkeys(rates.values()):
            with dropout_set(self.backbone, rate):
                found |= self.encode_tasks({name: batches[name] for name, own in rates.items() if own == rate})
        return found

    def encode_tasks(self, batches: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Embeddings of each task's texts, (columns·b, width), in as few passes as padding allows."""
        pad_id = int(self.encoder.tokenizer.pad_token_id or 0)
        sizes = {name: len(batch["input_ids"]) for name, batch in batches.items()}
        shapes = {name: (rows, batches[name]["input_ids"].shape[1]) for name, rows in sizes.items()}
        found: dict[str, Tensor] = {}
        for names in joined(shapes, most=self.most_padding):
            embeddings = self.encode(*stacked([batches[name] for name in names], pad_id))
            parts = torch.split(embeddings, [sizes[name] for name in names])
            found |= zip(names, parts, strict=True)
        return found

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
