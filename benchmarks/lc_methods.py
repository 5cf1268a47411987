"""The four search methods of BERT-LC (Hosseini et al. 2023, appendix A) as published, for `benchmarks/search.py`.

Each is an iterator over every set D of layers and p(H, D), the mean over its layers of the token means; `evaluate`
turns that into cosines and SciPy's Spearman. What the paper leaves open is decided in the methods' favour:

- p(H, D) is made for all sentences of the data set at once, as one tensor (2 sides, pairs, width), in place where it
  is not kept, with multiplications fused into additions. Method 2 comes in three: `method_2_plain` is the paper's
  sentence in one line of torch, `method_2` the same tuned as far as we could, `method_2_each` sentence by sentence.
- greedyPart cuts D into 2, 3, ... runs of equal length (the last may be shorter) until all are in `mem`. That gives
  both examples of the paper: {1,3,6,8,10} -> {1,3,6}, {8,10} and {1..8} -> {1..4}, {5..8}.
- Algorithm 2 keeps P as mem[D] (its `mem[part]` is a slip), and divides by the number of parts where all are of one
  length (its `denom = len` would not halve the two parts of its own example; a cosine sees no difference).
- The cosine is by the fastest way in torch that we know of, twice as fast as `torch.cosine_similarity`.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

LayerTuple = tuple[int, ...]
Pooled = Iterator[tuple[LayerTuple, Tensor]]  # sets D with p(H, D) of all sentences: (2, pairs, width)
Memory = dict[LayerTuple, Tensor]


@dataclass
class Evaluated:
    """What a method found, and where its time went."""

    scores: dict[LayerTuple, float] = field(default_factory=dict)
    pooling_s: float = 0.0
    cosine_s: float = 0.0
    metric_s: float = 0.0

    @property
    def best(self) -> LayerTuple:
        """The best set."""
        return max(self.scores, key=self.scores.__getitem__)

    def largest_difference(self, scores: Mapping[LayerTuple, float]) -> float:
        """To other scores of the same sets; NaN where a score is."""
        return float(np.max(np.abs([score - scores[chosen] for chosen, score in self.scores.items()])))

    def split(self) -> dict[str, float]:
        """Seconds of the parts."""
        return {"pooling": self.pooling_s, "cosine": self.cosine_s, "metric": self.metric_s}

    def scaled_to_all(self, layers: int) -> dict[str, float]:
        """The parts' seconds from a sample of sets to all: pooling by the layers pooled, the others by the sets."""
        sets = (2**layers - 1) / len(self.scores)
        pooled = layers * 2 ** (layers - 1) / sum(map(len, self.scores))
        return {"pooling": self.pooling_s * pooled, "cosine": self.cosine_s * sets, "metric": self.metric_s * sets}


def powerset(layers: int, size: int) -> Iterator[LayerTuple]:
    """The sets of so many layers."""
    return combinations(range(layers), size)


def all_sets(layers: int) -> Iterator[LayerTuple]:
    """Every set but the empty one, small ones first."""
    return (chosen for size in range(1, layers + 1) for chosen in powerset(layers, size))


def sample_sets(layers: int, count: int, seed: int = 0) -> list[LayerTuple]:
    """Some sets, each as likely as any other."""
    masks = np.random.default_rng(seed).choice(2**layers - 1, min(count, 2**layers - 1), replace=False) + 1
    return [tuple(layer for layer in range(layers) if int(mask) >> layer & 1) for mask in masks]


def layers_first(left: NDArray[np.float32], right: NDArray[np.float32]) -> Tensor:
    """Both sides' views as the methods read them fastest: (pairs, layers, width) twice -> (layers, 2, pairs, width)"""
    return torch.from_numpy(np.stack([left, right])).permute(2, 0, 1, 3).contiguous()


def memory_entries(pooled: Tensor, size: int, gib: float) -> int:
    """A maxMem: all sets of up to `size` layers, or as many as fit into so much memory."""
    fitting = int(gib * 2**30) // (pooled[0].numel() * pooled.element_size())
    return min(sum(comb(len(pooled), k) for k in range(1, size + 1)), fitting)


def made_up_tokens(pooled: Tensor, tokens: int, seed: int = 0) -> Tensor:
    """Token states whose means are the given vectors: (..., width) -> (..., tokens, width)"""
    random = torch.Generator().manual_seed(seed)
    states = torch.randn((*pooled.shape[:-1], tokens, pooled.shape[-1]), generator=random, dtype=pooled.dtype)
    states -= states.mean(-2, keepdim=True)
    return states.add_(pooled.unsqueeze(-2))


def method_1(states: Tensor, sets: Iterable[LayerTuple]) -> Pooled:
    """Method 1: the tokens of every layer of D anew. Token states H: (layers, 2, pairs, tokens, width)"""
    for chosen in sets:
        total = states[chosen[0]].sum(-2)
        for layer in chosen[1:]:
            total += states[layer].sum(-2)
        yield chosen, total.div_(len(chosen) * states.shape[-2])


def method_2(pooled: Tensor) -> Pooled:
    """Method 2: the tokens once, then the layers of every D anew. (layers, 2, pairs, width)"""
    scratch = torch.empty_like(pooled[0])
    for chosen in all_sets(len(pooled)):
        if len(chosen) == 1:
            yield chosen, pooled[chosen[0]]
            continue
        total = torch.add(pooled[chosen[0]], pooled[chosen[1]], out=scratch)
        for layer in chosen[2:]:
            total += pooled[layer]
        yield chosen, total.div_(len(chosen))


def method_2_plain(pooled: Tensor, sets: Iterable[LayerTuple] | None = None) -> Pooled:
    """Method 2 as one writes it down: the mean of the layers of D from views (2, pairs, layers, width)"""
    views = pooled.permute(1, 2, 0, 3).contiguous()
    for chosen in all_sets(len(pooled)) if sets is None else sets:
        yield chosen, views[:, :, list(chosen)].mean(2)


def method_2_each(pooled: Tensor, sets: Iterable[LayerTuple]) -> Pooled:
    """Method 2, one sentence after the other, as Equation 3 is written. (layers, 2, pairs, width)"""
    sentences = pooled.flatten(1, 2).transpose(0, 1).contiguous()
    for chosen in sets:
        members = torch.tensor(chosen)
        yield chosen, torch.stack([views[members].mean(0) for views in sentences]).view(pooled.shape[1:])


def layer_iterator(pooled: Tensor, *, max_optim: bool, max_mem: int) -> Pooled:
    """Algorithm 1, Methods 3 and 4: bottom-up dynamic programming. (layers, 2, pairs, width)"""
    mem: Memory = {}
    scratch = torch.empty_like(pooled[0])
    for size in range(1, len(pooled) + 1):
        for chosen in powerset(len(pooled), size):
            yield chosen, pool(pooled, chosen, mem, max_optim=max_optim, max_mem=max_mem, scratch=scratch)


def method_3(pooled: Tensor, max_mem: int) -> Pooled:
    """Method 3: every D from parts that are known. (layers, 2, pairs, width)"""
    return layer_iterator(pooled, max_optim=False, max_mem=max_mem)


def method_4(pooled: Tensor, max_mem: int) -> Pooled:
    """Method 4: the same without multiplications where the parts are of one length. (layers, 2, pairs, width)"""
    return layer_iterator(pooled, max_optim=True, max_mem=max_mem)


def greedy_part(chosen: LayerTuple, mem: Memory) -> list[LayerTuple]:
    """The fewest parts of D, all of them in `mem`; none where there are none."""
    for count in range(2, len(chosen) + 1):
        length = -(-len(chosen) // count)
        parts = [chosen[start : start + length] for start in range(0, len(chosen), length)]
        if all(part in mem for part in parts):
            return parts
    return []


def pool(pooled: Tensor, chosen: LayerTuple, mem: Memory, *, max_optim: bool, max_mem: int, scratch: Tensor) -> Tensor:
    """Algorithm 2: p(H, D) by its parts, written to `scratch` where it is not kept."""
    parts = greedy_part(chosen, mem)
    keep = len(mem) < max_mem
    if parts:
        target = torch.empty_like(scratch) if keep else scratch
        total = _by_lengths(parts, mem, target) if max_optim else _by_parts(parts, mem, target)
    elif len(chosen) == 1:
        total = pooled[chosen[0]]
    else:
        total = pooled[list(chosen)].mean(0)
    if keep:
        mem[chosen] = total
    return total


def _by_parts(parts: list[LayerTuple], mem: Memory, target: Tensor) -> Tensor:
    torch.mul(mem[parts[0]], len(parts[0]), out=target)
    for part in parts[1:]:
        target.add_(mem[part], alpha=len(part))
    return target.div_(sum(map(len, parts)))


def _by_lengths(parts: list[LayerTuple], mem: Memory, target: Tensor) -> Tensor:
    if len({len(part) for part in parts}) > 1:  # getPartLens: all but the last part are of one length
        torch.mul(_sum(parts[:-1], mem, target), len(parts[0]), out=target)
        return target.add_(mem[parts[-1]], alpha=len(parts[-1])).div_(sum(map(len, parts)))
    return _sum(parts, mem, target).div_(len(parts))


def _sum(parts: list[LayerTuple], mem: Memory, target: Tensor) -> Tensor:
    """The sum of some parts, in `target` unless it is one part."""
    if len(parts) == 1:
        return mem[parts[0]]
    total = torch.add(mem[parts[0]], mem[parts[1]], out=target)
    for part in parts[2:]:
        total += mem[part]
    return total


def cosines(vectors: Tensor) -> Tensor:
    """(2, pairs, width) -> (pairs,)"""
    left, right = vectors
    return torch.linalg.vecdot(left, right) / vectors.norm(dim=-1).prod(0)


def evaluate(method: Pooled, gold: NDArray[np.float64], *, decimals: int | None = None) -> Evaluated:
    """SciPy's Spearman of every set that a method gives.

    Args:
        method: Sets and their vectors.
        gold: The pairs' scores.
        decimals: Of the cosines, so that equal sentences are ties whatever the rounding errors.
    """
    found = Evaluated()
    while True:
        began = time.perf_counter()
        chosen, vectors = next(method, ((), None))
        if vectors is None:
            return found
        pooled = time.perf_counter()
        similarities = cosines(vectors).numpy()
        compared = time.perf_counter()
        if decimals is not None:
            similarities = similarities.round(decimals)
        found.scores[chosen] = float(spearmanr(similarities, gold).statistic)
        found.pooling_s += pooled - began
        found.cosine_s += compared - pooled
        found.metric_s += time.perf_counter() - compared


def agreement(pooled: Tensor, gold: NDArray[np.float64], scores: Mapping[LayerTuple, float]) -> dict[str, float]:
    """The largest difference of every method's scores, in float64, from ours of all sets; above 1e-6 is an error.

    The cosines are rounded to 12 decimals: equal sentences are ties for us, but their cosines differ in the last bit.
    """
    exact, sets = pooled.double(), sample_sets(len(pooled), 64)
    runs = {
        "method 1": method_1(made_up_tokens(exact, 5), sets),
        "method 2": method_2_plain(exact),
        "method 2, tuned": method_2(exact),
        "method 2, one sentence at a time": method_2_each(exact, sets),
        "method 3": method_3(exact, 10**6),
        "method 4": method_4(exact, 10**6),
        "method 3, little memory": method_3(exact, 20),
        "method 4, little memory": method_4(exact, 20),
    }
    differ = {name: evaluate(run, gold, decimals=12).largest_difference(scores) for name, run in runs.items()}
    for name, difference in differ.items():
        assert difference <= 1e-6, f"{name} differs from ours by {difference}"
    return differ
