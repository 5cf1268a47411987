"""The base of all trainers: Hugging Face's Trainer with our batches, dev score, gradient caching and CUDA graphs.

The parts of the loss are logged. A non-finite loss or gradient stops the training before anything is written, a
checkpoint of another training raises an error, and nothing is printed, which only the command line does.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainingArguments

from layerwise.errors import InputError, TrainingError
from layerwise.objectives import world_size
from layerwise.train.loop.checkpoints import last_checkpoint
from layerwise.train.loop.grad_cache import cached_backward
from layerwise.train.loop.graphs import GraphedEncode
from layerwise.train.loop.student import BaseStudent

Scorer = Callable[[], dict[str, float]]


class BaseTrainer(Trainer):
    """Trains a student.

    Args:
        student: The model with its loss.
        arguments: The arguments of Hugging Face's Trainer.
        batches: Padded batches, iterated once per epoch.
        scorer: Returns the student's current dev metrics by name.
        chunk: Gradient caching with this many rows at a time; 0: off.
        graphs: Runs the encoder by CUDA graphs.
        options: Options of Hugging Face's Trainer, such as callbacks.
    """

    def __init__(
        self,
        student: BaseStudent,
        arguments: TrainingArguments,
        batches: Iterable[Any],
        *,
        scorer: Scorer | None = None,
        chunk: int = 0,
        graphs: GraphedEncode | None = None,
        **options: Any,
    ) -> None:
        rows: dict[str, Any] = {"train_dataset": batches}
        rows |= {"eval_dataset": batches} if scorer else {}  # the host requires one
        super().__init__(model=student, args=arguments, **rows, **options)
        self.remove_callback(PrinterCallback)
        self.student = student
        self.batches = batches
        self.scorer = scorer
        self.chunk = chunk
        self.graphs = graphs
        if graphs is not None:
            student.encode_pass = graphs
        self._parts: dict[str, tuple[Tensor | float, int]] = {}
        self._recent_losses = _RecentLosses()

    def get_train_dataloader(self) -> Any:
        """Return the batches, which are already padded, ordered and sharded."""
        return self.batches

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Run the forward and backward pass. The loss is stored to check later that it is finite."""
        if self.chunk:
            loss = self._cached_step(model, inputs)
        else:
            loss = super().training_step(model, inputs, num_items_in_batch)
        self._recent_losses.add(loss, self.state.global_step + 1)
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """Compute the student's loss; its parts are accumulated for the log."""
        return self._loss(model(self.student_batch(inputs)))

    def student_batch(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the student's input for a batch."""
        return inputs

    def _cached_step(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Run a step with gradient caching; average gradients over the processes, as no DDP hook runs."""
        model.train()
        batch = self.student_batch(self._prepare_inputs(inputs))
        precision = self.accelerator.autocast  # the host wraps only `forward` in it
        output = cached_backward(self.student, batch, chunk=self.chunk, precision=precision)
        if world_size() > 1:
            for parameter in self.student.parameters():
                if parameter.grad is not None:
                    torch.distributed.all_reduce(parameter.grad)
                    parameter.grad /= world_size()
        return self._loss(output)

    def _loss(self, output: Mapping[str, Any]) -> Tensor:
        """Return the loss of an output; accumulate its parts until the next log, each over the steps that have it."""
        for name, value in output["parts"].items():
            total, steps = self._parts.get(name, (0.0, 0))
            self._parts[name] = (total + value, steps + 1)
        loss: Tensor = output["loss"]
        return loss

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Move inputs to the device; for CUDA graphs, first pad them to one of a few lengths."""
        padded = inputs if self.graphs is None else self.graphs.padded(inputs)
        prepared: dict[str, Any] = super()._prepare_inputs(padded)
        return prepared

    def _prepare_input(self, data: Any) -> Any:
        """Move data to the device asynchronously."""
        if isinstance(data, Tensor) and self.args.device.type == "cuda":
            return data.pin_memory().to(self.args.device, non_blocking=True)
        return super()._prepare_input(data)

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """Log the parts of the loss too if there are several."""
        if "loss" in logs:
            if len(self._parts) > 1:
                logs |= {f"loss_{name}": float(total) / steps for name, (total, steps) in self._parts.items()}
            self._parts = {}
        super().log(logs, *arguments, **options)

    def _maybe_log_save_evaluate(self, tr_loss: Tensor, grad_norm: Any, *arguments: Any, **options: Any) -> None:
        """Stop the training at a non-finite loss or gradient, before anything is written."""
        control = self.control
        if control.should_log or control.should_save or control.should_evaluate:
            step = self._recent_losses.first_not_finite()
            if step is not None:
                raise TrainingError(self._not_a_number("loss", step))
            if grad_norm is not None and not math.isfinite(grad_norm):  # nor would the weights be
                raise TrainingError(self._not_a_number("gradient", self.state.global_step))
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *arguments, **options)

    def _not_a_number(self, what: str, step: int) -> str:
        checkpoint = last_checkpoint(Path(str(self.args.output_dir)))
        last = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was written before"
        finer = ", or set precision float32" if self.args.bf16 else ""
        return f"the {what} is not a number at step {step}; {last}; lower the learning rate{finer}, in another folder"

    def _run_epoch(self, *arguments: Any, **options: Any) -> None:
        """Skip the step that the host would run when a finished training is resumed."""
        if self.state.global_step < self.state.max_steps and not self._out_of_patience:
            super()._run_epoch(*arguments, **options)  # type: ignore[no-untyped-call]

    @property
    def _out_of_patience(self) -> bool:
        callbacks = self.callback_handler.callbacks
        stopping = [callback for callback in callbacks if isinstance(callback, EarlyStoppingCallback)]
        return any(
            callback.early_stopping_patience_counter >= callback.early_stopping_patience for callback in stopping
        )

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:
        """Score the student by `scorer` instead of the host's evaluation loop."""
        if self.scorer is None:
            return {}
        self.student.eval()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self.scorer().items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        """Save the student's weights; tied tensors are written once."""
        folder = Path(str(output_dir or self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.student, str(folder / "model.safetensors"))

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Raise for a checkpoint that does not match; it contains one name of tied tensors."""
        state = self.student.state_dict()
        missing = set(load_result.missing_keys)
        loaded = {tensor.data_ptr() for name, tensor in state.items() if name not in missing}
        lacking = sorted(name for name in missing if state[name].data_ptr() not in loaded)
        if lacking or load_result.unexpected_keys:
            problem = f"lacks {lacking[0]}" if lacking else f"holds {load_result.unexpected_keys[0]}"
            raise InputError(f"{self.args.output_dir}: its checkpoint {problem}; it is of another recipe or encoder")


class _RecentLosses:
    """The losses since the last check, kept on the device to avoid synchronisation."""

    def __init__(self) -> None:
        self._losses: list[tuple[int, Tensor]] = []

    def add(self, loss: Tensor, step: int) -> None:
        """Store the loss of a step."""
        self._losses.append((step, loss.detach()))

    def first_not_finite(self) -> int | None:
        """Return the first step with a non-finite loss since the last check, and clear the losses."""
        if not self._losses:
            return None
        finite = torch.isfinite(torch.stack([loss for _, loss in self._losses])).tolist()
        steps = [step for step, _ in self._losses]
        self._losses = []
        return next((step for step, good in zip(steps, finite, strict=True) if not good), None)
