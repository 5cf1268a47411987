"""What every trainer of ours adds to Hugging Face's: our batches and dev score, parts of the loss, a watch over it.

Nothing of a loss that is no number is ever written, a checkpoint of another training is refused, and only the command
line prints.
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
from layerwise.train.host import last_checkpoint

Scorer = Callable[[], dict[str, float]]


class WatchedTrainer(Trainer):
    """Trains a module whose forward gives "loss" and its "parts".

    Args:
        student: The model with its loss.
        arguments: The host's.
        batches: What is trained on: ready batches, iterated once an epoch.
        scorer: The dev score of the student as it is now: metrics by name.
        options: Callbacks and the like, for the host.
    """

    def __init__(
        self,
        student: nn.Module,
        arguments: TrainingArguments,
        batches: Iterable[Any],
        *,
        scorer: Scorer | None = None,
        **options: Any,
    ) -> None:
        rows: dict[str, Any] = {"train_dataset": batches}
        rows |= {"eval_dataset": batches} if scorer else {}  # the host asks that there be some
        super().__init__(model=student, args=arguments, **rows, **options)
        self.remove_callback(PrinterCallback)  # only the command line prints
        self.student = student
        self.batches = batches
        self.scorer = scorer
        self._parts: dict[str, tuple[Tensor | float, int]] = {}
        self._watched = _Watch()

    def get_train_dataloader(self) -> Any:
        """The batches themselves: they are padded and in order, each process has its own."""
        return self.batches

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One step, its loss remembered."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.watch(loss)
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """The student's loss; its parts are added up for the log."""
        found = model(**inputs)
        self.note(found["parts"])
        loss: Tensor = found["loss"]
        return loss

    def watch(self, loss: Tensor) -> None:
        """Remember a step's loss, to find it where it is no number."""
        self._watched.note(loss, self.state.global_step + 1)

    def _prepare_input(self, data: Any) -> Any:
        """To the device without waiting for it."""
        if isinstance(data, Tensor) and self.args.device.type == "cuda":
            return data.pin_memory().to(self.args.device, non_blocking=True)
        return super()._prepare_input(data)

    def note(self, parts: Mapping[str, Tensor]) -> None:
        """Add up the terms' values until the next log, each over the steps that have it."""
        for name, value in parts.items():
            total, steps = self._parts.get(name, (0.0, 0))
            self._parts[name] = (total + value, steps + 1)

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """The terms' values beside the loss, where there are several."""
        if "loss" in logs:
            if len(self._parts) > 1:
                logs |= {f"loss_{name}": float(total) / steps for name, (total, steps) in self._parts.items()}
            self._parts = {}
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
        finer = ", or take precision float32" if self.args.bf16 else ""
        return f"the {what} is not a number at step {step}; {last}; lower the learning rate{finer}, in another folder"

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
