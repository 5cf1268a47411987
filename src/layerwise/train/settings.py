"""Temporary: settings as `layerwise.multitask` has them until it becomes a job of `layerwise.train.loop`.

Use `layerwise.train.loop.settings` in new code.
"""

import math
from dataclasses import dataclass

from layerwise.errors import InputError
from layerwise.mixes import LayerAttention, LayerWk, parse_mix
from layerwise.registry import check_known

HEADS = ("none", "mlp", "linear", "mlp-bn")
PRECISIONS = ("float32", "tf32", "bf16")
SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Encoder, pooler and head.

    Attributes:
        encoder: A folder or hub name.
        pooler: The mix that makes the embedding in training: "last @ cls", "first-last @ mean",
            "last @ cls | last @ mean", "attention(cls, mean, last=cls)", …
        head: Behind the pooler: "mlp" (linear and tanh), "linear" (a projection), "mlp-bn" (DiffCSE's two layers with
            batch norm), "none".
        width: The head's width; the encoder's without it.
        keep_head: Keep the head in the finished model.
        inference: The finished model's mix where it is not the pooler ("train only"), such as "last @ cls".
        freeze: "embeddings", or nothing.
        dropout: Set the encoder's dropout rate in training; its own without it.
    """

    encoder: str = ""
    pooler: str = "last @ cls"
    head: str = "none"
    width: int | None = None
    keep_head: bool = False
    inference: str = ""
    freeze: tuple[str, ...] = ()
    dropout: float | None = None

    def __post_init__(self) -> None:
        check_known(self.head, HEADS, "[model] head")
        for text in (self.pooler, *filter(None, [self.inference])):
            if isinstance(parse_mix(text), LayerWk):
                raise InputError(f"[model] {text!r} can't be trained: WK has nothing to learn by; take another mix")
        if self.inference and isinstance(parse_mix(self.inference), LayerAttention):
            raise InputError(
                "[model] inference is a mix without weights of its own; to keep an attention pooler, leave it out"
            )
        for name in self.freeze:
            check_known(name, ("embeddings",), "[model] freeze")
        if self.keep_head and (self.inference or self.head in ("none", "mlp-bn")):
            raise InputError("[model] keep_head needs head mlp or linear, and the pooler itself at inference")
        if self.width is not None and (self.width < 1 or self.head in ("none", "mlp-bn")):
            raise InputError("[model] width is the head's, 1 or more; give head mlp or linear")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise InputError(f"[model] dropout {self.dropout} is not from 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """How weights are changed.

    Attributes:
        epochs: Passes over the text.
        steps: Stop after so many steps, whatever `epochs` says; a streamed corpus needs it.
        batch_size: Rows a process and step.
        chunk: Gradient caching: run the encoder over so many sentences at a time, for batches beyond memory; 0: off.
        learning_rate: The highest.
        warmup: The share of the steps over which it rises.
        schedule: How it falls.
        weight_decay: AdamW's, not on biases and norms.
        betas: AdamW's.
        max_grad_norm: Gradients are clipped to it; 0: not.
        precision: "bf16" (autocast; weights stay float32), "tf32" (faster products of float32 on NVIDIA GPUs; for small
            models faster than bf16, which converts much) or "float32". A CPU always takes float32.
        cuda_graphs: On one GPU, launch the encoder's pass as a whole: several times faster for small models.
    """

    epochs: float = 1
    steps: int | None = None
    batch_size: int = 64
    chunk: int = 0
    learning_rate: float = 3e-5
    warmup: float = 0.0
    schedule: str = "linear"
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = 1.0
    precision: str = "bf16"
    cuda_graphs: bool = True

    def __post_init__(self) -> None:
        check_known(self.precision, PRECISIONS, "[train] precision")
        check_known(self.schedule, SCHEDULES, "[train] schedule")
        if self.batch_size < 2:
            raise InputError(
                f"[train] batch_size {self.batch_size}: give 2 or more; one-sentence batches have no negatives"
            )
        for name, good, wanted in (
            ("epochs", 0 < self.epochs < math.inf, "a number above 0"),
            ("steps", self.steps is None or self.steps >= 1, "1 or more"),
            ("learning_rate", 0 < self.learning_rate < math.inf, "a number above 0"),
            ("warmup", 0 <= self.warmup < 1, "a share from 0 to below 1"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "0 or more"),
            ("chunk", self.chunk >= 0, "0 or more"),
            ("max_grad_norm", 0 <= self.max_grad_norm < math.inf, "0 or more"),
        ):
            if not good:
                raise InputError(f"[train] {name} {getattr(self, name)}: give {wanted}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"[train] betas are two numbers from 0 to below 1, not {list(self.betas)}")
