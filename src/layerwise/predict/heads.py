"""The head of a task: embeddings to logits, or to a number on the task's scale."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from layerwise.errors import InputError
from layerwise.objectives import check_rows, check_same_shape, full_dtype, own_cosines
from layerwise.predict.objective import FEATURES, TaskSetup
from layerwise.registry import check_known

_STD = 0.02  # as in BERT
_PARTS = {"concat": 2, "difference-sum": 2, "all": 4}


def pair_features(u: Tensor, v: Tensor, kind: str) -> Tensor:
    """Combine two embeddings to the features of a head. (n, d), (n, d) -> (n, 2d) or (n, 4d)

    "concat" [u; v], "difference-sum" [|u−v|; |u+v|], which is the same for (v, u), "all" [u; v; |u−v|; u·v].
    """
    check_known(kind, FEATURES, "features")
    check_same_shape(u=u, v=v)
    if kind == "concat":
        return torch.cat([u, v], dim=-1)
    if kind == "difference-sum":
        return torch.cat([(u - v).abs(), (u + v).abs()], dim=-1)
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


def on_scale(values: Tensor, scale: tuple[float, float], *, lowest: float) -> Tensor:
    """Map lowest..1 linearly to low..high, values outside alike. In float32 at least. (n,) -> (n,)"""
    low, high = scale
    return (values.to(full_dtype(values)) - lowest) / (1 - lowest) * (high - low) + low


class TaskHead(nn.Module):
    """Maps embeddings of a task's columns to (n, outputs) logits, or (n,) for a single output.

    For sts that number is on the task's scale, whose highest score is an output of 1. The lowest is a cosine of 0:
    sentences that have nothing in common are at right angles, and training them apart to -1 would cost what the encoder
    knows. For a network it is -1, so that a fresh one starts in the middle. The cosine is computed in float32 at least.
    """

    def __init__(self, setup: TaskSetup, network: nn.Module) -> None:
        super().__init__()
        self.setup = setup
        self.network = network

    def forward(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        """Compute logits: (n, width), for pairs twice -> (n, outputs) or (n,)"""
        if (v is not None) != self.setup.task.is_pair:
            actual, expected = (1, 2) if v is None else (2, 1)
            raise InputError(f"task {self.setup.name!r} takes {expected} column(s) of embeddings; {actual} came")
        check_rows(u=u, v=u if v is None else v)
        outputs = self._outputs(u, v)
        outputs = outputs.squeeze(-1) if outputs.shape[-1] == 1 else outputs
        if self.setup.task.has_classes:
            return outputs
        return on_scale(outputs, self.setup.scale, lowest=0.0 if self.setup.head == "cosine" else -1.0)

    def _outputs(self, u: Tensor, v: Tensor | None) -> Tensor:
        """(n, outputs)"""
        if v is not None and self.setup.head == "cosine":
            return own_cosines(u, v.unsqueeze(1))
        outputs: Tensor = self.network(u if v is None else pair_features(u, v, self.setup.objective.features))
        return outputs


def task_head(setup: TaskSetup, width: int, outputs: int, *, seed: int) -> TaskHead:
    """Build a new head for embeddings of this width: weights N(0, 0.02) by the seed, biases 0.

    Heads of one shape and seed start with equal weights, so give each task another seed.
    """
    if not setup.task.has_classes and outputs != 1:
        raise InputError(f"task {setup.name!r}: {setup.task.kind} has one number a row, not {outputs}")
    if setup.head == "cosine":
        return TaskHead(setup, nn.Identity())
    wide = width * (_PARTS[setup.objective.features] if setup.task.is_pair else 1)
    widths = [wide, outputs] if setup.head == "linear" else [wide, width, width, outputs]
    return TaskHead(setup, _network(widths, setup.objective.dropout, torch.Generator().manual_seed(seed)))


def _network(widths: list[int], dropout: float, generator: torch.Generator) -> nn.Module:
    """Linear layers, dropout before each and ReLU between: (n, widths[0]) -> (n, widths[-1])."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        linear = nn.Linear(wide, narrow)
        nn.init.normal_(linear.weight, std=_STD, generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [*([nn.ReLU()] if layers else []), nn.Dropout(dropout), linear]
    return nn.Sequential(*layers)
