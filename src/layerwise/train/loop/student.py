"""The student: the encoder that is trained in place, a pooler and a head, built from [model] settings."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder, plain_dropout
from layerwise.errors import InputError, MixError
from layerwise.mixes import LayerAttention, LayerMix, parse_mix
from layerwise.model import Head
from layerwise.train.loop.settings import BaseModelSettings

_STD = 0.02  # as BERT's layers are initialised
Encoded = dict[str, Tensor]  # rows first in each, so that batches can be split and concatenated


@dataclass(frozen=True, kw_only=True)
class EncoderPass:
    """Texts that go through the encoder together.

    Attributes:
        rows: The number of rows of each part of the pass, by name, in their order.
        tokens: Token numbers, (n, t).
        mask: 1 for tokens, 0 for padding, (n, t).
        places: Which tokens are pooled, (n, 3), where the texts stand in a prompt.
        templates: Which templates of the prompt go through the encoder with the texts, (k,), where they are denoised.
        dropout: The rate of the encoder's dropout modules in this pass; None: as they are.
    """

    rows: Mapping[str, int]
    tokens: Tensor
    mask: Tensor
    places: Tensor | None = None
    templates: Tensor | None = None
    dropout: float | None = None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What `BaseStudent.encode` takes; templates are of texts that have places."""
        given = (self.tokens, self.mask, self.places, self.templates)
        return tuple(tensor for tensor in given if tensor is not None)

    def split(self, encoded: Encoded) -> dict[str, Encoded]:
        """What the pass returned, by part."""
        if len(self.rows) == 1:
            return dict.fromkeys(self.rows, encoded)
        split = {name: torch.split(tensor, list(self.rows.values())) for name, tensor in encoded.items()}
        return {part: {name: tensors[place] for name, tensors in split.items()} for place, part in enumerate(self.rows)}


class BaseStudent(nn.Module):
    """Encoder, pooler and head as one module. A subclass says how a batch is encoded, and adds the loss.

    A step is `passes` (what goes through the encoder), `encode` (each of them) and `loss`; gradient caching and CUDA
    graphs replace the second for any student.

    Args:
        encoder: Its model is trained in place.
        pooler: The mix that makes embeddings, resolved; attention has its network.
        head: Applied after the pooler, or identity.
    """

    encoded_names: Sequence[str] = ("embeddings",)

    def __init__(self, encoder: LayerEncoder, pooler: LayerMix, head: nn.Module) -> None:
        super().__init__()
        if encoder.backend != "torch":
            raise InputError("Training needs the torch backend, not ONNX")
        self._encoder = (encoder,)  # in a tuple: its model is a submodule already, as `backbone`
        self.backbone = encoder.model
        self.pooler = pooler
        self.attention = pooler.network if isinstance(pooler, LayerAttention) else None
        self.head = head
        self.encode_pass: Callable[[EncoderPass], Encoded] = self.run_pass  # or a faster implementation
        self._parameters_list: list[nn.Parameter] = []

    @abstractmethod
    def passes(self, batch: Mapping[str, Any]) -> Sequence[EncoderPass]:
        """The passes of the encoder that a batch needs."""

    @abstractmethod
    def encode(self, *inputs: Any, **options: Any) -> Encoded:
        """One pass, by `EncoderPass.inputs` -> tensors by the names in `encoded_names`, each with n rows."""

    @abstractmethod
    def loss(self, encoded: Mapping[str, Encoded], batch: Mapping[str, Any]) -> dict[str, Any]:
        """The "loss" of the joint batch of all processes, a scalar, and its "parts", detached values by name.

        `encoded` holds the parts of all passes, by name.
        """

    def forward(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The loss of a batch and its parts, see `loss`."""
        encoded: dict[str, Encoded] = {}
        for encoder_pass in self.passes(batch):
            encoded |= encoder_pass.split(self.encode_pass(encoder_pass))
        return self.loss(encoded, batch)

    def run_pass(self, encoder_pass: EncoderPass) -> Encoded:
        """Encode a pass at its dropout rate."""
        with dropout_set(self.backbone, encoder_pass.dropout):
            return self.encode(*encoder_pass.inputs)

    @property
    def encoder(self) -> LayerEncoder:
        """The encoder that is trained."""
        return self._encoder[0]

    def train(self, mode: bool = True) -> Self:
        """Set the mode where it changes: visiting hundreds of modules at every step takes milliseconds."""
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
    """Pooler and head for an encoder, with new weights; the head maps `in_features` to `width` numbers."""

    pooler: LayerMix
    head: nn.Module
    in_features: int
    width: int


def new_layers(settings: BaseModelSettings, encoder: LayerEncoder, *, seed: int) -> NewLayers:
    """Set the encoder's dropout and make pooler and head, the pooler by `seed`, the head by `seed + 1`."""
    set_dropout(encoder.model, settings.dropout)
    pooler = new_pooler(settings.pooler, encoder, seed=seed)
    in_features = pooler.width(encoder.width)
    width = settings.width or (encoder.width if settings.head != "none" else in_features)
    head = new_head(settings.head, in_features, width, seed=seed + 1).to(encoder.device)
    return NewLayers(pooler, head, in_features, width)


def new_pooler(mix: str, encoder: LayerEncoder, *, seed: int) -> LayerMix:
    """A mix by its text, resolved for an encoder; attention gets a new network."""
    try:
        pooler: LayerMix = parse_mix(mix).resolve(encoder.depth)
    except MixError as error:
        raise MixError(f"[model] pooler {mix!r} of {encoder.name}: {error}") from error
    if isinstance(pooler, LayerAttention):
        pooler = pooler.fresh(encoder.width, seed=seed)
        pooler.trained.to(encoder.device)
    return pooler


def new_head(kind: str, in_features: int, width: int, *, seed: int) -> nn.Module:
    """(n, in_features) -> (n, width): "mlp" (tanh), "linear", "identity" (linear), "mlp-bn", "none"."""
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
    """Set the rate of every dropout module, and restore each at the end; None leaves them unchanged.

    Only modules are set: attention that holds its rate as a plain number (ModernBERT's) is left unchanged.
    """
    rates = {module: module.p for module in (_dropout_modules(model) if rate is not None else ())}
    plain = [(module, module.attention_dropout) for module in (plain_dropout(model) if rate is not None else ())]
    try:
        set_dropout(model, rate)
        yield
    finally:
        for module, before in rates.items():
            module.p = before
        for attention, before in plain:
            attention.attention_dropout = before


def _dropout_modules(model: nn.Module) -> list[nn.Dropout]:
    return [module for module in model.modules() if isinstance(module, nn.Dropout)]


def freeze(student: nn.Module, backbone: nn.Module, names: Sequence[str]) -> None:
    """Freeze the named parts, and a pooler of the encoder's, which no loss reaches; refuse weights of low precision."""
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
