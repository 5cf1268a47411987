"""A recipe as the host trainer's arguments, and what it leaves on disk."""

import json
import os
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import PartialState  # type: ignore[import-untyped]
from transformers import TrainingArguments

from layerwise.errors import InputError
from layerwise.objectives import world_size
from layerwise.train.settings import ModelSettings, OptimiserSettings


class Looks(Protocol):
    """When to look at the dev set, and to log."""

    @property
    def every(self) -> int:
        """Steps between looks."""

    @property
    def log_every(self) -> int:
        """Steps between logged losses."""


class AnyRecipe(Protocol):
    """What the host wants to know of a recipe, of whatever kind."""

    @property
    def name(self) -> str:
        """For errors."""

    @property
    def model(self) -> ModelSettings:
        """The encoder among them."""

    @property
    def train(self) -> OptimiserSettings:
        """How weights are changed."""

    @property
    def dev(self) -> Looks:
        """When to look."""


def host_arguments(
    recipe: AnyRecipe, folder: Path, device: torch.device, *, seed: int, metric: str | None
) -> TrainingArguments:
    """The arguments of Hugging Face's Trainer that a recipe stands for. Under torchrun processes find each other."""
    join_processes(device.type)
    train, dev = recipe.train, recipe.dev
    looks: dict[str, Any] = {"eval_strategy": "no", "save_strategy": "steps", "save_steps": dev.every}
    if metric:
        looks |= {
            "eval_strategy": "steps",
            "eval_steps": dev.every,
            "metric_for_best_model": metric,
            "greater_is_better": True,
            "load_best_model_at_end": True,
        }
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=train.epochs,
        max_steps=train.steps or -1,
        per_device_train_batch_size=train.batch_size,
        learning_rate=train.learning_rate,
        warmup_steps=train.warmup,
        lr_scheduler_type=train.schedule,
        weight_decay=train.weight_decay,
        adam_beta1=train.betas[0],
        adam_beta2=train.betas[1],
        max_grad_norm=train.max_grad_norm,
        bf16=train.precision == "bf16" and device.type != "cpu",
        tf32=True if train.precision == "tf32" and device.type == "cuda" else None,
        optim="adamw_torch_fused",
        seed=seed,
        data_seed=seed,
        use_cpu=device.type == "cpu",
        logging_steps=dev.log_every,
        logging_nan_inf_filter=False,  # it would wait for the GPU at every step, and hide what must stop the training
        save_total_limit=2,
        restore_callback_states_from_checkpoint=True,  # how patient early stopping still is
        ignore_data_skip=True,  # batches skip by themselves, without tokenising what is skipped
        remove_unused_columns=False,
        ddp_find_unused_parameters=world_size() > 1,
        report_to=["tensorboard"] if _has_tensorboard() else [],
        disable_tqdm=True,
        **looks,
    )
    if device.type == "cuda":
        arguments._n_gpu = 1  # one process, one GPU: several GPUs are for torchrun
    return arguments


def join_processes(device: str) -> None:
    """Under torchrun let the processes find each other, before anybody asks for their number."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        PartialState(cpu=device == "cpu")


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that is whole: its state is written last."""
    found = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    numbered = {int(number): path for path in found if (number := path.name.rsplit("-", 1)[-1]).isdecimal()}
    return numbered[max(numbered)] if numbered else None


def steps_done(checkpoint: Path) -> int:
    """The step of a checkpoint."""
    try:
        return int(json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["global_step"])
    except (ValueError, KeyError) as error:
        raise InputError(f"{checkpoint}: damaged; remove it to go on from an earlier checkpoint") from error


def _has_tensorboard() -> bool:
    from importlib.util import find_spec

    return any(find_spec(name) is not None for name in ("tensorboard", "tensorboardX"))
