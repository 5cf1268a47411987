"""The checkpoints of a training folder, the one to resume from, and disk errors."""

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from layerwise.checksums import changed_files
from layerwise.errors import InputError, TrainingError

log = logging.getLogger(__name__)
_REASON = 200  # characters of a library's error text


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint; the trainer state is written last."""
    complete = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    numbered = {int(number): path for path in complete if (number := path.name.rsplit("-", 1)[-1]).isdecimal()}
    return numbered[max(numbered)] if numbered else None


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step of a checkpoint."""
    try:
        return int(json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["global_step"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{checkpoint}: is damaged; remove it to resume from an earlier checkpoint") from error


def checkpoint_to_resume(folder: Path, *, resume: bool) -> Path | None:
    """Create the folder of a training and return the checkpoint to resume from, if any."""
    checkpoint = last_checkpoint(folder)
    if checkpoint is not None and not resume:
        raise InputError(f"{folder}: holds checkpoints of a training; resume with --resume, or give another folder")
    for path in folder.glob("checkpoint-*") if checkpoint is not None else ():  # the best is loaded at the end
        if changed := changed_files(path):
            raise InputError(
                f"{path / changed[0]}: is damaged: its checksum differs; remove {path} to resume from an earlier "
                f"checkpoint, or from the beginning"
            )
    if resume and checkpoint is None:
        log.warning("%s: no checkpoint to resume from; the training starts from the beginning", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created: {error.strerror}; give another folder") from error
    return checkpoint


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a finished training."""
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Convert the errors that torch and safetensors raise for a full or lost disk to one line."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):
            raise
        reason = " ".join(str(error).split())[:_REASON]
        raise TrainingError(
            f"{folder}: cannot be written: {reason}; free some space, then resume with the same command and --resume"
        ) from error
