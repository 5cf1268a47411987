"""A training that is stopped: early, by a kill, by a loss that is no number; and what is left of it."""

import itertools
import json
import os
import shutil
import time
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from layerwise.errors import InputError, TrainingError
from layerwise.train import read_corpus, read_metrics
from layerwise.train.contrastive.dev import DevScore
from layerwise.train.loop.callbacks import MetricsFile
from layerwise.train.loop.checkpoints import last_checkpoint
from support.slow_cases import covering, one_in, some_slow
from support.training import (
    encoder_of,
    recipe,
    said,
    same_weights,
    save_dev,
    save_masked_bert,
    term,
    texts,
    train_recipe,
    trainings,
    weights,
)

INFO_NCE = term("info-nce")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_masked_bert(tmp_path_factory.mktemp("masked") / "bert")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(save_dev(tmp_path_factory.mktemp("data")))


@pytest.fixture
def run(folder, tmp_path):
    return trainings(folder, tmp_path)


class Scripted:
    """Dev scores by the step, in place of the real ones, which are kept; and something that happens at a step."""

    def __init__(self, monkeypatch, scores):
        self.scores, self.real, self.step, self.metric = scores, {}, 0, ""
        truly = DevScore.__call__

        def score(dev, model):
            found, self.metric = truly(dev, model), dev.metric
            self.real[self.step] = found[dev.metric]
            return found | {dev.metric: self.scores[self.step]}

        monkeypatch.setattr(DevScore, "__call__", score)

    def on_step(self, step, *_):
        self.step = step


def test_the_best_checkpoint_is_kept_and_loaded(run, data, monkeypatch, tmp_path):
    script = Scripted(monkeypatch, {2: 0.1, 4: 0.5, 6: 0.3, 8: 0.2})
    what = recipe(steps=8, dev={"task": "stsb", "every": 2}, learning_rate=5e-3)
    trained = run(what, data=data, on_step=script.on_step, folder=tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == ["checkpoint-4", "checkpoint-8"]
    monkeypatch.undo()
    score = DevScore(what.dev, data)(trained.model)[script.metric]
    assert score == pytest.approx(script.real[4], abs=1e-6)
    assert score != pytest.approx(script.real[8], abs=1e-4)
    assert trained.facts["dev"] == {"task": "stsb, dev", "metric": script.metric, "best": 50.0, "at_step": 4}
    kept = load_file(tmp_path / "run" / "checkpoint-4" / "model.safetensors")
    assert all(torch.equal(value, weights(trained)[name]) for name, value in kept.items())


class Killed(Exception):  # noqa: N818
    pass


def killed_at(step, then=lambda *_: None):
    def on_step(now, *metrics):
        then(now, *metrics)
        if now == step:
            raise Killed("now")

    return on_step


@pytest.mark.parametrize("interrupted", some_slow([False, True], slow=[False]))
def test_early_stopping_stops_also_after_a_break(run, data, monkeypatch, tmp_path, interrupted):
    script = Scripted(monkeypatch, {2: 0.5, 4: 0.4, 6: 0.3, 8: 0.2})
    what = recipe(steps=8, dev={"task": "stsb", "every": 2, "patience": 2})
    if interrupted:
        with pytest.raises(Killed, match="now"):
            run(what, data=data, on_step=killed_at(5, script.on_step), folder=tmp_path / "run")
    trained = run(what, data=data, on_step=script.on_step, folder=tmp_path / "run", resume=interrupted)
    assert trained.facts["steps"] == 6
    assert trained.facts["dev"]["at_step"] == 2
    again = run(what, data=data, on_step=script.on_step, folder=tmp_path / "run", resume=True)
    assert again.facts["steps"] == 6
    assert same_weights(again, trained)


BROKEN = {
    "dropout": recipe(schedule="linear", warmup=0.3, dev={"every": 2}),
    "attention and sscl": recipe(
        INFO_NCE,
        term("sscl", anchors="last"),
        model={"pooler": "attention(cls, mean)", "head": "mlp"},
        dev={"every": 4},
    ),
    "draws, pull and the frozen copy": recipe(term("sg", form="opt2", hidden=8, pull=0.5), dev={"every": 3}),
    "masked words": recipe(INFO_NCE, term("mlm"), dev={"every": 4}),
    "diffcse": recipe(INFO_NCE, term("diffcse", weight=0.5), model={"head": "mlp-bn"}, dev={"every": 4}),
    "chunks": recipe(chunk=5, dev={"every": 2}),
    "a queue": recipe(term("info-nce", queue=11, momentum=0.9), dev={"every": 3}),
    "denoised, in two prompts, whitened": recipe(
        INFO_NCE,
        term("whitening", ridge=0.1),
        model={"pooler": "last @ mask in means", "denoise": True, "second_prompt": "describes"},
        dev={"every": 3},
    ),
    "epochs": recipe(epochs=1.7, steps=None, dev={"every": 2}),
}
COVERED = {  # "dropout" by the clock that goes back, by "epochs" and, its schedule, by the multitask engine
    "dropout",
    "attention and sscl",  # weights beside the encoder's are those of "diffcse" and "draws", too
    "masked words",
    "chunks",
}


@pytest.mark.parametrize("name", one_in(2, some_slow(BROKEN, slow=COVERED)))
def test_killed_and_resumed_equals_uninterrupted(run, tmp_path, name):
    what, corpus = BROKEN[name], texts(18)  # three batches an epoch, the last of two rows
    whole = run(what, corpus, seed=1)
    assert len(whole.history) == 6
    with pytest.raises(Killed, match="now"):
        run(what, corpus, seed=1, folder=tmp_path / "run", on_step=killed_at(5))
    resumed = run(what, corpus, seed=1, folder=tmp_path / "run", resume=True)
    assert resumed.history == whole.history
    assert [line["step"] for line in resumed.history] == list(range(1, len(whole.history) + 1))
    assert same_weights(resumed, whole)


def test_a_clock_that_goes_back_changes_nothing(run, tmp_path, monkeypatch):
    what, corpus = recipe(steps=8, dev={"every": 2}), texts(26)
    whole = run(what, corpus, seed=1)
    with pytest.raises(Killed, match="now"):
        run(what, corpus, seed=1, folder=tmp_path / "run", on_step=killed_at(7))
    checkpoints = sorted((tmp_path / "run").glob("checkpoint-*"))
    assert len(checkpoints) > 1
    now = time.time()
    for place, checkpoint in enumerate(checkpoints):
        os.utime(checkpoint, (now - 3600 * place, now - 3600 * place))  # the last is the oldest
    moments = itertools.count(now, -3600)
    monkeypatch.setattr("time.time", lambda: next(moments))
    resumed = run(what, corpus, seed=1, folder=tmp_path / "run", resume=True)
    assert [line["loss"] for line in resumed.history] == [line["loss"] for line in whole.history]
    assert same_weights(resumed, whole)


@pytest.mark.parametrize(("every", "rows"), one_in(2, covering([4, 5], [None, 20])))
def test_a_streamed_training_goes_on_in_the_right_pass(run, tmp_path, every, rows):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(said(20)))
    what = recipe(steps=8, dev={"every": every}, data={"stream": True, "files": (str(file),)})  # three batches a pass

    def streamed():
        return read_corpus(file, "text", stream=True, rows=rows)

    whole = run(what, streamed())
    with pytest.raises(Killed, match="now"):
        run(what, streamed(), folder=tmp_path / "run", on_step=killed_at(7))
    resumed = run(what, streamed(), folder=tmp_path / "run", resume=True)
    assert resumed.history == whole.history
    assert same_weights(resumed, whole)


def test_a_finished_training_taken_up_again_is_as_it_was(run, tmp_path):
    what = recipe(steps=4, dev={"every": 2})
    once = run(what, folder=tmp_path / "run")
    with pytest.raises(InputError, match="holds checkpoints of a training; resume with --resume"):
        run(what, folder=tmp_path / "run")
    again = run(what, folder=tmp_path / "run", resume=True)
    assert same_weights(once, again)
    assert once.history == again.history


def test_a_checkpoint_of_another_recipe_is_refused(run, tmp_path):
    run(recipe(steps=2, dev={"every": 2}), folder=tmp_path / "run")
    with pytest.raises(InputError, match=r"lacks .*; it is of another recipe or encoder"):
        run(recipe(steps=4, model={"head": "mlp"}), folder=tmp_path / "run", resume=True)


@pytest.fixture(scope="module")
def killed(folder, tmp_path_factory):
    """The recipe and the folder of a training that was killed after its first checkpoint; copy it to resume."""
    what, root = recipe(steps=4, dev={"every": 2}), tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed, match="now"):
        trainings(folder, root)(what, folder=root / "run", on_step=killed_at(3))
    return what, root / "run"


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
def test_a_checkpoint_with_one_bit_changed_is_refused(run, killed, tmp_path, name):
    what, stopped = killed
    shutil.copytree(stopped, tmp_path / "run")
    (path,) = (tmp_path / "run").glob(f"checkpoint-*/{name}")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"checkpoint-2/{name}: is damaged: its checksum differs; remove .*"):
        run(what, folder=tmp_path / "run", resume=True)


def test_the_metrics_file_is_cut_where_the_run_goes_on(run, tmp_path):
    what, file = recipe(steps=6, dev={"every": 2}), tmp_path / "run" / "metrics.jsonl"
    with pytest.raises(Killed, match="now"):
        run(what, folder=tmp_path / "run", on_step=killed_at(6))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    file.write_text(file.read_text().replace('"step": 5, ', '"step": 5, "stale": 1, '))
    resumed = run(what, folder=tmp_path / "run", resume=True)
    assert [line["step"] for line in resumed.history] == [1, 2, 3, 4, 5, 6]
    assert not any("stale" in line for line in resumed.history)
    assert resumed.history == [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["epoch"] for line in resumed.history] == [round(step / 6, 4) for step in range(1, 7)]


@pytest.mark.parametrize(("log_every", "poisoned", "said"), [(1, 3, "checkpoint-2"), (100, 2, "checkpoint-2")])
def test_a_loss_that_is_no_number_stops_and_leaves_the_last_good_checkpoint(
    folder, tmp_path, log_every, poisoned, said
):
    encoder, what = encoder_of(folder), recipe(dev={"every": 2, "log_every": log_every})

    def poison(step, *_):
        if step == poisoned + (log_every > 1):
            with torch.no_grad():
                encoder.model.encoder.layer[0].output.dense.weight.fill_(torch.nan)

    message = rf"the loss is not a number at step 4; the last good checkpoint is .*{said}; lower the learning rate, in"
    with pytest.raises(TrainingError, match=message):
        train_recipe(what, tmp_path, encoder=encoder, corpus=texts(), on_step=poison)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == [said]
    assert all(value.isfinite().all() for value in load_file(tmp_path / said / "model.safetensors").values())
    resumed = train_recipe(what, tmp_path, encoder=encoder_of(folder), corpus=texts(), resume=True)
    assert resumed.facts["steps"] == 6


def test_a_gradient_that_is_no_number_is_not_saved(folder, tmp_path):
    encoder, steps = encoder_of(folder), [0]
    weight = encoder.model.encoder.layer[0].output.dense.weight
    weight.register_hook(lambda gradient: gradient * torch.nan if steps[-1] == 3 else gradient)
    with pytest.raises(TrainingError, match=r"gradient is not a number at step 4; the last good checkpoint is .*-2"):
        train_recipe(
            recipe(dev={"every": 2}), tmp_path, encoder=encoder, corpus=texts(), on_step=lambda s, *_: steps.append(s)
        )
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]


def test_what_is_no_number_is_null_in_the_metrics(tmp_path):
    state = SimpleNamespace(is_world_process_zero=True, global_step=3)
    MetricsFile(tmp_path / "metrics.jsonl").on_log(None, state, None, {"loss": 0.5, "eval_near/pearson": float("nan")})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 3, "loss": 0.5, "eval_near/pearson": null}\n'


def test_what_a_killed_run_left_by_half_is_passed_over(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.on_train_begin(None, SimpleNamespace(is_world_process_zero=True, global_step=2), None)
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 2.0}]
    for name in ("checkpoint-2", "checkpoint-10", "checkpoint-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text("{}")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
