"""The trainer of contrastive training: frozen views, the pull to the start, gradient caching and CUDA graphs.

Why Hugging Face's Trainer and not sentence-transformers': that one gives a loss one forward pass for each column and no
layers; ours runs all columns in one pass and reads every layer from it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from layerwise.objectives import add_pull_to_start, world_size
from layerwise.train.contrastive.batches import Batches, EndlessBatches
from layerwise.train.contrastive.frozen import Frozen
from layerwise.train.contrastive.grad_cache import cached_backward
from layerwise.train.contrastive.graphs import GraphedEncode
from layerwise.train.contrastive.student import Student
from layerwise.train.loop.trainer import BaseTrainer, Scorer


class ContrastiveTrainer(BaseTrainer):
    """Trains a student on batches of texts.

    Args:
        student: The model with its loss.
        arguments: Of Hugging Face's Trainer.
        batches: What it is trained on.
        scorer: Returns the dev metrics of the student as it is now, by name.
        frozen: Returns the frozen copy's views of a batch.
        pull: λ of λ‖θ − θ₀‖² on the encoder's weights.
        chunk: Gradient caching with this many rows at a time; 0: off.
        columns: How many of a batch's columns the student reads.
        graphs: Run the encoder by CUDA graphs.
        options: For Hugging Face's Trainer, such as callbacks.
    """

    def __init__(
        self,
        student: Student,
        arguments: TrainingArguments,
        batches: Batches | EndlessBatches,
        *,
        scorer: Scorer | None = None,
        frozen: Frozen | None = None,
        pull: float = 0.0,
        chunk: int = 0,
        columns: int = 1,
        graphs: GraphedEncode | None = None,
        **options: Any,
    ) -> None:
        super().__init__(student, arguments, batches, scorer=scorer, **options)
        self.student: Student = student
        self.frozen = frozen
        self.pull = pull
        self.chunk = chunk
        self.columns = columns
        self.graphs = graphs
        if graphs is not None:
            student.encode_batch = graphs
        trained = [parameter for parameter in student.backbone.parameters() if parameter.requires_grad]
        self._trained = trained if pull else []
        self._start = [parameter.detach().clone() for parameter in self._trained]

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One step: the backward pass, and the pull to the start."""
        if self.chunk:
            loss = self._cached_step(model, inputs)
            self.remember_loss(loss)
        else:
            loss = super().training_step(model, inputs, num_items_in_batch)
        if self.pull:
            add_pull_to_start(self._trained, self._start, strength=self.pull)
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """The loss on the columns that the student reads."""
        return super().compute_loss(model, self._student_inputs(inputs))

    def _student_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """What the student reads of a batch: its columns, and the frozen views of the rows."""
        read = self.columns * len(inputs["rows"])
        return {
            "input_ids": inputs["input_ids"][:read],
            "attention_mask": inputs["attention_mask"][:read],
            "rows": inputs["rows"],
            "frozen": None if self.frozen is None else self.frozen(inputs),
        }

    def _cached_step(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """A step by gradient caching; gradients are averaged over the processes here, for no DDP hook runs."""
        model.train()
        prepared = self._student_inputs(self._prepare_inputs(inputs))
        tokens, mask, rows, frozen = (prepared[name] for name in ("input_ids", "attention_mask", "rows", "frozen"))
        precision = self.accelerator.autocast  # the host wraps only `forward` in it
        output = cached_backward(self.student, tokens, mask, len(rows), frozen, chunk=self.chunk, precision=precision)
        if world_size() > 1:
            for parameter in self.student.parameters():
                if parameter.grad is not None:
                    torch.distributed.all_reduce(parameter.grad)
                    parameter.grad /= world_size()
        self.add_parts(output["parts"])
        loss: Tensor = output["loss"]
        return loss

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Move to the device; for CUDA graphs, first pad to one of a few lengths."""
        padded = inputs if self.graphs is None else self.graphs.padded(inputs)
        prepared: dict[str, Any] = super()._prepare_inputs(padded)
        return prepared
