"""Callbacks of the trainer: the metrics file, when losses are logged, and progress for the command line."""

import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from transformers import EarlyStoppingCallback, TrainerCallback

from layerwise.checksums import write_checksums
from layerwise.files import plain_json

METRICS = "metrics.jsonl"
OnStep = Callable[[int, int, dict[str, float]], object]


def make_callbacks(folder: Path, on_step: OnStep | None, *, patience: int) -> list[TrainerCallback]:
    """Create the callbacks: metrics file, logging at evaluations, checksums, progress, and early stopping."""
    callbacks: list[TrainerCallback] = [LogAtEvaluation(), Checksums(), MetricsFile(folder / METRICS)]
    if on_step is not None:
        callbacks.append(Progress(on_step))
    if patience:
        callbacks.append(EarlyStoppingCallback(early_stopping_patience=patience))
    return callbacks


class MetricsFile(TrainerCallback):
    """Writes every log entry as a line of JSON with its step; NaN becomes null.

    A resumed run removes the lines after its checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Keep only the lines up to the step from which the run resumes."""
        if not state.is_world_process_zero:
            return
        lines = [line for line in self._lines() if _step(line) <= state.global_step]
        self.path.write_text("".join(f"{line}\n" for line in lines if state.global_step), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **options: Any) -> None:  # noqa: ARG002
        """Append a line."""
        if state.is_world_process_zero and logs and "train_runtime" not in logs:
            place = {"step": state.global_step} | _epoch(state.global_step, options.get("train_dataloader"))
            line = place | {name: value for name, value in logs.items() if name != "epoch"}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain_json(line)) + "\n")

    def _lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []


class Checksums(TrainerCallback):
    """Writes checksums of every checkpoint, which a resumed run verifies."""

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Write the checksums of a saved checkpoint."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            others = [path.name for path in folder.glob("rng_state_*")]  # other processes may be writing theirs
            write_checksums(folder, without=others)


class LogAtEvaluation(TrainerCallback):
    """Also logs losses at every evaluation, where a run may stop, and at the last step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Request a log entry in addition to the host's."""
        control.should_log |= control.should_evaluate or state.global_step >= state.max_steps


class Progress(TrainerCallback):
    """Calls a function with the step, the number of steps, and the latest metrics."""

    def __init__(self, on_step: OnStep) -> None:
        self.on_step = on_step
        self.latest: dict[str, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Call the function."""
        self.on_step(state.global_step, state.max_steps, self.latest)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Remember losses and dev scores."""
        self.latest |= {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics file."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def _step(line: str) -> float:
    """Return the step of a line; infinity for an incomplete line of a killed run."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return inf


def _epoch(step: int, batches: Any) -> dict[str, float]:
    """Return the epoch of a step, as the host's count restarts from 0 in a resumed run."""
    return {"epoch": round(step / len(batches), 4)} if hasattr(batches, "__len__") and len(batches) else {}
