"""What listens to the trainer: the log file, when it is written, and a progress line for the command line."""

import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from layerwise.files import plain_json

Told = Callable[[int, int, dict[str, float]], object]


class MetricsFile(TrainerCallback):
    """Every log as one line of JSON, with its step; what is no number is null.

    A resumed run cuts what lies behind its checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Keep the lines up to the step that the run goes on from."""
        if not state.is_world_process_zero:
            return
        kept = [line for line in self._lines() if _step(line) <= state.global_step]
        self.path.write_text("".join(f"{line}\n" for line in kept if state.global_step), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:  # noqa: ARG002
        """Append."""
        if state.is_world_process_zero and logs and "train_runtime" not in logs:
            facts = {"step": state.global_step} | _epoch(state.global_step, given.get("train_dataloader"))
            line = facts | {name: value for name, value in logs.items() if name != "epoch"}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain_json(line)) + "\n")

    def _lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []


class LogAtLooks(TrainerCallback):
    """Losses are logged at every look at the dev rows too, where a run may stop, and at the end."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Besides the steps that the host logs."""
        control.should_log |= control.should_evaluate or state.global_step >= state.max_steps


class Progress(TrainerCallback):
    """Tells a function the step, the number of steps, and the latest figures."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.latest: dict[str, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """After every step."""
        self.told(state.global_step, state.max_steps, self.latest)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Remember losses and dev scores."""
        self.latest |= {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}


def _step(line: str) -> float:
    """The step of a line; a killed run may leave half a line, which is behind every checkpoint."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return inf


def _epoch(step: int, batches: Any) -> dict[str, float]:
    """How many epochs are done, from the step: the host's own count starts anew where a run is resumed."""
    return {"epoch": round(step / len(batches), 4)} if hasattr(batches, "__len__") and len(batches) else {}


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a metrics file."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
