"""The engine: Hugging Face's Trainer around a `Student`.

Why this trainer and not sentence-transformers' own: that one hands a loss one forward pass for each column and no
layers; ours runs all columns in one pass and takes every layer from it. Checkpoints, resuming, schedules, mixed
precision, early stopping, TensorBoard and torchrun/accelerate come from the Trainer; batches, the loss, the dev score
and the watch over the loss (`watched.py`) are ours.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from layerwise.objectives import add_pull_to_start, world_size
from layerwise.train.batches import Batches
from layerwise.train.frozen import Frozen
from layerwise.train.grad_cache import cached_backward
from layerwise.train.graphs import GraphedEncode
from layerwise.train.passes import Passes
from layerwise.train.student import Student
from layerwise.train.watched import Scorer, WatchedTrainer


class LayerTrainer(WatchedTrainer):
    """Trains a student on batches; see the module's words.

    Args:
        student: The model with its loss.
        arguments: The host's.
        batches: What is trained on.
        scorer: The dev score of the student as it is now: metrics by name.
        frozen: Gives the frozen copy's views of a batch.
        pull: λ of λ‖θ − θ₀‖² on the encoder's weights.
        chunk: Gradient caching by so many rows; 0: off.
        columns: How many of a batch's columns the student reads.
        graphs: Run the encoder by CUDA graphs.
        options: Callbacks and the like, for the host.
    """

    def __init__(
        self,
        student: Student,
        arguments: TrainingArguments,
        batches: Batches | Passes,
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
            student.run = graphs
        trained = [parameter for parameter in student.backbone.parameters() if parameter.requires_grad]
        self._trained = trained if pull else []
        self._start = [parameter.detach().clone() for parameter in self._trained]

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One step: the loss backwards, and the pull to the start."""
        if self.chunk:
            loss = self._cached_step(model, inputs)
            self.watch(loss)
        else:
            loss = super().training_step(model, inputs, num_items_in_batch)
        if self.pull:
            add_pull_to_start(self._trained, self._start, strength=self.pull)
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """The loss on what the student reads of a batch."""
        return super().compute_loss(model, self._student_inputs(inputs))

    def _student_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """What the student reads: its own columns, and the frozen views of the rows."""
        read = self.columns * len(inputs["rows"])
        return {
            "input_ids": inputs["input_ids"][:read],
            "attention_mask": inputs["attention_mask"][:read],
            "rows": inputs["rows"],
            "frozen": None if self.frozen is None else self.frozen(inputs),
        }

    def _cached_step(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Gradient caching; gradients are averaged over the processes here, for no DDP hook runs."""
        model.train()
        given = self._student_inputs(self._prepare_inputs(inputs))
        tokens, mask, rows, frozen = (given[name] for name in ("input_ids", "attention_mask", "rows", "frozen"))
        precision = self.accelerator.autocast  # the host wraps only `forward` in it
        found = cached_backward(self.student, tokens, mask, len(rows), frozen, chunk=self.chunk, precision=precision)
        if world_size() > 1:
            for parameter in self.student.parameters():
                if parameter.grad is not None:
                    torch.distributed.all_reduce(parameter.grad)
                    parameter.grad /= world_size()
        self.note(found["parts"])
        loss: Tensor = found["loss"]
        return loss

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """On the device; for graphs with lengths that come up again."""
        found: dict[str, Any] = super()._prepare_inputs(inputs if self.graphs is None else self.graphs.padded(inputs))
        return found
