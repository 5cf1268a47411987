"""Checks of an objective's inputs: of shapes and plain numbers, never of a tensor's values."""

from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from layerwise.errors import InputError


def check_rows(**tensors: Tensor) -> None:
    """Refuse tensors that are not (rows, width), are empty or differ in width; errors have their names."""
    for name, tensor in tensors.items():
        check_shape(name, tensor, ("rows", "width"))
    check_widths(**tensors)


def check_shape(name: str, tensor: Tensor, axes: Sequence[str]) -> None:
    """Refuse a tensor without these axes, or with an empty one."""
    if tensor.ndim != len(axes) or not tensor.numel():
        expected = f"({', '.join(axes)})"
        raise InputError(f"{name}: the shape is {tuple(tensor.shape)}; expected {expected}, each at least 1")


def check_widths(**tensors: Tensor) -> None:
    """Refuse vectors of different widths, which have no cosine."""
    widths = {name: tensor.shape[-1] for name, tensor in tensors.items()}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise InputError(f"The widths differ: {listed}; give vectors of one width")


def check_same_shape(**tensors: Tensor) -> None:
    """Refuse tensors of different shapes."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InputError(f"The shapes differ: {listed}; give tensors of one shape")


def check_mask(ignored: Tensor, logits: Tensor) -> None:
    """Refuse a mask that is not a bool for each logit."""
    check_same_shape(ignored=ignored, logits=logits)
    if ignored.dtype != torch.bool:
        raise InputError(f"ignored: {ignored.dtype} came; expected bool, True for what is left out")


def check_positives(anchors: Tensor, positives: Tensor) -> None:
    """Refuse fewer positives than anchors."""
    if len(positives) < len(anchors):
        raise InputError(
            f"{len(positives)} positives for {len(anchors)} anchors; row i of the positives is anchor i's, so give at "
            f"least {len(anchors)}"
        )


def check_above_zero(name: str, value: float) -> None:
    """Refuse a temperature or weight that is 0, negative, infinite or not a number."""
    if not 0 < value < inf:
        raise InputError(f"{name} {value} is not possible; give a number above 0")
