"""The engine: Hugging Face's Trainer around a `Student`.

Why this trainer and not sentence-transformers' own: that one hands a loss one forward pass for each column and no
layers; ours runs all columns in one pass and takes every layer from it. Checkpoints, resuming, schedules, mixed
precision, early stopping, TensorBoard and torchrun/accelerate come from the Trainer; batches, the loss, the dev score
and the watch over the loss are ours.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainingArguments

from layerwise.errors import InputError, TrainingError
from layerwise.objectives import add_pull_to_start, world_size
from layerwise.train.batches import Batches
from layerwise.train.frozen import Frozen
from layerwise.train.grad_cache import cached_backward
from layerwise.train.graphs import GraphedEncode
from layerwise.train.host import last_checkpoint
from layerwise.train.passes import Passes
from layerwise.train.student import Student

Scorer = Callable[[], dict[str, float]]


class LayerTrainer(Trainer):
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
        rows: dict[str, Any] = {"train_dataset": batches}
        rows |= {"eval_dataset": batches} if scorer else {}  # the host asks that there be some
        super().__init__(model=student, args=arguments, **rows, **options)
        self.remove_callback(PrinterCallback)  # only the command line prints
        self.student = student
        self.batches = batches
        self.scorer = scorer
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
        self._parts: dict[str, Tensor] = {}
        self._part_steps = 0
        self._watched = _Watch()

    def get_train_dataloader(self) -> Any:
        """The batches themselves: they are padded and in order, each process has its own."""
        return self.batches

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One step: the loss backwards, and the pull to the start."""
        if self.chunk:
            loss = self._cached_step(model, inputs)
        else:
            loss = super().training_step(model, inputs, num_items_in_batch)
        if self.pull:
            add_pull_to_start(self._trained, self._start, strength=self.pull)
        self._watched.note(loss, self.state.global_step + 1)
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """The student's loss; its parts are added up for the log."""
        found = model(**self._student_inputs(inputs))
        self._note(found["parts"])
        loss: Tensor = found["loss"]
        return loss

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
        self._note(found["parts"])
        loss: Tensor = found["loss"]
        return loss

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """On the device; for graphs with lengths that come up again."""
        found: dict[str, Any] = super()._prepare_inputs(inputs if self.graphs is None else self.graphs.padded(inputs))
        return found

    def _prepare_input(self, data: Any) -> Any:
        """To the device without waiting for it."""
        if isinstance(data, Tensor) and self.args.device.type == "cuda":
            return data.pin_memory().to(self.args.device, non_blocking=True)
        return super()._prepare_input(data)

    def _note(self, parts: Mapping[str, Tensor]) -> None:
        if len(parts) > 1:
            self._parts = {name: self._parts.get(name, 0) + value for name, value in parts.items()}
            self._part_steps += 1

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """The terms' values beside the loss."""
        if "loss" in logs and self._parts:
            logs |= {f"loss_{name}": float(value) / self._part_steps for name, value in self._parts.items()}
            self._parts, self._part_steps = {}, 0
        super().log(logs, *arguments, **options)

    def _maybe_log_save_evaluate(self, tr_loss: Tensor, grad_norm: Any, *arguments: Any, **options: Any) -> None:
        """A loss or gradient that is no number stops the training before anything of it is written."""
        control = self.control
        if control.should_log or control.should_save or control.should_evaluate:
            bad = self._watched.first_bad()
            if bad is not None:
                raise TrainingError(self._not_a_number("loss", bad))
            if grad_norm is not None and not math.isfinite(grad_norm):  # else the weights are, and a checkpoint of them
                raise TrainingError(self._not_a_number("gradient", self.state.global_step))
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *arguments, **options)

    def _not_a_number(self, what: str, step: int) -> str:
        kept = last_checkpoint(Path(str(self.args.output_dir)))
        last = f"the last good checkpoint is {kept}" if kept else "no checkpoint was written before"
        return f"the {what} is not a number at step {step}; {last}; lower the learning rate, or take precision float32"

    def _run_epoch(self, *arguments: Any, **options: Any) -> None:
        """Where a finished training is taken up again, no step is left; the host would make one more."""
        if self.state.global_step < self.state.max_steps and not self._out_of_patience:
            super()._run_epoch(*arguments, **options)  # type: ignore[no-untyped-call]

    @property
    def _out_of_patience(self) -> bool:
        stoppers = [one for one in self.callback_handler.callbacks if isinstance(one, EarlyStoppingCallback)]
        return any(one.early_stopping_patience_counter >= one.early_stopping_patience for one in stoppers)

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:
        """The dev score in place of the host's evaluation loop."""
        if self.scorer is None:
            return {}
        self.student.eval()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self.scorer().items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        """The student's weights; tensors that are one and the same (tied words) are written once."""
        folder = Path(str(output_dir or self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.student, str(folder / "model.safetensors"))

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Refuse a checkpoint that does not fit; of tied tensors one name is in it, which is enough."""
        state = self.student.state_dict()
        missing = set(load_result.missing_keys)
        loaded = {tensor.data_ptr() for name, tensor in state.items() if name not in missing}
        lacking = sorted(name for name in missing if state[name].data_ptr() not in loaded)
        if lacking or load_result.unexpected_keys:
            other = f"lacks {lacking[0]}" if lacking else f"holds {load_result.unexpected_keys[0]}"
            raise InputError(f"{self.args.output_dir}: its checkpoint {other}; it is of another recipe or encoder")


class _Watch:
    """Remembers the losses since the last look, on their device, so that no step waits for its number."""

    def __init__(self) -> None:
        self._losses: list[tuple[int, Tensor]] = []

    def note(self, loss: Tensor, step: int) -> None:
        """Keep a step's loss."""
        self._losses.append((step, loss.detach()))

    def first_bad(self) -> int | None:
        """The first step whose loss was not finite, of those since the last look; they are forgotten."""
        if not self._losses:
            return None
        finite = torch.isfinite(torch.stack([loss for _, loss in self._losses])).tolist()
        steps = [step for step, _ in self._losses]
        self._losses = []
        return next((step for step, good in zip(steps, finite, strict=True) if not good), None)
