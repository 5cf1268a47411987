"""What makes a step or a look at dev cheaper changes nothing of what comes out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.encoder import LayerEncoder, SentenceTokenizer
from layerwise.errors import InputError
from layerwise.predict import Predictor, task_tokenizers
from layerwise.predict.predictor import RememberedTokens
from layerwise.train import MultitaskDev
from layerwise.train.multitask.dev import score_tasks, with_fewer_dev_rows
from layerwise.train.multitask.student import build_student, group_by_length, stack_batches
from support.multitasking import read, recipe, task, train_tasks
from support.task_batches import all_tasks, batches_of

SHAPES = st.dictionaries(st.text("abcdef", min_size=1), st.tuples(st.integers(1, 64), st.integers(1, 256)), min_size=1)


@given(SHAPES, st.floats(1, 4))
def test_every_task_is_in_one_group_that_is_not_padded_too_much(shapes, most):
    groups = group_by_length(shapes, max_padding=most)
    assert sorted(name for group in groups for name in group) == sorted(shapes)
    for group in groups:
        apart = sum(shapes[name][0] * shapes[name][1] for name in group)
        padded = sum(shapes[name][0] for name in group) * max(shapes[name][1] for name in group)
        assert padded <= most * apart


@given(SHAPES)
def test_without_padding_only_equal_lengths_are_joined(shapes):
    for group in group_by_length(shapes, max_padding=1.0):
        assert len({shapes[name][1] for name in group}) == 1


def test_batches_are_stacked_with_padding_that_is_masked():
    long = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.tensor([[1, 1, 1]])}
    short = {"input_ids": torch.tensor([[8], [9]]), "attention_mask": torch.tensor([[1], [1]])}
    tokens, mask = stack_batches([long, short], 2)
    assert tokens.tolist() == [[5, 6, 7], [8, 2, 2], [9, 2, 2]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]


def test_one_pass_for_all_tasks_gives_the_loss_and_gradients_of_a_pass_each(data, encoder):
    what = recipe(*all_tasks(data, mood={"contrast": 0.5, "max_length": 4}, near={"contrast": 0.2}))
    tasks = read(*what.setups)
    student, step, passes = build_student(what, tasks, encoder, seed=0), next(iter(batches_of(tasks, encoder))), []
    real = student.encode
    student.encode = lambda *given: passes.append(len(given[0])) or real(*given)
    found = {}
    for most in (1.0, 99.0):
        student.max_padding = most
        student.zero_grad()
        loss = student(step)["loss"]
        loss.backward()
        grads = [one.grad.clone() for one in student.parameters() if one.grad is not None]
        found[most] = loss.item(), grads, list(passes)
        passes.clear()
    assert found[99.0][2] == [8 + 16 + 16, 8 + 16]  # all tasks, then the second views
    assert len(found[1.0][2]) > 2
    assert found[1.0][0] == pytest.approx(found[99.0][0], abs=1e-5)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found[1.0][1], found[99.0][1], strict=True))


def test_remembered_tokens_are_the_tokens(encoder, monkeypatch):
    texts = ["river rain", "door", "river rain", "clock " * 50, ""]
    plain, remembered = (kind(encoder.tokenizer, max_length=8) for kind in (SentenceTokenizer, RememberedTokens))
    assert remembered(texts).ids == plain(texts).ids
    monkeypatch.setattr(SentenceTokenizer, "__call__", lambda *_: pytest.fail("tokenised again"))
    assert remembered(texts[::-1]).ids == remembered(texts).ids[::-1]


def test_tasks_of_one_length_share_a_tokenizer(encoder):
    found = task_tokenizers(encoder.tokenizer, {"a": 16, "b": 8, "c": 16})
    assert found["a"] is found["c"]
    assert [found[name].max_length for name in "abc"] == [16, 8, 16]


def test_a_remembering_predictor_scores_the_same(data, encoder):
    what = recipe(*all_tasks(data))
    tasks = read(*what.setups)
    student = build_student(what, tasks, encoder, seed=0)
    plain, remembering = student.to_predictor(tasks), student.to_predictor(tasks, remember=True)
    assert score_tasks(plain, tasks).metrics() == score_tasks(remembering, tasks).metrics()


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # old CPUs take a slower way
def test_a_look_by_bfloat16_is_near_float32(data, encoder):
    what = recipe(*all_tasks(data), model={"head": "linear"})
    tasks = read(*what.setups)
    predictor = build_student(what, tasks, encoder, seed=0).to_predictor(tasks)
    columns = tasks[2].parts["dev"].columns
    exact = predictor.outputs("near", columns)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = predictor.outputs("near", columns)
    assert rough.dtype == np.float32
    assert not np.array_equal(rough, exact)
    assert np.abs(rough - exact).max() < 0.1


@pytest.mark.slow
def test_fewer_dev_rows_are_the_same_each_time_and_all_are_scored_at_the_end(data, tiny_bert, tmp_path, monkeypatch):
    (one,) = read(task("same", data))
    few = with_fewer_dev_rows(one, 5)
    assert few.parts["train"] is one.parts["train"]
    assert with_fewer_dev_rows(one, 0) is with_fewer_dev_rows(one, 16) is one
    rows, kept = one.parts["dev"], few.parts["dev"]
    whole = list(zip(*rows.columns, rows.targets, strict=True))
    drawn = [whole.index(row) for row in zip(*kept.columns, kept.targets, strict=True)]
    assert len(drawn) == 5
    assert drawn == sorted(drawn)
    assert with_fewer_dev_rows(one, 5).parts["dev"].columns == kept.columns
    what = recipe(*all_tasks(data), steps=2, dev={"limit": 4, "every": 1})
    looks, real = [], Predictor.outputs
    monkeypatch.setattr(Predictor, "outputs", lambda self, *given: looks.append(len(given[1][0])) or real(self, *given))
    trained = train_tasks(what, tmp_path / "run", encoder=LayerEncoder(tiny_bert, device="cpu"))
    assert looks == [4] * 6 + [16] * 3  # two looks at three tasks, then the finished model
    confusions = trained.facts["dev"]["confusions"]
    assert {name: np.sum(matrix) for name, matrix in confusions.items()} == {"mood": 16, "same": 16}
    assert trained.facts["best"]["metric"] == "overall, dev (at most 4 rows a task)"
    assert set(trained.facts["dev"]["scores"]) == {"mood/accuracy", "same/accuracy", "near/pearson", "overall"}


@pytest.mark.parametrize(("limit", "expected"), [(-1, "0 or more"), (1, "2 rows or more, or 0 for all")])
def test_a_limit_that_no_score_can_be_of_is_refused(limit, expected):
    with pytest.raises(InputError, match=rf"\[dev\] limit is {limit}; expected {expected}"):
        MultitaskDev(limit=limit)
