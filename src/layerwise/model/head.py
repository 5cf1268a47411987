"""Heads after the mix: a linear layer with an optional activation, or a flow."""

from collections.abc import Sequence
from typing import TypeAlias

from torch import Tensor, nn

from layerwise.errors import ModelError
from layerwise.postprocess import FlowNetwork, Postprocess
from layerwise.registry import check_known

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
}


class Head(nn.Module):
    """`activation(weight @ x + bias)`.

    Args:
        weight: (out, in).
        bias: (out,), or nothing. Both are stored in float32, as pooled vectors are.
        activation: One of `ACTIVATIONS`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, activation: str = "tanh") -> None:
        super().__init__()
        check_known(activation, ACTIVATIONS, "activation")
        if weight.ndim != 2 or not weight.numel() or (bias is not None and bias.shape != weight.shape[:1]):
            shapes = f"{tuple(weight.shape)} and {None if bias is None else tuple(bias.shape)}"
            raise ModelError(f"A head needs a weight (out, in) and a bias (out,); these are {shapes}")
        weight, bias = weight.float(), None if bias is None else bias.float()
        self.activation = activation
        self.linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        self.linear.weight = nn.Parameter(weight.detach().clone())
        if bias is not None:
            self.linear.bias = nn.Parameter(bias.detach().clone())
        self._function = ACTIVATIONS[activation]()

    @property
    def in_features(self) -> int:
        """The width of what goes in."""
        return self.linear.in_features

    @property
    def out_features(self) -> int:
        """The width of what comes out."""
        return self.linear.out_features

    def forward(self, embeddings: Tensor) -> Tensor:
        """(..., in) -> (..., out)"""
        outputs: Tensor = self._function(self.linear(embeddings))
        return outputs


class FlowHead(nn.Module):
    """A fitted flow in float32, whose weights are not trained."""

    activation = "flow"

    def __init__(self, network: FlowNetwork) -> None:
        super().__init__()
        self.network = network.float().requires_grad_(False).eval()

    @property
    def in_features(self) -> int:
        """The width of what goes in."""
        return self.network.width

    @property
    def out_features(self) -> int:
        """The width of what comes out, the same."""
        return self.network.width

    def forward(self, embeddings: Tensor) -> Tensor:
        """(..., width) -> (..., width)"""
        outputs: Tensor = self.network(embeddings)
        return outputs


AnyHead: TypeAlias = Head | FlowHead


def head_of(fitted: Postprocess) -> AnyHead:
    """Convert a fitted transformation of embeddings to a head, native if it is linear."""
    module = fitted.module()
    if isinstance(module, nn.Linear):
        return Head(module.weight, module.bias, activation="identity")
    if isinstance(module, FlowNetwork):
        return FlowHead(module)
    raise ModelError(f"{type(fitted).__name__} gives a {type(module).__name__}; known are Linear and FlowNetwork")


def check_widths(width: int, heads: Sequence[AnyHead]) -> None:
    """Raise for heads whose widths do not match each other or the mix."""
    for head in heads:
        if head.in_features != width:
            raise ModelError(f"A head takes {head.in_features} numbers, but what comes before it gives {width}")
        width = head.out_features
