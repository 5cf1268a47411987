"""Beam search, for spaces too large to search exhaustively: the best sets of k layers are expanded to k + 1.

Greedy search is a beam of width 1. The result holds every visited set. The best set is then improved by hill climbing:
single layers are added, dropped and swapped until no change improves the score.
"""

from collections.abc import Iterable

import numpy as np

from layerwise.search.problems import Progress, Scores, SetProblem, no_progress
from layerwise.search.spaces import Masks, Space, mask_of, membership

_PATIENCE = 3  # sizes without a better set after which the search stops


def beam_search(
    problem: SetProblem, space: Space, *, width: int = 32, progress: Progress = no_progress
) -> tuple[Masks, Scores]:
    """The visited sets and their scores."""
    space.count(problem.layers)
    if space.contiguous:  # few sets, which are not expansions of each other
        return problem.scan(space, progress=progress)
    forced, free = space.bits(problem.layers)
    seen: dict[int, float] = {}
    beam, best, patience = [mask_of(forced)], -np.inf, _PATIENCE
    if forced:
        _score(problem, beam, seen, progress)
    for size in range(len(forced) + 1, min(space.largest or problem.layers, len(forced) + len(free)) + 1):
        expanded = sorted({mask | 1 << layer for mask in beam for layer in free if not mask >> layer & 1})
        _score(problem, expanded, seen, progress)
        beam = sorted(expanded, key=lambda mask: -_score_of(seen, mask))[:width]
        patience = _PATIENCE if _score_of(seen, beam[0]) > best else patience - 1
        best = max(best, _score_of(seen, beam[0]))
        if not patience and size >= space.smallest:
            break
    _improve(problem, space, seen, progress)
    masks = np.array([mask for mask in seen if space.allows(np.array([mask], dtype=np.uint64))[0]], dtype=np.uint64)
    return masks, np.array([seen[int(mask)] for mask in masks])


def _improve(problem: SetProblem, space: Space, seen: dict[int, float], progress: Progress) -> None:
    """Hill climbing from the best set, by adding, dropping or swapping one layer."""
    _, free = space.bits(problem.layers)
    while True:
        allowed = [mask for mask in seen if space.allows(np.array([mask], dtype=np.uint64))[0]]
        top = max(allowed, key=lambda mask: _score_of(seen, mask))
        neighbours = {top ^ 1 << layer for layer in free}
        neighbours |= {top ^ 1 << first ^ 1 << second for first in free for second in free if first < second}
        masks = np.array(sorted(neighbours), dtype=np.uint64)
        masks = masks[space.allows(masks)]
        _score(problem, map(int, masks), seen, progress)
        if max(_score_of(seen, int(mask)) for mask in (*masks, top)) <= _score_of(seen, top):
            return


def _score(problem: SetProblem, masks: Iterable[int], seen: dict[int, float], progress: Progress) -> None:
    new = np.array([mask for mask in masks if mask not in seen], dtype=np.uint64)
    if len(new):
        scores = problem.scores(membership(new, problem.layers))
        seen.update(zip(map(int, new), map(float, scores), strict=True))
        progress(len(new))


def _score_of(seen: dict[int, float], mask: int) -> float:
    score = seen.get(mask, -np.inf)
    return -np.inf if np.isnan(score) else score
