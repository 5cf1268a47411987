"""The trainer of contrastive training, with frozen views and a penalty on the distance to the initial weights.

It uses Hugging Face's Trainer instead of sentence-transformers', whose losses get one forward pass per column and no
layers; ours runs all columns in one pass and reads every layer from it.
"""

from typing import Any

from torch import Tensor, nn
from transformers import TrainingArguments

from layerwise.objectives import add_pull_to_start
from layerwise.train.contrastive.batches import Batches, EndlessBatches
from layerwise.train.contrastive.frozen import Frozen
from layerwise.train.contrastive.student import Student
from layerwise.train.loop.trainer import BaseTrainer


class ContrastiveTrainer(BaseTrainer):
    """Trains a student on batches of texts.

    Args:
        student: The model with its loss.
        arguments: The arguments of Hugging Face's Trainer.
        batches: The training batches.
        frozen: Returns the frozen copy's views of a batch.
        pull: λ of λ‖θ − θ₀‖² on the encoder's weights.
        columns: How many of a batch's columns the student reads.
        options: Options of `BaseTrainer`.
    """

    student: Student

    def __init__(
        self,
        student: Student,
        arguments: TrainingArguments,
        batches: Batches | EndlessBatches,
        *,
        frozen: Frozen | None = None,
        pull: float = 0.0,
        columns: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(student, arguments, batches, **options)
        self.frozen = frozen
        self.pull = pull
        self.columns = columns
        trained = [parameter for parameter in student.backbone.parameters() if parameter.requires_grad]
        self._trained = trained if pull else []
        self._start = [parameter.detach().clone() for parameter in self._trained]

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Run the backward pass and add the gradient of the penalty."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self.pull:
            add_pull_to_start(self._trained, self._start, strength=self.pull)
        return loss

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Add the template numbers of the batch's texts, while the batch is still on the CPU."""
        denoiser = self.student.denoiser
        if denoiser is not None:
            read = self.columns * len(inputs["rows"])
            templates = denoiser.templates_of(inputs["attention_mask"][:read], inputs["places"][:read])
            inputs = {**inputs, "templates": templates}
        return super()._prepare_inputs(inputs)

    def student_batch(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the student's input: the columns that it reads, and the frozen views of the rows."""
        read = self.columns * len(inputs["rows"])
        return {
            "input_ids": inputs["input_ids"][:read],
            "attention_mask": inputs["attention_mask"][:read],
            "rows": inputs["rows"],
            "places": inputs["places"][:read] if "places" in inputs else None,
            "templates": inputs.get("templates"),
            "frozen": None if self.frozen is None else self.frozen(inputs),
        }
