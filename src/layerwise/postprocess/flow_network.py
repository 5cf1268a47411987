"""An invertible network on vectors, after Glow (Kingma & Dhariwal 2018), for flows.

Each block is an ActNorm (a scale and a shift for every dimension), a fixed permutation of the dimensions, and a
coupling, which shifts one half of them by the output of a small MLP on the other half. All layers are invertible, and
the logarithm of the determinant is a sum, so that the likelihood of a vector can be computed.
"""

import math
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layerwise.errors import ModelError
from layerwise.registry import check_known

Coupling = Literal["additive", "affine"]
_MIN_SPREAD = 1e-6  # relative to the largest standard deviation, so that constant dimensions do not explode


class ActNorm(nn.Module):
    """`(x + shift) * exp(log_scale)`, initialised so that the data has mean 0 and variance 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(width))
        self.log_scale = nn.Parameter(torch.zeros(width))

    @torch.no_grad()
    def start_at(self, vectors: Tensor) -> None:
        """Set mean and standard deviation from data: (rows, width)."""
        spread = vectors.std(dim=0, correction=0)
        self.shift.copy_(-vectors.mean(dim=0))
        self.log_scale.copy_(-torch.log(spread.clamp_min(_MIN_SPREAD * spread.amax() + 1e-30)))

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, width) -> same shape, and the log-determinant (rows,)."""
        return (vectors + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(vectors))

    def inverse(self, vectors: Tensor) -> Tensor:
        """The inverse: (rows, width) -> (rows, width)."""
        return vectors * torch.exp(-self.log_scale) - self.shift


class CouplingLayer(nn.Module):
    """Shift the second half of the dimensions (`affine`: also scale it) by the output of an MLP on the first half.

    The MLP's last layer is initialised to 0, so that a new flow only normalises.
    """

    def __init__(self, width: int, hidden: int, coupling: Coupling) -> None:
        super().__init__()
        self.affine = coupling == "affine"
        self.first = width // 2
        second = width - self.first
        last = nn.Linear(hidden, second * (2 if self.affine else 1))
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.mlp = nn.Sequential(nn.Linear(self.first, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), last)

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, width) -> same shape, and the log-determinant (rows,)."""
        first, second = vectors[:, : self.first], vectors[:, self.first :]
        shift, log_scale = self._shift_and_scale(first)
        return torch.cat([first, (second + shift) * log_scale.exp()], dim=1), log_scale.sum(dim=1)

    def inverse(self, vectors: Tensor) -> Tensor:
        """The inverse: (rows, width) -> (rows, width)."""
        first, second = vectors[:, : self.first], vectors[:, self.first :]
        shift, log_scale = self._shift_and_scale(first)
        return torch.cat([first, second * torch.exp(-log_scale) - shift], dim=1)

    def _shift_and_scale(self, first: Tensor) -> tuple[Tensor, Tensor]:
        output = self.mlp(first)
        if not self.affine:
            return output, torch.zeros_like(output)
        shift, raw = output.chunk(2, dim=1)
        return shift, F.logsigmoid(raw + 2.0) - F.logsigmoid(raw.new_tensor(2.0))  # initially 0, bounded above


class FlowBlock(nn.Module):
    """ActNorm, permutation, coupling."""

    permutation: Tensor

    def __init__(self, width: int, hidden: int, coupling: Coupling) -> None:
        super().__init__()
        self.norm = ActNorm(width)
        self.register_buffer("permutation", torch.randperm(width))
        self.coupling = CouplingLayer(width, hidden, coupling)

    def start_at(self, vectors: Tensor) -> None:
        """Initialise the ActNorm from data: (rows, width)."""
        self.norm.start_at(vectors)

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, width) -> same shape, and the log-determinant (rows,)."""
        normed, norm_log_det = self.norm(vectors)
        coupled, log_det = self.coupling(normed[:, self.permutation])
        return coupled, norm_log_det + log_det

    def inverse(self, vectors: Tensor) -> Tensor:
        """The inverse: (rows, width) -> (rows, width)."""
        normed: Tensor = self.norm.inverse(self.coupling.inverse(vectors)[:, torch.argsort(self.permutation)])
        return normed


class FlowNetwork(nn.Module):
    """A sequence of blocks and a final ActNorm.

    Args:
        width: The width of the vectors, 2 or more.
        blocks: The number of blocks.
        hidden: The width of each block's MLP.
        coupling: "additive", or "affine" for scales too.
    """

    def __init__(self, width: int, *, blocks: int, hidden: int, coupling: Coupling) -> None:
        super().__init__()
        check_known(coupling, get_args(Coupling), "coupling")
        if width < 2 or blocks < 1 or hidden < 1:
            raise ModelError(f"A flow needs width 2, 1 block and 1 hidden or more, not {width}, {blocks}, {hidden}")
        self.width, self.hidden = width, hidden
        self.coupling: Coupling = coupling
        self.blocks = nn.ModuleList(FlowBlock(width, hidden, coupling) for _ in range(blocks))
        self.norm = ActNorm(width)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments for a network of the same shape."""
        return {"width": self.width, "blocks": len(self.blocks), "hidden": self.hidden, "coupling": self.coupling}

    @torch.no_grad()
    def start_at(self, vectors: Tensor) -> None:
        """Initialise every ActNorm from the data that reaches it: (rows, width)."""
        for step in self._steps():
            step.start_at(vectors)
            vectors, _ = step(vectors)

    def forward(self, vectors: Tensor) -> Tensor:
        """(..., width) -> (..., width)"""
        return self.with_log_det(vectors.reshape(-1, self.width))[0].reshape(vectors.shape)

    def with_log_det(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, width) -> same shape, and the logarithm of the Jacobian's determinant (rows,)."""
        total = vectors.new_zeros(len(vectors))
        for step in self._steps():
            vectors, log_det = step(vectors)
            total = total + log_det
        return vectors, total

    def inverse(self, vectors: Tensor) -> Tensor:
        """The inverse: (rows, width) -> (rows, width)."""
        for step in reversed(self._steps()):
            vectors = step.inverse(vectors)
        return vectors

    def log_likelihood(self, vectors: Tensor) -> Tensor:
        """The log-density in nats with a standard normal prior: (rows, width) -> (rows,)."""
        latent, log_det = self.with_log_det(vectors)
        return log_det - 0.5 * (latent.square().sum(dim=1) + self.width * math.log(2 * math.pi))

    def _steps(self) -> list[FlowBlock | ActNorm]:
        return [*cast("list[FlowBlock]", list(self.blocks)), self.norm]
