"""The weights of attention over layers (LayerAttPooler, Oh et al. 2022), and what they compute.

Each layer's query vector asks, each layer's value vector is a key and a value. The authors' code and the paper's
equations differ; both are here:

    softmax  K, Q, V = RReLU(W x). Query i scores layer j by K_j·Q_i / layers; a softmax over j; the mean over i.
    ratio    K, Q, V = W x. alpha_j = Q_j·K_j / sum over all layers (eq. 1), with the values summed by it (eq. 2).
             Their h_i does not depend on i, so that its mean over the layers (eq. 3) is the same again. The ratio has
             no bound where the sum comes near 0, and may be negative.
"""

import torch
from torch import Tensor, nn

from layerwise.digests import tensor_digest
from layerwise.errors import MixError

SCORES = ("softmax", "ratio")
_DEVIATION = 0.02  # of the first weights, as in BERT


class AttentionNetwork(nn.Module):
    """Key, query and value projections of layer views, and the attention over them.

    It computes in the type of its weights, float32 unless the user changes it, also under autocast.

    Args:
        width: The length of a layer's vectors.
        scores: "softmax", the authors' code; "ratio", the paper's equations.
        generator: What draws the first weights from a normal distribution of deviation 0.02; without it, seed 0.

    >>> network = AttentionNetwork(8)
    >>> network(torch.ones(2, 13, 8), torch.ones(2, 13, 8)).shape
    torch.Size([2, 8])
    """

    def __init__(self, width: int, *, scores: str = "softmax", generator: torch.Generator | None = None) -> None:
        super().__init__()
        if scores not in SCORES:
            raise MixError(f"Unknown scores {scores!r} of an attention. Known: {', '.join(SCORES)}")
        self.width, self.scores = width, scores
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        self.key, self.query, self.value = (_linear(width, generator) for _ in range(3))
        self.activation: nn.Module = nn.RReLU() if scores == "softmax" else nn.Identity()

    def forward(self, queries: Tensor, values: Tensor) -> Tensor:
        """The attended vector: two (batch, layers, width) -> (batch, width)"""
        with torch.autocast(values.device.type, enabled=False):
            weights = self._weights(queries, values)
            # the mean over the queries first: a sentence then needs one weighted sum, not one a layer
            shares = weights[:, :1] if self.scores == "ratio" else weights.mean(dim=1, keepdim=True)
            return torch.bmm(shares, self._through(self.value, values)).squeeze(1)

    def weights(self, queries: Tensor, values: Tensor) -> Tensor:
        """How much each query takes of each layer, with a sum of 1; by "ratio", all queries take the same.

        Two (batch, layers, width) -> (batch, queries, layers)
        """
        with torch.autocast(values.device.type, enabled=False):
            return self._weights(queries, values)

    def digest(self) -> str:
        """A hash of everything that decides its results."""
        return tensor_digest(self.state_dict(), label=f"{self.scores} {self.width}")

    def _weights(self, queries: Tensor, values: Tensor) -> Tensor:
        asking, keys = self._through(self.query, queries), self._through(self.key, values)
        if self.scores == "ratio":
            products = (asking * keys).sum(dim=-1)
            ratios = products / products.sum(dim=-1, keepdim=True)
            return ratios.unsqueeze(1).expand(-1, ratios.shape[1], -1)
        return torch.softmax(torch.bmm(asking, keys.transpose(1, 2)) / keys.shape[1], dim=-1)

    def _through(self, linear: nn.Linear, vectors: Tensor) -> Tensor:
        """All layers of all sentences in one matrix product: (batch, layers, width) -> the same"""
        flat: Tensor = self.activation(linear(vectors.to(linear.weight.dtype).flatten(0, 1)))
        return flat.view(vectors.shape)


def _linear(width: int, generator: torch.Generator) -> nn.Linear:
    # made without weights first, for nn.Linear would draw some from the global generator
    linear = nn.Linear(width, width, bias=False, device="meta").to_empty(device="cpu")
    nn.init.normal_(linear.weight, std=_DEVIATION, generator=generator)
    return linear
