"""The student: an encoder that is trained in place, a pooler and a head, built from [model] settings."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder, plain_dropout
from layerwise.errors import InputError, MixError
from layerwise.mixes import Mix, parse_mix
from layerwise.model import Head
from layerwise.train.loop.settings import BaseModelSettings

_STD = 0.02  # as BERT's layers are initialised
Encoded = dict[str, Tensor]  # rows are the first dimension, so that batches can be split and concatenated


@dataclass(frozen=True, kw_only=True)
class EncoderPass:
    """One pass of texts through the encoder.

    Attributes:
        rows: The number of rows of each part of the pass, by name, in their order.
        tokens: Token ids, (n, t).
        mask: 1 for tokens, 0 for padding, (n, t).
        places: The pooled tokens of texts in a prompt, (n, 3).
        templates: The numbers of the prompt templates encoded with the texts for denoising, (k,).
        dropout: The rate of the encoder's dropout modules in this pass; None: unchanged.
    """

    rows: Mapping[str, int]
    tokens: Tensor
    mask: Tensor
    places: Tensor | None = None
    templates: Tensor | None = None
    dropout: float | None = None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of `BaseStudent.encode`; templates require places."""
        tensors = (self.tokens, self.mask, self.places, self.templates)
        return tuple(tensor for tensor in tensors if tensor is not None)

    def split(self, encoded: Encoded) -> dict[str, Encoded]:
        """Split the outputs of the pass by part."""
        if len(self.rows) == 1:
            return dict.fromkeys(self.rows, encoded)
        split = {name: torch.split(tensor, list(self.rows.values())) for name, tensor in encoded.items()}
        return {part: {name: tensors[i] for name, tensors in split.items()} for i, part in enumerate(self.rows)}


class BaseStudent(nn.Module):
    """Encoder, pooler and head as one module. Subclasses define the passes of a batch and the loss.

    A step consists of `passes` (the inputs of the encoder), `encode` (of each pass) and `loss`; gradient caching and
    CUDA graphs replace `encode` for any student.

    Args:
        encoder: The encoder, whose model is trained in place.
        pooler: The resolved mix that computes embeddings; attention includes its network.
        head: Applied after the pooler, or identity.
    """

    encoded_names: Sequence[str] = ("embeddings",)

    def __init__(self, encoder: LayerEncoder, pooler: Mix, head: nn.Module) -> None:
        super().__init__()
        if encoder.backend != "torch":
            raise InputError("Training needs the torch backend, not ONNX")
        self._encoder = (encoder,)  # in a tuple, as its model is a submodule already: `backbone`
        self.backbone = encoder.model
        self.pooler = pooler
        self.attention = pooler.fitted if pooler.is_learned else None
        self.head = head
        self.encode_pass: Callable[[EncoderPass], Encoded] = self.run_pass  # or a faster implementation
        self._parameters_list: list[nn.Parameter] = []

    @abstractmethod
    def passes(self, batch: Mapping[str, Any]) -> Sequence[EncoderPass]:
        """Return the encoder passes of a batch."""

    @abstractmethod
    def encode(self, *inputs: Any, **options: Any) -> Encoded:
        """Encode the inputs of a pass to tensors by the names in `encoded_names`, each with n rows."""

    @abstractmethod
    def loss(self, encoded: Mapping[str, Encoded], batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scalar "loss" of the joint batch of all processes, and its "parts", detached values by name.

        `encoded` holds the parts of all passes, by name.
        """

    def forward(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the loss of a batch and its parts, see `loss`."""
        encoded: dict[str, Encoded] = {}
        for encoder_pass in self.passes(batch):
            encoded |= encoder_pass.split(self.encode_pass(encoder_pass))
        return self.loss(encoded, batch)

    def run_pass(self, encoder_pass: EncoderPass) -> Encoded:
        """Encode a pass with its dropout rate."""
        with dropout_set(self.backbone, encoder_pass.dropout):
            return self.encode(*encoder_pass.inputs)

    @property
    def encoder(self) -> LayerEncoder:
        """The trained encoder."""
        return self._encoder[0]

    def train(self, mode: bool = True) -> Self:
        """Set the mode only if it changes, as visiting hundreds of modules at every step takes milliseconds."""
        return self if self.training == mode else super().train(mode)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients, from a list of parameters that is collected once."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        self._parameters_list = self._parameters_list or list(self.parameters())
        for parameter in self._parameters_list:
            parameter.grad = None


class NewLayers(NamedTuple):
    """Pooler and head for an encoder, with new weights; the head maps `in_features` to `width`."""

    pooler: Mix
    head: nn.Module
    in_features: int
    width: int


def new_layers(settings: BaseModelSettings, encoder: LayerEncoder, *, seed: int) -> NewLayers:
    """Set the encoder's dropout and build pooler and head, the pooler with `seed`, the head with `seed + 1`."""
    set_dropout(encoder.model, settings.dropout)
    pooler = new_pooler(settings.pooler, encoder, seed=seed)
    in_features = pooler.width(encoder.width)
    width = settings.width or (encoder.width if settings.head != "none" else in_features)
    head = new_head(settings.head, in_features, width, seed=seed + 1).to(encoder.device)
    return NewLayers(pooler, head, in_features, width)


def new_pooler(mix: str, encoder: LayerEncoder, *, seed: int) -> Mix:
    """Parse a mix and resolve it for an encoder; attention gets a new network."""
    try:
        pooler: Mix = parse_mix(mix).resolve(encoder.depth)
    except MixError as error:
        raise MixError(f"[model] pooler {mix!r} of {encoder.name}: {error}") from error
    pooler = pooler.fresh(encoder.width, seed=seed)
    if pooler.is_learned and pooler.fitted is not None:
        pooler.fitted.to(encoder.device)
    return pooler


def new_head(kind: str, in_features: int, width: int, *, seed: int) -> nn.Module:
    """Build a head (n, in_features) -> (n, width): "mlp" (tanh), "linear", "identity" (linear), "mlp-bn", "none"."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "none":
        return nn.Identity()
    if kind == "mlp-bn":
        return _batch_norm_head(in_features, width, generator)
    if kind == "identity":
        return Head(torch.eye(width, in_features), torch.zeros(width), activation="identity")
    weight = torch.empty(width, in_features).normal_(std=_STD, generator=generator)
    return Head(weight, torch.zeros(width), activation="tanh" if kind == "mlp" else "identity")


def _batch_norm_head(in_features: int, width: int, generator: torch.Generator) -> nn.Module:
    """DiffCSE's projector: two linear layers without biases, each followed by batch norm, with ReLU between."""
    network = nn.Sequential(
        nn.Linear(in_features, 2 * width, bias=False),
        nn.BatchNorm1d(2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, width, bias=False),
        nn.BatchNorm1d(width, affine=False),
    )
    for layer in (network[0], network[3]):
        weight: Tensor = layer.weight  # type: ignore[assignment]
        nn.init.normal_(weight, std=_STD, generator=generator)
    return network


def set_dropout(model: nn.Module, rate: float | None) -> None:
    """Set the rate of every dropout module and of a decoder's attention; None leaves them unchanged."""
    if rate is not None:
        for module in _dropout_modules(model):
            module.p = rate
        for attention in plain_dropout(model):
            attention.attention_dropout = rate


@contextmanager
def dropout_set(model: nn.Module, rate: float | None) -> Iterator[None]:
    """Set the rate of every dropout module inside the context; None leaves them unchanged.

    Attention that stores its rate as a number as in ModernBERT is left unchanged.
    """
    rates = {module: module.p for module in (_dropout_modules(model) if rate is not None else ())}
    plain = [(module, module.attention_dropout) for module in (plain_dropout(model) if rate is not None else ())]
    try:
        set_dropout(model, rate)
        yield
    finally:
        for module, previous in rates.items():
            module.p = previous
        for attention, previous in plain:
            attention.attention_dropout = previous


def _dropout_modules(model: nn.Module) -> list[nn.Dropout]:
    return [module for module in model.modules() if isinstance(module, nn.Dropout)]


def freeze(student: nn.Module, backbone: nn.Module, names: Sequence[str]) -> None:
    """Freeze the named parts and the encoder's unused pooler; raise for trained weights not in float32."""
    if "embeddings" in names:
        named = getattr(backbone, "embeddings", None)
        (named if isinstance(named, nn.Module) else backbone.get_input_embeddings()).requires_grad_(False)  # type: ignore[operator]
    unused = getattr(backbone, "pooler", None)
    if isinstance(unused, nn.Module):
        unused.requires_grad_(False)
    for parameter in student.parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise InputError(
                "weights are trained in float32; load the encoder with dtype float32 (bf16 is by autocast)"
            )
