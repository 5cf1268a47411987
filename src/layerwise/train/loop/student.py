"""The student: the encoder that is trained in place, a pooler and a head, built from [model] settings."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError, MixError
from layerwise.mixes import LayerAttention, LayerMix, parse_mix
from layerwise.model import Head
from layerwise.train.loop.settings import ModelSettings

_STD = 0.02  # as BERT's layers are initialised


class BaseStudent(nn.Module):
    """Encoder, pooler and head as one module; a subclass adds the loss.

    Its `forward` takes a batch and returns a dict of "loss", a scalar, and "parts", named values of its terms.

    Args:
        encoder: Its model is trained in place.
        pooler: The mix that makes embeddings, resolved; attention has its network.
        head: Applied after the pooler, or identity.
    """

    def __init__(self, encoder: LayerEncoder, pooler: LayerMix, head: nn.Module) -> None:
        super().__init__()
        if encoder.backend != "torch":
            raise InputError("Training needs the torch backend, not ONNX")
        self._encoder = (encoder,)  # in a tuple: its model is a submodule already, as `backbone`
        self.backbone = encoder.model
        self.pooler = pooler
        self.attention = pooler.network if isinstance(pooler, LayerAttention) else None
        self.head = head
        self._parameters_list: list[nn.Parameter] = []

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


def new_layers(settings: ModelSettings, encoder: LayerEncoder, *, seed: int) -> NewLayers:
    """Set the encoder's dropout and make pooler and head, the pooler by `seed`, the head by `seed + 1`."""
    set_dropout(encoder, settings.dropout)
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
    """(n, in_features) -> (n, width): "mlp" (tanh), "linear", "mlp-bn", "none"."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "none":
        return nn.Identity()
    if kind == "mlp-bn":
        return _batch_norm_head(in_features, width, generator)
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


def set_dropout(encoder: LayerEncoder, rate: float | None) -> None:
    """Set the rate of every dropout module; None leaves them unchanged."""
    if rate is not None:
        for module in encoder.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = rate


def freeze(student: nn.Module, backbone: nn.Module, names: Sequence[str]) -> None:
    """Freeze the named parts, and a pooler of the encoder's, which no loss reaches; refuse weights of low precision."""
    if "embeddings" in names:
        backbone.get_submodule("embeddings").requires_grad_(False)
    unused = getattr(backbone, "pooler", None)
    if isinstance(unused, nn.Module):
        unused.requires_grad_(False)
    for parameter in student.parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise InputError(
                "weights are trained in float32; load the encoder with dtype float32 (bf16 is by autocast)"
            )
