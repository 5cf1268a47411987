"""Where similarities come from: pairs of sentences, by the Gram matrices of their views.

A source knows the similarities of all pairs for any weights of the layers (`similarities`), and walks through a space
of sets in pieces of bounded memory (`sweep`).
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
Piece = tuple[Masks, Tensor]  # some sets, and their similarities (sets, pairs)
Walk = Callable[[], Iterator[Piece]]  # a part of a space, to be walked through by any thread
_GRAM_NUMBERS = 2**26  # numbers of the views that become Gram matrices at once on a GPU
_GRAM_PAIRS = 16  # pairs a core multiplies at once
_CPU_BLOCK, _GPU_BLOCK = 2**21, 2**26  # numbers in a block, where the measured speed levels off
_UPPER_SETS = 64  # upper sets a walk at most
_WALKS = 16  # at least, if there are so many upper sets: work for every core
_TINY = 1e-300
_CANCELLED = 1e-13  # of what it could be at most: a product of squared lengths that is nothing but rounding
_SPARSE = 256  # one set in so many is in a space: then its sets are listed instead
_MOST_FREE = 34  # layers that may be in a set or not, beyond which halves are no help


class Source(Protocol):
    """Similarities by layer weights."""

    @property
    def layers(self) -> int:
        """How many layers there are."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    def similarities(self, weights: Tensor) -> Tensor:
        """Any weights of the layers: (rows, layers) -> (rows, pairs), float64, differentiable"""

    def sweep(self, space: Space) -> Iterator[Walk]:
        """All sets of a space."""


class PairSource(Source, Protocol):
    """Similarities of pairs, of which some can be picked."""

    def pick(self, pairs: NDArray[np.integer[Any]]) -> "PairSource":
        """The same for some of the pairs."""


@dataclass(frozen=True)
class Grams:
    """Gram matrices of some views, whatever they are of: (..., layers, layers)"""

    grams: Tensor

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return int(self.grams.shape[-1])

    @property
    def device(self) -> torch.device:
        """Where the Gram matrices are."""
        return self.grams.device


@dataclass(frozen=True)
class PairGrams(Grams):
    """Pairs of sentences as Gram matrices: left with right, left with left, right with right. (3, pairs, l, l)"""

    @classmethod
    def of(cls, left: Views, right: Views, *, device: torch.device | str = "cpu") -> "PairGrams":
        """From views (pairs, layers, width) of either side, in float64 a part at a time."""
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
        """Of every layer's vectors, left then right: (2, layers, pairs)"""
        return self.grams[1:].diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt().mT.contiguous()

    @cached_property
    def may_cancel(self) -> bool:
        """Whether some set's layers could cancel out: not if every pair's layers are clearly independent.

        With the layers' correlations C, the square of a sum's length is at least C's least eigenvalue times the sum of
        the layers' squares; a Cholesky factor of C less a little shows that this eigenvalue is larger than that.
        """
        scales = self.lengths.mT
        if not bool((scales > _TINY**0.5).all()):
            return True
        correlations = self.grams[1:] / (scales[..., :, None] * scales[..., None, :])
        margin = self.layers * _CANCELLED**0.5
        little = margin * torch.eye(self.layers, dtype=self.grams.dtype, device=self.device)
        return bool(torch.linalg.cholesky_ex(correlations - little).info.any())

    def pick(self, pairs: NDArray[np.integer[Any]]) -> "PairGrams":
        """Some of the pairs."""
        return PairGrams(self.grams[:, torch.from_numpy(np.asarray(pairs)).to(self.device)])

    def similarities(self, weights: Tensor) -> Tensor:
        """Cosines for any weights: (rows, layers) -> (rows, pairs)"""
        forms = weighted(weights.to(self.grams), triangle(self.grams.flatten(0, 1)))
        dots, left, right = torch.split(forms, len(self), dim=1)
        squares = left * right
        gone = squares <= _vanishing(weights.detach().to(self.grams), self.lengths)
        return torch.where(gone, 0.0, dots / torch.where(gone, 1.0, squares).sqrt())

    def sweep(self, space: Space) -> Iterator[Walk]:
        """All sets of a space, by halves."""
        forced, free = space.bits(self.layers)
        if too_sparse(space, self.layers):
            yield from plain_sweep(self, space, rows=max(1, _CPU_BLOCK // len(self) // 8))
            return
        lower = free[: lower_bits(3 * len(self), len(free), self.device)]
        halves = Halves.of(self.grams.flatten(0, 1), (*forced, *free[len(lower) :]), lower)
        for uppers in upper_sets(len(free) - len(lower)):
            yield partial(_walk, halves, uppers, len(forced), space, self.lengths, self.may_cancel)


@dataclass(frozen=True)
class GivenSimilarities:
    """Similarities that were made elsewhere, one row for each of some mixes: (mixes, pairs)"""

    table: Tensor

    @property
    def layers(self) -> int:
        """How many mixes there are, which stand in the layers' place."""
        return len(self.table)

    @property
    def device(self) -> torch.device:
        """Where the similarities are."""
        return self.table.device

    def pick(self, pairs: NDArray[np.integer[Any]]) -> "GivenSimilarities":
        """Some of the pairs."""
        return GivenSimilarities(self.table[:, torch.from_numpy(np.asarray(pairs)).to(self.device)])

    def similarities(self, weights: Tensor) -> Tensor:
        """Of the mixes that the weights pick: (rows, mixes) -> (rows, pairs)"""
        return weights.to(self.table) @ self.table

    def sweep(self, space: Space) -> Iterator[Walk]:
        """All sets of mixes."""
        yield from plain_sweep(self, space, rows=1024)


def _grams_on_cpu(left: Views, right: Views) -> Tensor:
    """NumPy multiplies stacks of small float64 matrices faster than torch does, a few pairs at a time on each core."""
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
    rows = max(1, _GRAM_NUMBERS // (left.shape[1] * left.shape[2]))
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
    """The allowed sets with some of the upper sets, and their forms (sets, items), an upper set at a time.

    The first `forced` upper layers are in every set; a bit of an upper set's number says so of each of the others.
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
    """Forms of left-right, left-left, right-right, side by side, to cosines in their place; 0 with a vector of 0.

    (sets, 3 pairs), (sets,), (2, layers, pairs) -> (sets, pairs)
    """
    dots, left, right = torch.split(forms, lengths.shape[-1], dim=1)
    squares = left.mul_(right)
    if may_cancel:
        members = torch.from_numpy(membership(masks, lengths.shape[1])).to(lengths)
        gone = squares <= _vanishing(members, lengths)
        dots.masked_fill_(gone, 0.0)
        squares.masked_fill_(gone, 1.0)
    return dots.div_(squares.sqrt_())


def _vanishing(weights: Tensor, lengths: Tensor) -> Tensor:
    """The product of two squared lengths below which layers have cancelled out, and nothing but rounding is left.

    (rows, layers), (2, layers, pairs) -> (rows, pairs)
    """
    left, right = weights.abs() @ lengths
    bound: Tensor = (_CANCELLED * (left * right) ** 2).clamp_min(_TINY)
    return bound


def plain_sweep(source: Source, space: Space, *, rows: int) -> Iterator[Walk]:
    """All sets of a space, each block of them by `similarities`."""

    def walk(masks: Masks) -> Iterator[Piece]:
        yield masks, source.similarities(torch.from_numpy(membership(masks, source.layers)).to(source.device))

    for masks in space.masks(source.layers, rows):
        yield partial(walk, masks)


def too_sparse(space: Space, layers: int) -> bool:
    """Whether so few of all sets are in a space that listing them beats walking through halves."""
    free = len(space.bits(layers)[1])
    return free > _MOST_FREE or space.count(layers) < 2**free // _SPARSE


def lower_bits(items: int, free: int, device: torch.device) -> int:
    """How many layers are lower ones, so that a block has the right size for the device."""
    target = _CPU_BLOCK if device.type == "cpu" else _GPU_BLOCK
    return min(free, max(3, (target // max(1, items)).bit_length() - 1))


def upper_sets(bits: int) -> Iterator[NDArray[np.uint64]]:
    """All numbers of so many bits, in batches."""
    size = max(1, min(_UPPER_SETS, 2**bits // _WALKS))
    for start in takewhile(lambda first: first < 2**bits, count(0, size)):
        yield np.arange(start, min(start + size, 2**bits), dtype=np.uint64)


def as_float64(views: Views, device: torch.device | str) -> Tensor:
    """Views as a float64 tensor on a device."""
    tensor = views if isinstance(views, Tensor) else torch.from_numpy(np.array(views))
    return tensor.to(device).double()  # moved as it is, for float64 would be twice as much to move


def check_views(left: Views, right: Views) -> None:
    """Both sides must be views, of the same pairs, layers and width."""
    for views in (left, right):
        if views.ndim != 3 or 0 in views.shape[1:]:
            raise InputError(f"Views have the shape (pairs, layers, width), not {tuple(views.shape)}")
    if left.shape != right.shape:
        raise InputError(f"The two sides' views differ: {tuple(left.shape)} and {tuple(right.shape)}")
