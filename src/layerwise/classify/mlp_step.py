"""One step of many small networks at once: a hidden layer of sigmoids, cross-entropy, Adam. All have a leading axis."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

_DECAY1, _DECAY2, _SMALL = 0.9, 0.999, 1e-8  # Adam's


@dataclass(frozen=True)
class Networks:
    """Weights (models, hidden, width), (models, hidden), (models, classes, hidden), (models, classes)."""

    parameters: tuple[Tensor, Tensor, Tensor, Tensor]

    @classmethod
    def drawn(cls, models: int, width: int, hidden: int, classes: int, *, seed: int) -> Self:
        """As `torch.manual_seed(seed)` and two `nn.Linear` draw them; the same for all, as SentEval has it."""
        random = torch.Generator().manual_seed(seed)
        shapes = ((hidden, width), (hidden,), (classes, hidden), (classes,))
        ends = (width**-0.5, width**-0.5, hidden**-0.5, hidden**-0.5)
        drawn = [
            torch.empty(shape).uniform_(-end, end, generator=random) for shape, end in zip(shapes, ends, strict=True)
        ]
        a, b, c, d = (values.expand(models, *values.shape).clone() for values in drawn)
        return cls((a, b, c, d))

    def __getitem__(self, kept: Tensor | int) -> Self:
        """Some of them, copied."""
        a, b, c, d = (values[kept] for values in self.parameters)
        return type(self)((a, b, c, d))

    def to(self, device: torch.device) -> Self:
        """The same elsewhere."""
        a, b, c, d = (values.to(device) for values in self.parameters)
        return type(self)((a, b, c, d))

    def zeros(self) -> Self:
        """Of the same shapes."""
        a, b, c, d = (torch.zeros_like(values) for values in self.parameters)
        return type(self)((a, b, c, d))

    def hidden(self, rows: Tensor) -> Tensor:
        """(models, b, width) -> (models, b, hidden)"""
        weights, offsets = self.parameters[:2]
        return torch.baddbmm(offsets[:, None], rows, weights.mT).sigmoid_()

    def scores(self, hidden: Tensor) -> Tensor:
        """(models, b, hidden) -> (models, b, classes)"""
        weights, offsets = self.parameters[2:]
        return torch.baddbmm(offsets[:, None], hidden, weights.mT)

    def gradients(self, rows: Tensor, targets: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the cross-entropy. Rows (models, b, width), targets (models, b), share (models, b): a row's weight."""
        hidden = self.hidden(rows)
        errors = self.scores(hidden).softmax(-1)
        errors.scatter_add_(-1, targets[..., None], -torch.ones_like(share)[..., None])
        errors *= share[..., None]
        back = torch.bmm(errors, self.parameters[2]).mul_(hidden * (1 - hidden))
        return torch.bmm(back.mT, rows), back.sum(1), torch.bmm(errors.mT, hidden), errors.sum(1)


@dataclass(frozen=True)
class Training:
    """Networks with Adam's moments. A step changes all of them in place."""

    networks: Networks
    first: Networks
    second: Networks
    steps: Tensor
    """(models,)"""
    decay: Tensor
    """(models,): weight decay, which torch's Adam adds to the gradient."""
    rate: float

    @classmethod
    def begin(cls, networks: Networks, decay: Tensor, rate: float) -> Self:
        """Before the first step."""
        return cls(networks, networks.zeros(), networks.zeros(), torch.zeros_like(decay), decay, rate)

    def __getitem__(self, kept: Tensor) -> Self:
        """Some of them."""
        networks, first, second = (part[kept] for part in (self.networks, self.first, self.second))
        return type(self)(networks, first, second, self.steps[kept], self.decay[kept], self.rate)

    def step(self, rows: Tensor, targets: Tensor, share: Tensor) -> None:
        """A model without a row in its batch (a share of 0 for all) stays as it is."""
        active = (share > 0).any(1).to(rows.dtype)
        self.steps.add_(active)
        taken = self.steps.clamp_min(1)
        gradients = self.networks.gradients(rows, targets, share)
        groups = zip(self.networks.parameters, self.first.parameters, self.second.parameters, gradients, strict=True)
        for weights, first, second, slope in groups:
            models = (-1,) + (1,) * (weights.ndim - 1)
            on = active.view(models)
            slope += self.decay.view(models) * weights
            first.add_((slope - first).mul_((1 - _DECAY1) * on))
            second.add_((slope.square_() - second).mul_((1 - _DECAY2) * on))
            scale = (1 - _DECAY2**taken).sqrt().view(models)
            length = (self.rate / (1 - _DECAY1**taken)).view(models) * on
            weights.sub_(length * first / (second.sqrt().div_(scale).add_(_SMALL)))
