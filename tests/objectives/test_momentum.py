"""A momentum encoder and its queue against ESimCSE's formulas and a plain list."""

import math
from collections import deque

import pytest
import torch
import torch.nn.functional as F

from layerwise.errors import InputError
from layerwise.objectives import empty_places, enqueue, info_nce, momentum_update


def draw(rows, seed, width=6):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_loss_with_a_queue_is_the_papers():
    anchors, positives, queue, t = draw(4, 1), draw(4, 2), draw(5, 3), 0.2
    count = torch.tensor(3)  # two places are empty
    ignored = torch.cat([torch.zeros(4, dtype=torch.bool), empty_places(queue, count)]).expand(4, -1)
    expected = 0.0
    for i, anchor in enumerate(anchors):
        below = sum(math.exp(F.cosine_similarity(anchor, other, dim=0) / t) for other in (*positives, *queue[:3]))
        expected -= math.log(math.exp(F.cosine_similarity(anchor, positives[i], dim=0) / t) / below) / 4
    assert float(info_nce(anchors, positives, queue, temperature=t, ignored=ignored)) == pytest.approx(expected)


@pytest.mark.parametrize("size", [2, 5, 7])
def test_the_queue_holds_the_latest(size):
    queue, count = torch.zeros(size, 6, dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    plain = deque(maxlen=size)
    for seed, rows in enumerate((3, 1, 4, 2, 9, 3)):
        vectors = draw(rows, seed)
        enqueue(queue, count, vectors)
        plain.extend(map(tuple, vectors.tolist()))
        held = queue[~empty_places(queue, count)]
        assert set(map(tuple, held.tolist())) == set(plain)
        assert len(held) == len(plain)
    assert int(count) == 22


def test_weights_follow_by_the_momentum():
    slow, fast = [draw(2, 1), draw(3, 2)], [draw(2, 3).requires_grad_(), draw(3, 4)]
    expected = [0.9 * one + 0.1 * other for one, other in zip(slow, fast, strict=True)]
    momentum_update(slow, fast, momentum=0.9)
    for mine, theirs in zip(slow, expected, strict=True):
        torch.testing.assert_close(mine, theirs.detach())
    momentum_update(slow, fast, momentum=0)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(slow, fast, strict=True))


def test_mistakes_are_told():
    with pytest.raises(InputError, match="momentum 1 is not possible"):
        momentum_update([], [], momentum=1)
    with pytest.raises(InputError, match="not of these parameters"):
        momentum_update([draw(2, 1)], [draw(3, 1)], momentum=0.5)
    with pytest.raises(InputError, match="The widths differ"):
        enqueue(draw(2, 1), torch.tensor(0), draw(2, 1, width=3))
