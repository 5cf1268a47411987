"""Settings that every kind of training has: encoder and pooler, the optimiser, when to evaluate."""

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from layerwise.errors import InputError
from layerwise.mixes import parse_mix
from layerwise.settings import Settings

Rate = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class BaseModelSettings(Settings):
    """Encoder, pooler and head.

    Attributes:
        encoder: A folder or hub name.
        pooler: The mix that makes the embedding in training: "last @ cls", "first-last @ mean",
            "last @ cls | last @ mean", "attention(cls, mean, last=cls)", …
        head: Applied after the pooler: "mlp" (linear and tanh), "linear" (a projection), "identity" (the same,
            begun at the identity), "mlp-bn" (DiffCSE's two layers with batch norm), "none".
        width: The head's output width; by default the encoder's.
        freeze: "embeddings", or nothing.
        dropout: The encoder's dropout rate in training; by default as configured in the encoder.
    """

    label: ClassVar[str] = "[model]"
    encoder: str = ""
    pooler: str = "last @ cls"
    head: Literal["none", "mlp", "linear", "identity", "mlp-bn"] = "none"
    width: Annotated[int, Field(ge=1)] | None = None
    freeze: tuple[Literal["embeddings"], ...] = ()
    dropout: Rate | None = None

    @model_validator(mode="after")
    def _check_pooler(self) -> Self:
        check_trainable(self.pooler)
        if self.width is not None and self.head in ("none", "mlp-bn"):
            raise InputError("width is the head's; give head mlp, linear or identity")
        return self


def check_trainable(mix: str) -> None:
    """Raise for a mix that cannot be trained."""
    if parse_mix(mix).reads_tokens:
        raise InputError(f"{mix!r} cannot be trained: WK has no parameters; choose another mix")


class OptimiserSettings(Settings):
    """How the weights are updated.

    Attributes:
        epochs: Passes over the data. "auto" is one; of multitask training with little data as many as make 500 steps.
        steps: Stop after this many steps, whatever `epochs` says; a streamed corpus needs it.
        batch_size: Rows per process and step.
        chunk: Gradient caching: run the encoder over this many sentences at a time, for batches beyond memory; 0: off.
        learning_rate: The highest value of the schedule.
        warmup: The share of the steps over which the learning rate rises.
        schedule: How it falls afterwards.
        weight_decay: AdamW's, not applied to biases and norms.
        betas: AdamW's.
        max_grad_norm: Gradients are clipped to this norm; 0: no clipping.
        precision: "bf16" (autocast; weights stay float32), "tf32" (faster float32 products on NVIDIA GPUs; for small
            models faster than bf16, which converts much) or "float32". A CPU always uses float32.
        cuda_graphs: On one GPU, launch the encoder's pass as a CUDA graph: several times faster for small models.
    """

    label: ClassVar[str] = "[train]"
    epochs: Positive | Literal["auto"] = "auto"
    steps: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=2)] = 64
    chunk: Annotated[int, Field(ge=0)] = 0
    learning_rate: Positive = 3e-5
    warmup: Rate = 0.0
    schedule: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear"
    weight_decay: NotNegative = 0.0
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    max_grad_norm: NotNegative = 1.0
    precision: Literal["float32", "tf32", "bf16"] = "bf16"
    cuda_graphs: bool = True


class EvalSchedule(Settings):
    """When the model is evaluated on dev rows, and when losses are logged.

    Attributes:
        every: Steps between evaluations.
        patience: Stop after this many evaluations without a better score; 0: never.
        log_every: Steps between logged losses.
    """

    label: ClassVar[str] = "[dev]"
    every: Annotated[int, Field(ge=1)] = 125
    patience: Annotated[int, Field(ge=0)] = 0
    log_every: Annotated[int, Field(ge=1)] = 25


class BaseRecipe(Settings):
    """Everything that decides a training but the seed. A kind of training adds its data and what it learns.

    Attributes:
        name: What results call it.
        about: One sentence.
        reached: The score it reached, on which hardware, in what time.
        model: Encoder, pooler and head.
        train: How the weights are updated.
        dev: When to evaluate.
    """

    label: ClassVar[str] = ""
    name: str
    about: str = ""
    reached: str = ""
    model: BaseModelSettings = BaseModelSettings()
    train: OptimiserSettings = OptimiserSettings()
    dev: EvalSchedule = EvalSchedule()

    def facts(self) -> dict[str, Any]:
        """All settings, for JSON and the model card."""
        return self.model_dump()

    def with_absolute_paths(self) -> Self:
        """Return the recipe with existing paths made absolute, so that a run can be resumed from any folder."""
        return self.replaced(model=self.model.replaced(encoder=absolute(self.model.encoder)))

    def without_description(self) -> Self:
        """Return the recipe without name, about and reached, which do not affect training."""
        return self.replaced(name="", about="", reached="")


def absolute(name: str) -> str:
    """Return the absolute path of an existing file or folder; other names, such as hub names, are unchanged."""
    path = Path(name).expanduser()
    return os.path.abspath(path) if name and path.exists() else name  # noqa: PTH100 - links keep their names


def absolute_task_file(name: str) -> str:
    """Return the absolute path of a task file; task names are unchanged even if a file has that name."""
    return absolute(name) if name.endswith(".toml") else name
