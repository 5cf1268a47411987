"""Sources of similarities: pairs of sentences, by the Gram matrices of their views.

A source computes the similarities of all pairs for any layer weights (`similarities`), and iterates over a space of
sets in pieces of bounded memory (`sweep`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, takewhile
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import InputError
from layerwise.search.forms import Halves, scatter_bits, symmetric, triangle, weighted
from layerwise.search.spaces import Masks, Space, membership
from layerwise.threads import share

Views = NDArray[np.floating[Any]] | Tensor
Piece = tuple[Masks, Tensor]  # sets and their similarities (sets, pairs)
Walk = Callable[[], Iterator[Piece]]  # iterates over a part of a space, in any thread
_GRAM_ELEMENTS = 2**26  # elements of the views whose Gram matrices are computed at once on a GPU
_GRAM_PAIRS = 16  # pairs that a core multiplies at once
_CPU_BLOCK, _GPU_BLOCK = 2**21, 2**26  # elements of a block, beyond which the measured speed levels off
_MAX_UPPER_SETS = 64  # in a walk
_MIN_WALKS = 16  # if there are that many upper sets, so that every core has work
_TINY = 1e-300
_CANCELLED = 1e-13  # a product of squared lengths, relative to its upper bound, below which it is rounding error
_SPARSE = 256  # if a space has fewer than one in so many of all sets, they are enumerated instead
_MAX_FREE = 34  # layers that a set may contain or not, beyond which `Halves` do not help


class Source(Protocol):
    """Similarities by layer weights."""

    @property
    def layers(self) -> int:
        """The number of layers."""

    @property
    def device(self) -> torch.device:
        """The device that computes."""

    def similarities(self, weights: Tensor) -> Tensor:
        """Similarities for any layer weights: (rows, layers) -> (rows, pairs), float64, differentiable"""

    def sweep(self, space: Space) -> Iterator[Walk]:
        """All sets of a space."""


class PairSource(Source, Protocol):
    """A source of similarities of pairs, with subsets."""

    def pick(self, pairs: NDArray[np.integer[Any]]) -> "PairSource":
        """The source on a subset of the pairs."""


@dataclass(frozen=True)
class Grams:
    """Gram matrices of views: (..., layers, layers)"""

    grams: Tensor

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self.grams.shape[-1])

    @property
    def device(self) -> torch.device:
        """The device of the Gram matrices."""
        return self.grams.device


@dataclass(frozen=True)
class PairGrams(Grams):
    """Pairs of sentences as Gram matrices of left · right, left · left and right · right: (3, pairs, l, l)"""

    @classmethod
    def of(cls, left: Views, right: Views, *, device: torch.device | str = "cpu") -> "PairGrams":
        """From the views (pairs, layers, width) of both sides, in float64, chunk by chunk."""
        check_views(left, right)
        grams = _grams_on_cpu(left, right) if torch.device(device).type == "cpu" else _grams_on(device, left, right)
        bad = ~torch.isfinite(grams).all(dim=-1).all(dim=-1).all(dim=0)
        if bool(bad.any()):
            raise InputError(f"The views of pair {int(bad.nonzero()[0])} hold NaN or infinite numbers")
        return cls(grams)

    def __len__(self) -> int:
        return int(self.grams.shape[1])

    @cached_property
    def lengths(self) -> Tensor:
        """The lengths of every layer's vectors, left then right: (2, layers, pairs)"""
        return self.grams[1:].diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt().mT.contiguous()

    @cached_property
    def may_cancel(self) -> bool:
        """Whether the layers of a set could cancel out: not if the layers of every pair are clearly independent.

        With the layers' correlations C, the squared length of a sum is at least C's smallest eigenvalue times the sum
        of the layers' squares; that C minus a margin has a Cholesky factor shows that this eigenvalue is larger.
        """
        scales = self.lengths.mT
        if not bool((scales > _TINY**0.5).all()):
            return True
        correlations = self.grams[1:] / (scales[..., :, None] * scales[..., None, :])
        margin = self.layers * _CANCELLED**0.5
        shift = margin * torch.eye(self.layers, dtype=self.grams.dtype, device=self.device)
        return bool(torch.linalg.cholesky_ex(correlations - shift).info.any())

    def pick(self, pairs: NDArray[np.integer[Any]]) -> "PairGrams":
        """Select pairs."""
        return PairGrams(self.grams[:, torch.from_numpy(np.asarray(pairs)).to(self.device)])

    def similarities(self, weights: Tensor) -> Tensor:
        """Cosines for any weights: (rows, layers) -> (rows, pairs)"""
        forms = weighted(weights.to(self.grams), triangle(self.grams.flatten(0, 1)))
        dots, left, right = torch.split(forms, len(self), dim=1)
        squares = left * right
        cancelled = squares <= _cancellation_bound(weights.detach().to(self.grams), self.lengths)
        return torch.where(cancelled, 0.0, dots / torch.where(cancelled, 1.0, squares).sqrt())

    def sweep(self, space: Space) -> Iterator[Walk]:
        """All sets of a space, by `Halves`."""
        forced, free = space.bits(self.layers)
        if too_sparse(space, self.layers):
            yield from plain_sweep(self, space, rows=max(1, _CPU_BLOCK // len(self) // 8))
            return
        lower = free[: lower_bits(3 * len(self), len(free), self.device)]
        halves = Halves.of(self.grams.flatten(0, 1), (*forced, *free[len(lower) :]), lower)
        for uppers in upper_sets(len(free) - len(lower)):
            yield partial(_walk, halves, uppers, len(forced), space, self.lengths, self.may_cancel)


@dataclass(frozen=True)
class FixedSimilarities:
    """Similarities computed elsewhere, one row per mix, which takes the place of a layer: (mixes, pairs)"""

    table: Tensor

    @property
    def layers(self) -> int:
        """The number of mixes."""
        return len(self.table)

    @property
    def device(self) -> torch.device:
        """The device of the similarities."""
        return self.table.device

    def pick(self, pairs: NDArray[np.integer[Any]]) -> "FixedSimilarities":
        """Select pairs."""
        return FixedSimilarities(self.table[:, torch.from_numpy(np.asarray(pairs)).to(self.device)])

    def similarities(self, weights: Tensor) -> Tensor:
        """Weighted sums of the mixes' similarities: (rows, mixes) -> (rows, pairs)"""
        return weights.to(self.table) @ self.table

    def sweep(self, space: Space) -> Iterator[Walk]:
        """All sets of mixes."""
        yield from plain_sweep(self, space, rows=1024)


def _grams_on_cpu(left: Views, right: Views) -> Tensor:
    """By NumPy, which multiplies stacks of small float64 matrices faster than torch, a few pairs at a time per core."""
    layers = left.shape[1]
    left, right = (
        views.detach().cpu().double().numpy() if isinstance(views, Tensor) else views for views in (left, right)
    )
    grams = np.empty((3, len(left), layers, layers))

    def work(start: int) -> None:
        part = slice(start, start + _GRAM_PAIRS)
        sides = np.concatenate([np.asarray(views[part], dtype=np.float64) for views in (left, right)], axis=1)
        products = np.matmul(sides, sides.transpose(0, 2, 1))
        mixed = products[:, :layers, layers:]
        grams[0, part] = (mixed + mixed.transpose(0, 2, 1)) / 2
        grams[1, part], grams[2, part] = products[:, :layers, :layers], products[:, layers:, layers:]

    share(range(0, len(left), _GRAM_PAIRS), work)
    return torch.from_numpy(grams)


def _grams_on(device: torch.device | str, left: Views, right: Views) -> Tensor:
    rows = max(1, _GRAM_ELEMENTS // (left.shape[1] * left.shape[2]))
    parts = []
    for start in range(0, len(left), rows):
        a, b = (as_float64(views[start : start + rows], device) for views in (left, right))
        parts.append(torch.stack([symmetric(a @ b.mT), a @ a.mT, b @ b.mT]))
    return torch.cat(parts, dim=1)


def _walk(
    halves: Halves, uppers: NDArray[np.uint64], forced: int, space: Space, lengths: Tensor, may_cancel: bool
) -> Iterator[Piece]:
    for masks, forms in walk_halves(halves, uppers, forced, space):
        yield masks, cosines(forms, masks, lengths, may_cancel=may_cancel)


def walk_halves(halves: Halves, uppers: NDArray[np.uint64], forced: int, space: Space) -> Iterator[Piece]:
    """The allowed sets with each of the upper sets, and their forms (sets, items), one upper set at a time.

    The first `forced` upper layers are in every set; each of the others has a bit in an upper set's number.
    """
    numbers = uppers << np.uint64(forced) | np.uint64(2**forced - 1)
    members = torch.from_numpy(membership(numbers, len(halves.upper))).to(halves.table)
    lower_masks = halves.lower_masks
    columns = halves.columns(members)
    for place, upper_mask in enumerate(scatter_bits(numbers, halves.upper)):
        masks = lower_masks | upper_mask
        if upper_mask and space.takes_all_sizes:
            yield masks, halves.block(columns[place])
        elif len(allowed := np.flatnonzero(space.allows(masks))):
            rows = torch.from_numpy(allowed).to(halves.table.device)
            yield masks[allowed], halves.block(columns[place], rows)


def cosines(forms: Tensor, masks: Masks, lengths: Tensor, *, may_cancel: bool) -> Tensor:
    """Cosines from the concatenated forms left · right, left · left, right · right, in place; 0 for zero vectors.

    (sets, 3 pairs), (sets,), (2, layers, pairs) -> (sets, pairs)
    """
    dots, left, right = torch.split(forms, lengths.shape[-1], dim=1)
    squares = left.mul_(right)
    if may_cancel:
        members = torch.from_numpy(membership(masks, lengths.shape[1])).to(lengths)
        cancelled = squares <= _cancellation_bound(members, lengths)
        dots.masked_fill_(cancelled, 0.0)
        squares.masked_fill_(cancelled, 1.0)
    return dots.div_(squares.sqrt_())


def _cancellation_bound(weights: Tensor, lengths: Tensor) -> Tensor:
    """The product of two squared lengths below which layers have cancelled out, leaving only rounding errors.

    (rows, layers), (2, layers, pairs) -> (rows, pairs)
    """
    left, right = weights.abs() @ lengths
    bound: Tensor = (_CANCELLED * (left * right) ** 2).clamp_min(_TINY)
    return bound


def plain_sweep(source: Source, space: Space, *, rows: int) -> Iterator[Walk]:
    """All sets of a space, block by block, by `similarities`."""

    def walk(masks: Masks) -> Iterator[Piece]:
        yield masks, source.similarities(torch.from_numpy(membership(masks, source.layers)).to(source.device))

    for masks in space.masks(source.layers, rows):
        yield partial(walk, masks)


def too_sparse(space: Space, layers: int) -> bool:
    """Whether a space has so few of all sets that enumerating them is faster than `Halves`."""
    free = len(space.bits(layers)[1])
    return free > _MAX_FREE or space.count(layers) < 2**free // _SPARSE


def lower_bits(items: int, free: int, device: torch.device) -> int:
    """The number of lower layers for which a block has the right size for the device."""
    target = _CPU_BLOCK if device.type == "cpu" else _GPU_BLOCK
    return min(free, max(3, (target // max(1, items)).bit_length() - 1))


def upper_sets(bits: int) -> Iterator[NDArray[np.uint64]]:
    """All numbers of `bits` bits, in batches."""
    size = max(1, min(_MAX_UPPER_SETS, 2**bits // _MIN_WALKS))
    for start in takewhile(lambda first: first < 2**bits, count(0, size)):
        yield np.arange(start, min(start + size, 2**bits), dtype=np.uint64)


def as_float64(views: Views, device: torch.device | str) -> Tensor:
    """Views as a float64 tensor on a device."""
    tensor = views if isinstance(views, Tensor) else torch.from_numpy(np.array(views))
    return tensor.to(device).double()  # converted after the move, which halves the bytes to move


def check_views(left: Views, right: Views) -> None:
    """Refuse sides that are not views of the same pairs, layers and width."""
    for views in (left, right):
        if views.ndim != 3 or 0 in views.shape[1:]:
            raise InputError(f"Views have the shape (pairs, layers, width), not {tuple(views.shape)}")
    if left.shape != right.shape:
        raise InputError(f"The two sides' views differ: {tuple(left.shape)} and {tuple(right.shape)}")
