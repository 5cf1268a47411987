"""Beam search, for spaces too large to search exhaustively: the best sets of k layers give those of k + 1.

Greedy search is a beam of width 1. Every set that was looked at is in the result. The best is then improved by adding,
dropping and swapping single layers, until none of that helps.
"""

from collections.abc import Iterable

import numpy as np

from layerwise.search.problems import Problem, Progress, Scores, no_progress
from layerwise.search.spaces import Masks, Space, mask_of, membership

_PATIENCE = 3  # sizes without a better set, after which larger ones are not tried


def beam_search(
    problem: Problem, space: Space, *, width: int = 32, progress: Progress = no_progress
) -> tuple[Masks, Scores]:
    """The sets that were looked at, and their scores."""
    space.count(problem.layers)
    if space.contiguous:  # few sets, which do not grow out of each other
        return problem.scan(space, progress=progress)
    forced, free = space.bits(problem.layers)
    seen: dict[int, float] = {}
    beam, best, patience = [mask_of(forced)], -np.inf, _PATIENCE
    if forced:
        _score(problem, beam, seen, progress)
    for _size in range(len(forced) + 1, min(space.largest or problem.layers, len(forced) + len(free)) + 1):
        grown = sorted({mask | 1 << layer for mask in beam for layer in free if not mask >> layer & 1})
        _score(problem, grown, seen, progress)
        beam = sorted(grown, key=lambda mask: -_known(seen, mask))[:width]
        patience = _PATIENCE if _known(seen, beam[0]) > best else patience - 1
        best = max(best, _known(seen, beam[0]))
        if not patience and _size >= space.smallest:
            break
    _improve(problem, space, seen, progress)
    masks = np.array([mask for mask in seen if space.allows(np.array([mask], dtype=np.uint64))[0]], dtype=np.uint64)
    return masks, np.array([seen[int(mask)] for mask in masks])


def _improve(problem: Problem, space: Space, seen: dict[int, float], progress: Progress) -> None:
    """Climb from the best set to its best neighbour."""
    _, free = space.bits(problem.layers)
    while True:
        allowed = [mask for mask in seen if space.allows(np.array([mask], dtype=np.uint64))[0]]
        top = max(allowed, key=lambda mask: _known(seen, mask))
        flipped = {top ^ 1 << layer for layer in free}
        flipped |= {top ^ 1 << one ^ 1 << other for one in free for other in free if one < other}
        near = np.array(sorted(flipped), dtype=np.uint64)
        _score(problem, map(int, near[space.allows(near)]), seen, progress)
        if max(_known(seen, int(mask)) for mask in (*near[space.allows(near)], top)) <= _known(seen, top):
            return


def _score(problem: Problem, masks: Iterable[int], seen: dict[int, float], progress: Progress) -> None:
    new = np.array([mask for mask in masks if mask not in seen], dtype=np.uint64)
    if len(new):
        scores = problem.scores(membership(new, problem.layers))
        seen.update(zip(map(int, new), map(float, scores), strict=True))
        progress(len(new))


def _known(seen: dict[int, float], mask: int) -> float:
    score = seen.get(mask, -np.inf)
    return -np.inf if np.isnan(score) else score
