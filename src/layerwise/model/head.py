"""A linear layer with an activation behind the mix: an MLP head, or (without activation) any linear map."""

from torch import Tensor, nn

from layerwise.errors import ModelError

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
        bias: (out,), or nothing. Both are kept in float32, as pooled vectors are.
        activation: One of `ACTIVATIONS`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, activation: str = "tanh") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ModelError(f"Unknown activation {activation!r}. Known: {', '.join(ACTIVATIONS)}")
        if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
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
    def out_features(self) -> int:
        """The width of what comes out."""
        return self.linear.out_features

    def forward(self, embeddings: Tensor) -> Tensor:
        """(..., in) -> (..., out)"""
        outputs: Tensor = self._function(self.linear(embeddings))
        return outputs
