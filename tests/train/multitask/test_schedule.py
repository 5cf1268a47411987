"""The order of batches gives every task its share, whatever the sizes; weights sum as documented, and 0 is nothing."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.errors import InputError
from layerwise.train.multitask.losses import task_loss
from layerwise.train.multitask.schedule import schedule, steps
from layerwise.train.multitask.settings import ITERATIONS
from layerwise.train.multitask.weights import LearnedWeights, task_weights, weighted_loss

tasks = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 12)), min_size=1, max_size=5)
orders = st.tuples(st.integers(0, 1000), st.integers(0, 5))
quick = settings(max_examples=60, deadline=None)


def plan(sizes, batch_sizes, iteration, seed=0, epoch=0, **more):
    return list(schedule(sizes, batch_sizes, iteration=iteration, seed=seed, epoch=epoch, **more))


def counts_of(batches, task, size):
    """How often each row of a task counts."""
    counts = np.zeros(size, dtype=int)
    for batch in (batch for step in batches for batch in step if batch.task == task):
        np.add.at(counts, batch.rows[batch.row_mask], 1)
    return counts


@given(tasks, orders)
@quick
def test_cycling_gives_every_task_its_share(made, order):
    sizes, batch_sizes = zip(*made, strict=True)
    found = plan(sizes, batch_sizes, "cycling", *order)
    most = max(math.ceil(size / batch) for size, batch in made)
    assert len(found) == most
    for task, (size, batch) in enumerate(made):
        own, counts = math.ceil(size / batch), counts_of(found, task, size)
        assert {math.floor(most / own), math.ceil(most / own)} >= set(counts.tolist())
        if own == most:
            assert (counts == 1).all()  # the largest: every row exactly once
    for step in found:
        assert [batch.task for batch in step] == list(range(len(sizes)))
        for batch in step:
            assert batch.row_mask.all()
            assert 1 <= len(batch) <= batch_sizes[batch.task]
            assert len(set(batch.rows.tolist())) == len(batch)  # no row is its own negative


@given(tasks, orders)
@quick
def test_padding_takes_every_row_once_in_batches_of_one_size(made, order):
    sizes, batch_sizes = zip(*made, strict=True)
    found = plan(sizes, batch_sizes, "padding", *order)
    for task, size in enumerate(sizes):
        assert (counts_of(found, task, size) == 1).all()
    for step in found:
        assert [len(batch) for batch in step] == list(batch_sizes)
        assert any(not batch.is_padding for batch in step)
        assert all(batch.is_padding == (not batch.row_mask.any()) for batch in step)
        assert all((batch.rows[~batch.row_mask] == 0).all() for batch in step)


@given(tasks, orders)
@quick
def test_truncating_ends_with_the_smallest(made, order):
    sizes, batch_sizes = zip(*made, strict=True)
    found = plan(sizes, batch_sizes, "truncating", *order)
    fewest = min(math.ceil(size / batch) for size, batch in made)
    assert len(found) == fewest
    for task, (size, batch) in enumerate(made):
        counts = counts_of(found, task, size)
        assert counts.max() == 1
        assert counts.sum() == min(size, fewest * batch)


@given(tasks, orders)
@quick
def test_a_drawn_task_goes_on_where_it_stopped(made, order):
    sizes, batch_sizes = zip(*made, strict=True)
    found = plan(sizes, batch_sizes, "proportional", *order)
    assert all(len(step) == 1 for step in found)
    for task, size in enumerate(sizes):
        counts = counts_of(found, task, size)
        assert counts.max() - counts.min() <= 1


@given(tasks, orders, st.sampled_from(ITERATIONS))
@quick
def test_the_order_is_a_function_of_seed_and_epoch(made, order, iteration):
    sizes, batch_sizes = zip(*made, strict=True)
    seed, epoch = order

    def rows(*order):
        found = plan(sizes, batch_sizes, iteration, *order)
        return [[(batch.task, *batch.rows.tolist(), *batch.row_mask.tolist()) for batch in step] for step in found]

    assert rows(seed, epoch) == rows(seed, epoch)
    assert len(rows(seed, epoch)) == steps(sizes, batch_sizes, iteration)
    if max(sizes) > 30 and iteration in ("cycling", "padding"):
        assert rows(seed, epoch) != rows(seed, epoch + 1)
        assert rows(seed, epoch) != rows(seed + 1, epoch)


def test_tasks_of_one_size_have_orders_of_their_own():
    first, second = next(iter(plan([50, 50], [50, 50], "cycling")))
    assert first.rows.tolist() != second.rows.tolist()


def test_passes_are_newly_shuffled():
    found = [batch.rows.tolist() for step in plan([100, 20], [5, 20], "cycling") for batch in step if batch.task == 1]
    assert len(found) == 20
    assert len({tuple(rows) for rows in found}) == 20


@pytest.mark.parametrize(
    ("iteration", "temperature", "power"),
    [("proportional", 1.0, 1), ("temperature", 1.0, 1), ("temperature", 2.0, 0.5)],
)
def test_tasks_are_drawn_by_size(iteration, temperature, power):
    sizes = [6400, 1600, 400]
    found = Counter(step[0].task for step in plan(sizes, [1, 1, 1], iteration, temperature=temperature))
    total, wanted = sum(found.values()), sum(size**power for size in sizes)
    assert total == 8400
    for task, size in enumerate(sizes):
        share = size**power / wanted
        assert found[task] / total == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / total))


def test_extreme_temperatures_are_no_overflow():
    assert {step[0].task for step in plan([1000, 10], [1, 1], "temperature", temperature=1e-6)} == {0}
    even = Counter(step[0].task for step in plan([1000, 10], [1, 1], "temperature", temperature=1e6))
    assert even[1] / even[0] == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sizes": []}, "0 sizes and 1 batch sizes came"),
        ({"sizes": [1, 2]}, "2 sizes and 1 batch sizes came; give one of each"),
        ({"sizes": [0]}, "task 0 has 0 rows in batches of 4; both must be 1 or more"),
        ({"batch_sizes": [0]}, "task 0 has 9 rows in batches of 0"),
        ({"iteration": "cycle"}, "Unknown iteration 'cycle'.*Known: cycling"),
        ({"temperature": 0.0}, "temperature 0.0: give a number above 0"),
        ({"seed": -1}, "The seed -1 is negative"),
    ],
)
def test_bad_schedules_are_refused_before_the_first_step(given, message):
    wanted = {"sizes": [9], "batch_sizes": [4], "iteration": "cycling", "seed": 0, "epoch": 0} | given
    with pytest.raises(InputError, match=message):
        schedule(wanted.pop("sizes"), wanted.pop("batch_sizes"), **wanted)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6))
@quick
def test_inverse_size_weights_sum_to_the_number_of_tasks(sizes):
    found = task_weights("inverse-size", sizes, [1.0] * len(sizes))
    assert sum(found) == pytest.approx(len(sizes))
    assert [weight * size for weight, size in zip(found, sizes, strict=True)] == pytest.approx(
        [found[0] * sizes[0]] * len(sizes)
    )
    assert sum(task_weights("equal", sizes, [1.0] * len(sizes))) == len(sizes)


def test_given_weights_are_as_given():
    assert task_weights("given", [5, 7], [0.0, 3.0]) == (0.0, 3.0)
    assert task_weights("learned", [5, 7], [1.0, 1.0]) == (1.0, 1.0)
    with pytest.raises(InputError, match=r"weights \[0.0, 0.0\]: give 0 or more, and one above 0"):
        task_weights("given", [5, 7], [0.0, 0.0])
    with pytest.raises(InputError, match="1 sizes and 2 weights came"):
        task_weights("given", [5], [0.0, 1.0])
    with pytest.raises(InputError, match="task 1 has 0 rows"):
        task_weights("equal", [5, 0], [1.0, 1.0])
    with pytest.raises(InputError, match="Unknown weights 'size'"):
        task_weights("size", [5], [1.0])


@pytest.mark.parametrize("value", [2.0, math.inf, math.nan])
def test_a_task_of_weight_0_has_no_gradient(value):
    """Exactly none: of an infinite loss, 0 times would be NaN."""
    shared, own = (torch.ones(3, requires_grad=True) for _ in range(2))
    losses = [shared.sum(), (own * shared).sum() * value]
    loss = weighted_loss(losses, [2.0, 0.0])
    loss.backward()
    assert loss.item() == 6
    assert shared.grad.tolist() == [2, 2, 2]
    assert own.grad is None
    assert weighted_loss([losses[0], None], [2.0, 1.0]).item() == 6


def test_sums_of_nothing_are_refused():
    with pytest.raises(InputError, match="no task of this step has a loss to train on"):
        weighted_loss([None, torch.ones(())], [1.0, 0.0])
    with pytest.raises(InputError, match="1 losses for 2 weights"):
        weighted_loss([None], [1.0, 0.0])
    with pytest.raises(InputError, match="1 losses for 2 tasks"):
        LearnedWeights([False, True])([None])


def test_learned_weights_are_the_formula():
    learned = LearnedWeights([False, True])
    with torch.no_grad():
        for own, value in zip(learned.log_variances, (0.3, -0.7), strict=True):
            own.fill_(value)
    losses = [torch.tensor(2.0), torch.tensor(4.0)]
    wanted = math.exp(-0.3) * 2 + 0.3 + (math.exp(0.7) * 4 - 0.7) / 2
    assert learned(losses).item() == pytest.approx(wanted)
    assert learned.weights == pytest.approx((math.exp(-0.3), math.exp(0.7) / 2))
    assert sum(map(torch.numel, learned.parameters())) == 2


def test_learned_weights_come_to_one_over_the_loss():
    learned, losses = LearnedWeights([False, True, False]), [torch.tensor(0.5), torch.tensor(4.0), None]
    assert learned.weights == (1.0, 0.5, 1.0)
    optimiser = torch.optim.Adam(learned.parameters(), lr=0.05)
    for _ in range(400):
        optimiser.zero_grad()
        learned(losses).backward()
        optimiser.step()
    assert learned.weights == pytest.approx((2.0, 0.125, 1.0), rel=1e-3)


def test_a_learned_weight_stays_where_its_task_is_absent():
    """Also after steps that had it, whose momentum would carry it on."""
    learned = LearnedWeights([False, False])
    optimiser = torch.optim.AdamW(learned.parameters(), lr=0.05, weight_decay=0.0)
    for there in (True, True, False, False):
        before = learned.weights
        optimiser.zero_grad()
        learned([torch.tensor(0.5), torch.tensor(4.0) if there else None]).backward()
        optimiser.step()
        assert learned.weights[0] != before[0]
        assert (learned.weights[1] != before[1]) == there


@given(st.integers(1, 20), st.integers(1, 20), orders)
@settings(max_examples=25, deadline=None)
def test_padding_changes_no_loss(size, batch, order):
    """Over an epoch beside a larger task, the losses of its rows add up to what they do without padding."""
    logits = torch.randn(size, 3, generator=torch.Generator().manual_seed(order[0]), dtype=torch.float64)
    targets = torch.arange(size) % 3
    total = torch.zeros((), dtype=torch.float64)
    for step in plan([200, size], [4, batch], "padding", *order):
        rows, mask = torch.from_numpy(step[1].rows), torch.from_numpy(step[1].row_mask)
        total += task_loss(logits[rows], targets[rows], "cross-entropy", row_mask=mask) * mask.sum()
    torch.testing.assert_close(total / size, task_loss(logits, targets, "cross-entropy"))
