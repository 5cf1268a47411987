"""Hugging Face's Trainer as the host: its arguments for a recipe, and its processes under torchrun."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from layerwise.objectives import world_size
from layerwise.train.loop.settings import BaseRecipe


def training_arguments(
    recipe: BaseRecipe, folder: Path, device: torch.device, *, seed: int, metric: str | None, epochs: float
) -> TrainingArguments:
    """Build Hugging Face's training arguments; `metric` selects the best step, None keeps the last."""
    join_processes(device.type)
    train, dev = recipe.train, recipe.dev
    schedule: dict[str, Any] = {"eval_strategy": "no", "save_strategy": "steps", "save_steps": dev.every}
    if metric:
        schedule |= {
            "eval_strategy": "steps",
            "eval_steps": dev.every,
            "metric_for_best_model": metric,
            "greater_is_better": True,
            "load_best_model_at_end": True,
        }
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
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
        logging_nan_inf_filter=False,  # it would synchronise at every step, and hide losses that must stop the training
        save_total_limit=2,
        restore_callback_states_from_checkpoint=True,  # including the counter of early stopping
        ignore_data_skip=True,  # batches skip without tokenising
        remove_unused_columns=False,
        ddp_find_unused_parameters=world_size() > 1,
        report_to=["tensorboard"] if any(map(find_spec, ("tensorboard", "tensorboardX"))) else [],
        disable_tqdm=True,
        **schedule,
    )
    if device.type == "cuda":
        arguments._n_gpu = 1  # one GPU per process; torchrun is for several
    return arguments


def join_processes(device: str) -> None:
    """Under torchrun, initialise the process group before rank or world size are read."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState  # type: ignore[import-untyped]

        PartialState(cpu=device == "cpu")


def wait_for_all() -> None:
    """Wait for the other processes of a training, if any."""
    if world_size() > 1:
        torch.distributed.barrier()


def default_device() -> str | None:
    """Return the GPU of this process under torchrun; otherwise None, which lets the encoder choose."""
    if "LOCAL_RANK" in os.environ and torch.cuda.is_available():
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return None


def device_name(device: torch.device) -> str:
    """Return the name of the hardware, for results."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
