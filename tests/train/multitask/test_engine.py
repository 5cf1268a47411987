"""Training several tasks on one encoder: what learns, what gets exactly no gradient, and breaks that leave no trace."""

import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError, MixError
from layerwise.objectives import info_nce
from layerwise.train import MultitaskJob, train_seeds
from layerwise.train.loop.grad_cache import cached_backward
from layerwise.train.loop.student import dropout_set
from layerwise.train.multitask.dev import Report, score_tasks
from layerwise.train.multitask.losses import task_loss
from layerwise.train.multitask.schedule import schedule
from layerwise.train.multitask.settings import ITERATIONS
from layerwise.train.multitask.student import build_student, second_view
from layerwise.train.multitask.trainer import MultitaskTrainer
from layerwise.train.multitask.weights import task_weights
from support.multitasking import KINDS, read, recipe, save_tasks, setup, task, train_tasks
from support.slow_cases import one_in
from support.task_batches import NAMES, all_tasks, batches_of


@pytest.fixture
def run(tiny_bert, tmp_path):
    """Train from the encoder as it is on disk, in a folder of its own."""
    runs = iter(range(99))

    def run(what, **options):
        options.setdefault("folder", tmp_path / f"run-{next(runs)}")
        return train_tasks(what, encoder=LayerEncoder(tiny_bert, device="cpu"), **options)

    return run


def built(what, encoder, seed=0):
    tasks = read(*what.setups)
    return build_student(what, tasks, encoder, seed=seed), tasks, next(iter(batches_of(tasks, encoder)))


def scores(trained, role="dev"):
    return trained.facts[role]["scores"]


def gradients(module):
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def losses(trained):
    return [line["loss"] for line in trained.history if "loss" in line]


# Batches


@pytest.mark.parametrize(
    "mixing",
    one_in(2, [{"iteration": name} for name in ITERATIONS] + [{"iteration": "temperature", "temperature": 8.0}]),
    ids=lambda mixing: "-".join(map(str, mixing.values())),
)
def test_a_step_has_what_the_schedule_says(data, encoder, tmp_path, mixing):
    tasks = read(task("mood", save_tasks(tmp_path, train=10)), *all_tasks(data)[1:])
    batches = batches_of(tasks, encoder, batch_size=6, seed=3, **mixing)
    batches.set_epoch(2)
    planned = list(schedule([10, 40, 40], [6, 6, 6], seed=3, epoch=2, **mixing))
    found = list(batches)
    assert len(found) == len(planned) == len(batches)
    for step, plan in zip(found, planned, strict=True):
        real = [own for own in plan if not own.is_padding]
        assert list(step) == [NAMES[own.task] for own in real]
        for own in real:
            one = tasks[own.task]
            batch, rows = step[one.name], one.parts["train"]
            texts = [column[row] for column in rows.columns for row in own.rows]
            wanted = encoder.tokenizer(texts, padding=True, truncation=True, max_length=16, return_tensors="pt")
            assert torch.equal(batch["input_ids"], wanted["input_ids"])
            assert torch.equal(batch["attention_mask"], wanted["attention_mask"])
            assert np.allclose(batch["targets"], rows.targets[own.rows])
            assert batch["row_mask"].tolist() == own.row_mask.tolist()


def test_batches_skip_and_leave_padding_alone_out(tmp_path, encoder, data):
    small = read(task("mood", save_tasks(tmp_path, train=10)), task("same", data))
    batches = batches_of(small, encoder, iteration="padding")
    found = list(batches)
    assert [sorted(step) for step in found] == [["mood", "same"], ["mood", "same"], ["same"], ["same"], ["same"]]
    assert found[1]["mood"]["row_mask"].tolist() == [True, True] + [False] * 6
    batches.skip(3)
    assert torch.equal(next(iter(batches))["same"]["input_ids"], found[3]["same"]["input_ids"])
    assert len(list(batches)) == 5  # skipped once
    with pytest.raises(InputError, match="6 steps to skip; an epoch has 5"):
        batches.skip(6)
    with pytest.raises(InputError, match="epoch is -1"):
        batches.set_epoch(-1)


# The student's loss


@pytest.mark.parametrize("weights", ["equal", "inverse-size", "given"])
def test_the_loss_is_the_weighted_sum_of_the_tasks(data, encoder, weights):
    given = {
        name: {"weight": weight} if weights == "given" else {} for name, weight in zip(NAMES, (2, 0.5, 3), strict=True)
    }
    what = recipe(*all_tasks(data, **given), mixing={"weights": weights})
    student, tasks, step = built(what, encoder)
    found = student(step)
    by_hand = []
    for one in tasks:
        batch, name = step[one.name], one.name
        hidden = encoder.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        embeddings = (hidden * mask).sum(1) / mask.sum(1)
        columns = embeddings.chunk(2) if one.setup.task.is_pair else (embeddings,)
        by_hand.append(task_loss(student.head_of(name)(*columns), batch["targets"], one.loss))
        assert found["parts"][name] == pytest.approx(by_hand[-1].item(), abs=1e-5)
    wanted = task_weights(weights, [40, 40, 40], [one.setup.objective.weight for one in tasks])
    assert found["loss"].item() == pytest.approx(
        sum(w * x.item() for w, x in zip(wanted, by_hand, strict=True)), abs=1e-4
    )


def test_contrast_is_added_by_its_weight(data, encoder):
    what = recipe(task("same", data, contrast=0.5, contrast_temperature=0.1))
    student, _, step = built(what, encoder)
    found = student(step)  # in eval mode both views are one
    first = student.encode(step["same"]["input_ids"], step["same"]["attention_mask"])["embeddings"]
    assert len(first) == 16  # both columns of the pairs are contrasted
    partners = torch.eye(16, dtype=torch.bool).roll(8, dims=1)
    wanted = info_nce(first, first, temperature=0.1, ignored=partners)
    assert found["parts"]["same_contrast"] == pytest.approx(wanted.item(), abs=1e-5)
    assert found["loss"].item() == pytest.approx((found["parts"]["same"] + 0.5 * wanted).item(), abs=1e-5)


def test_a_task_of_weight_0_is_not_computed_and_gets_exactly_no_gradient(data, encoder):
    what = recipe(*all_tasks(data, mood={"weight": 0}), mixing={"weights": "given"})
    student, _, step = built(what, encoder)  # it is given all tasks here; a training leaves this one out altogether
    found = student(step)
    found["loss"].backward()
    assert set(found["parts"]) == {"same", "near"}
    assert not gradients(student.head_of("mood"))
    ours = [gradient.clone() for gradient in gradients(encoder.model)]
    student.zero_grad()
    step["mood"]["input_ids"].fill_(7)
    student(step)["loss"].backward()
    assert all(torch.equal(one, other) for one, other in zip(ours, gradients(encoder.model), strict=True))


def test_a_training_leaves_a_task_of_weight_0_out(data, run):
    trained = run(recipe(*all_tasks(data, mood={"weight": 0}), mixing={"weights": "given"}, steps=2))
    assert set(trained.model.heads) == {"same", "near"}
    assert set(scores(trained)) == {"same/accuracy", "near/pearson", "overall"}


def test_rows_of_padding_give_no_gradient(data, encoder):
    student, _, step = built(recipe(task("near", data, head="mlp", contrast=1)), encoder)
    batch = step["near"]
    batch["row_mask"][5:] = False

    def after(tokens):
        student.zero_grad()
        student({"near": batch | {"input_ids": tokens}})["loss"].backward()
        return [gradient.clone() for gradient in gradients(student)]

    other = batch["input_ids"].clone()
    other[5:8], other[13:] = 9, 9  # of both columns
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(after(batch["input_ids"]), after(other), strict=True))


def test_contrast_alone_gives_the_encoder_nothing_of_the_supervised_loss(data, encoder):
    student, tasks, step = built(recipe(task("mood", data, supervised=False, contrast=1)), encoder)
    first, second = (student.run_pass(one)["embeddings"] for one in student.passes(step))
    student._supervised_loss(tasks[0].setup, step["mood"], first).backward(retain_graph=True)
    assert not gradients(encoder.model)
    assert all(gradient.abs().sum() > 0 for gradient in gradients(student.head_of("mood")))
    student._contrast_loss(tasks[0].setup, step["mood"], first, second).backward()
    assert any(gradient.abs().sum() > 0 for gradient in gradients(encoder.model))


def test_the_rate_of_the_second_view_is_its_own_and_put_back_whatever_happens(data, encoder):
    student, _, step = built(recipe(task("mood", data, contrast=1, contrast_dropout=0.4)), encoder)
    seen, real = [], student.encode
    drops = [module for module in encoder.model.modules() if isinstance(module, torch.nn.Dropout)]
    before = [module.p for module in drops]

    def encode(*given):
        seen.append({module.p for module in drops})
        return real(*given)

    student.encode = encode
    student.train()
    student(step)
    assert seen == [set(before), {0.4}]
    assert [module.p for module in drops] == before
    with pytest.raises(RuntimeError, match="broken"), dropout_set(encoder.model, 0.4):
        raise RuntimeError("broken")
    assert [module.p for module in drops] == before


def test_tasks_have_second_views_by_rates_of_their_own(data, encoder):
    tasks = task("mood", data, contrast=1, contrast_dropout=0.4), task("same", data, contrast=1, contrast_dropout=0.2)
    student, _, step = built(recipe(*tasks, task("near", data, contrast=1)), encoder)
    drop = next(module for module in encoder.model.modules() if isinstance(module, torch.nn.Dropout))
    seen, real = {}, student.encode
    for encoder_pass in student.passes(step):
        student.encode = lambda *given, names=encoder_pass.rows: (
            seen.update(dict.fromkeys(names, drop.p)) or real(*given)
        )
        student.run_pass(encoder_pass)
    second = {second_view("mood"): 0.4, second_view("same"): 0.2, second_view("near"): 0.1}
    assert seen == dict.fromkeys(NAMES, 0.1) | second


def test_every_head_starts_in_its_own_way_by_the_seed(data, tiny_bert):
    def weights(seed):
        what = recipe(
            task("mood", data),
            setup(**KINDS["mood"], name="again", file=str(data / "mood.csv"), max_length=16, dropout=0.1),
            model={"head": "linear", "width": 5},
        )
        student = build_student(what, read(*what.setups), LayerEncoder(tiny_bert, device="cpu"), seed=seed)
        heads = [student.head, student.head_of("mood"), student.head_of("again")]
        return [next(own for own in head.parameters() if own.ndim == 2) for head in heads]

    shared, mood, again = weights(0)
    assert (len(shared), mood.shape) == (5, (2, 5))  # the shared head's width is what the tasks' heads take
    assert not torch.equal(mood, again)
    assert all(torch.equal(one, same) for one, same in zip((shared, mood, again), weights(0), strict=True))
    assert not any(torch.equal(one, other) for one, other in zip((shared, mood, again), weights(1), strict=True))


def test_frozen_words_stay_while_the_rest_learns(data, run, tiny_bert):
    start = LayerEncoder(tiny_bert, device="cpu").model.state_dict()
    trained = run(recipe(task("mood", data), model={"freeze": ("embeddings",)}, steps=2))
    for name, tensor in trained.model.model.encoder.model.state_dict().items():
        if name.startswith("encoder.") and name.endswith("query.weight"):
            assert not torch.equal(tensor, start[name])
        assert not name.startswith("embeddings.") or torch.equal(tensor, start[name])


def test_a_frozen_encoder_stays_in_eval_mode_without_gradient(data, encoder):
    what = recipe(
        task("mood", data), mixing={"frozen_encoder": True}, model={"pooler": "attention(cls, mean)", "head": "mlp"}
    )
    student, _, step = built(what, encoder)
    student.train()
    assert student.head_of("mood").training
    assert not any(module.training for module in encoder.model.modules())
    student(step)["loss"].backward()
    assert not gradients(encoder.model)
    assert gradients(student.attention)
    assert gradients(student.head)


# Gradient caching


@pytest.mark.parametrize("chunk", one_in(2, [3, 64]))
@pytest.mark.parametrize("frozen", [False, True])
def test_gradient_caching_equals_the_plain_step(data, encoder, chunk, frozen):
    contrast = {} if frozen else {"contrast": 0.5, "contrast_dropout": 0.3}
    tasks = all_tasks(data, mood=contrast, near={"head": "mlp", "supervised": frozen, **(contrast or {"contrast": 0})})
    mixing = {"weights": "learned", "frozen_encoder": frozen}
    student, _, step = built(recipe(*tasks, mixing=mixing, model={"head": "linear", "width": 5}), encoder)
    plain = student(step)  # in eval mode: chunks have dropout masks of their own
    plain["loss"].backward()
    wanted = {
        name: parameter.grad.clone() for name, parameter in student.named_parameters() if parameter.grad is not None
    }
    student.zero_grad()
    found = cached_backward(student, step, chunk=chunk)
    torch.testing.assert_close(found["loss"], plain["loss"].detach())
    torch.testing.assert_close(found["parts"], plain["parts"])
    given = {name: parameter.grad for name, parameter in student.named_parameters() if parameter.grad is not None}
    assert given.keys() == wanted.keys()
    for name, gradient in given.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-6)


def test_gradient_caching_repeats_the_dropout_of_its_first_pass(data, encoder):
    """With chunks of a whole batch, its losses and gradients are those of the plain step, dropout included."""
    tasks = all_tasks(data, mood={"contrast": 0.5, "contrast_dropout": 0.3})
    student, _, step = built(recipe(*tasks), encoder)
    student.train()
    results = []
    for run in (lambda: student(step), lambda: cached_backward(student, step, chunk=64)):
        student.zero_grad()
        torch.manual_seed(5)
        output = run()
        if output["loss"].requires_grad:
            output["loss"].backward()
        results.append((output["loss"].item(), [gradient.clone() for gradient in gradients(student)], torch.rand(1)))
    (loss, plain, _), (cached_loss, cached, _) = results
    assert loss == cached_loss
    assert results[0][2] == results[1][2]  # the generator is where it would be
    for one, other in zip(plain, cached, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_training_by_gradient_caching_has_the_losses_of_the_plain_one(data, run):
    tasks = all_tasks(data, mood={"dropout": 0.0}, same={"dropout": 0.0})
    plain, cached = (
        run(recipe(*tasks, model={"dropout": 0.0}, steps=3, mixing={"iteration": "padding"}, **options))
        for options in ({}, {"chunk": 5})
    )
    assert losses(cached) == pytest.approx(losses(plain), rel=1e-4)
    assert cached.facts["recipe"]["train"]["chunk"] == 5


# Whole trainings


@pytest.mark.parametrize(
    ("name", "steps", "more"),
    one_in(
        2,
        [
            pytest.param("mood", 50, {"head": "linear"}, marks=pytest.mark.slow),  # as with the contrast below
            pytest.param("mood", 50, {"head": "mlp", "loss": "binary"}, marks=pytest.mark.slow),
            ("mood", 40, {"contrast": 0.1, "contrast_dropout": 0.2}),
            pytest.param("same", 90, {"features": "concat", "head": "mlp"}, marks=pytest.mark.slow),
            pytest.param("same", 90, {"features": "difference-sum"}, marks=pytest.mark.slow),
            ("same", 45, {"features": "all", "loss": "cross-entropy", "metric": "f1"}),
            ("near", 25, {"head": "cosine"}),
            ("near", 50, {"head": "linear", "features": "all", "metric": "spearman"}),
            pytest.param("near", 140, {"head": "mlp"}, marks=pytest.mark.slow),
        ],
    ),
)
def test_every_head_feature_and_loss_learns(data, run, name, steps, more):
    # A fresh network on pairs needs longer than a layer, and steps small enough not to jump about.
    rate = 1e-3 if more == {"head": "mlp"} else 2e-3
    trained = run(recipe(task(name, data, **more), dev={"log_every": 5}, steps=steps, learning_rate=rate))
    told = losses(trained)
    assert np.mean(told[-2:]) < 0.8 * np.mean(told[:2])


@pytest.mark.parametrize(
    ("mixing", "model"),
    one_in(
        2,
        [
            pytest.param(
                {"iteration": "padding", "weights": "inverse-size"}, {}, marks=pytest.mark.slow
            ),  # padding is trained by gradient caching above, the weights are in the loss above
            ({"iteration": "truncating", "weights": "learned"}, {"pooler": "attention(cls, mean)"}),
            pytest.param(
                {"iteration": "proportional"}, {"pooler": "first-last @ mean", "head": "mlp"}, marks=pytest.mark.slow
            ),  # broken off and resumed below
            ({"iteration": "temperature", "temperature": 2.0}, {"pooler": "last @ cls | last @ mean"}),
        ],
    ),
)
def test_all_tasks_go_together_and_the_same_seed_is_the_same(data, run, mixing, model):
    what = recipe(*all_tasks(data), mixing=mixing, model=model, steps=2, weight_decay=0.1)
    one, same, other = run(what, seed=1), run(what, seed=1), run(what, seed=2)
    assert losses(one) == losses(same) != losses(other)
    assert one.facts["dev"] == same.facts["dev"]
    assert set(scores(one)) == {"mood/accuracy", "same/accuracy", "near/pearson", "overall"}
    assert np.sum(one.facts["dev"]["confusions"]["mood"]) == 16
    assert one.facts["tasks"]["near"]["rows"] == {"train": 40, "dev": 16}


@pytest.mark.slow
def test_learned_weights_come_to_one_over_the_loss_while_the_encoder_is_trained(data, run):
    """At a usual rate of the encoder, which alone would leave them where they start."""
    mixing = {"weights": "learned", "learned_rate": 0.06}
    trained = run(recipe(*all_tasks(data), mixing=mixing, steps=50, learning_rate=2e-5, weight_decay=0.5))
    lines = [line for line in trained.history if "loss" in line]
    for name, half, start in (("mood", 1, 1), ("same", 1, 1), ("near", 0.5, 0.5)):
        weight = trained.facts["tasks"][name]["weight"]
        loss = np.mean([line[f"loss_{name}"] for line in lines[-20:]])
        assert weight == pytest.approx(half / loss, rel=0.15) != pytest.approx(start, rel=0.15)
        assert lines[-1][f"weight_{name}"] == pytest.approx(weight)


def test_learned_weights_have_a_rate_of_their_own_and_no_decay(data, run, monkeypatch):
    made = []
    real = MultitaskTrainer.create_optimizer
    monkeypatch.setattr(
        MultitaskTrainer, "create_optimizer", lambda self, *given: made.append(real(self, *given)) or made[-1]
    )
    trained = run(recipe(*all_tasks(data), mixing={"weights": "learned"}, steps=1, weight_decay=0.5))
    *others, own = made[-1].param_groups
    assert (own["initial_lr"], own["weight_decay"], len(own["params"])) == (0.02, 0.0, 3)
    assert not {id(one) for one in own["params"]} & {id(one) for group in others for one in group["params"]}
    assert {group["weight_decay"] for group in others} == {0.5, 0.0}
    assert sum(len(group["params"]) for group in others) > 10
    assert [trained.facts["tasks"][name]["weight"] for name in NAMES] != [1, 1, 0.5]


@pytest.mark.slow
def test_gradients_are_clipped(data, run, tiny_bert):
    """So hard that AdamW has nothing to go by, its epsilon being larger."""
    before = LayerEncoder(tiny_bert, device="cpu").model.state_dict()

    def moved(norm):
        trained = run(recipe(*all_tasks(data), steps=2, max_grad_norm=norm))
        after = trained.model.model.encoder.model.state_dict()
        return max(
            (value - after[name]).abs().max().item() for name, value in before.items() if value.is_floating_point()
        )

    assert moved(1e-12) < 1e-6 < 1e-4 < moved(1.0)
    assert moved(0.0) > 1e-4  # 0: not clipped


def test_a_task_with_labelled_test_rows_is_scored_on_them(data, run, tmp_path):
    lines = (save_tasks(tmp_path) / "mood.csv").read_text().splitlines()
    moods = [line.replace(",train", ",test") if row < 6 else line for row, line in enumerate(lines[1:])]
    (tmp_path / "mood.csv").write_text("\n".join([lines[0], *moods]))
    mood = task("mood", tmp_path, splits={"train": "train", "dev": "dev", "test": "test"})
    some = run(recipe(mood, task("same", data), steps=2))
    assert set(scores(some, "test")) == {"mood/accuracy"}  # no overall score of some of the tasks
    alone = run(recipe(mood, steps=2))
    assert set(scores(alone, "test")) == {"mood/accuracy", "overall"}
    rows = read(mood)[0].parts["test"]
    right = np.mean(alone.model.outputs("mood", rows.columns).argmax(1) == rows.targets)
    assert scores(alone, "test")["mood/accuracy"] == pytest.approx(right)


def test_a_frozen_encoder_stays_bit_for_bit(data, run, tiny_bert):
    trained = run(recipe(*all_tasks(data), mixing={"frozen_encoder": True}, steps=4, weight_decay=0.1))
    before = LayerEncoder(tiny_bert, device="cpu").model.state_dict()
    after = trained.model.model.encoder.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert [record.what for record in trained.model.model.fitted_on] == ["pooler"] * 3


def test_the_best_checkpoint_by_the_overall_score_is_loaded(data, run, monkeypatch, tmp_path):
    scripted, real = iter([0.1, 0.5, 0.3, 0.2]), score_tasks
    monkeypatch.setattr(
        "layerwise.train.multitask.dev.score_tasks",
        lambda *given: Report({"near/pearson": 0.0}, next(scripted, 9.0), {}) if len(given) == 2 else real(*given),
    )
    trained = run(recipe(*all_tasks(data), steps=8, dev={"every": 2}), folder=tmp_path / "run")
    kept = load_file(tmp_path / "run" / "checkpoint-4" / "model.safetensors")
    now = trained.model.model.encoder.model.state_dict()
    assert all(torch.equal(value, kept[f"backbone.{name}"]) for name, value in now.items())
    assert trained.facts["best"] == {"metric": "overall, dev", "score": 0.5, "at_step": 4}
    dev = real(trained.model, read(*all_tasks(data)))
    assert scores(trained) == pytest.approx(dev.metrics(), abs=1e-6)


@pytest.mark.slow
def test_an_interrupted_training_goes_on_with_the_same_rows_alone(tiny_bert, tmp_path):
    what = recipe(task("mood", save_tasks(tmp_path)), steps=6, dev={"every": 2})

    def go(name, **options):
        return train_seeds(MultitaskJob(what, encoder=str(tiny_bert)), tmp_path / name, device="cpu", **options)

    def stop(_seed, step, *_):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go("run", on_step=stop)
    rows = (tmp_path / "mood.csv").read_text()
    for other in (
        rows.replace("good", "alpha"),
        rows.replace("river", "wind"),
    ):  # classes in another order, texts
        (tmp_path / "mood.csv").write_text(other)
        with pytest.raises(
            InputError, match="was started with other rows in its data; give the same data, or another folder"
        ):
            go("run", resume=True)
    (tmp_path / "mood.csv").write_text(rows)
    resumed, whole = go("run", resume=True), go("whole")
    assert resumed.results[0]["dev"] == whole.results[0]["dev"]
    assert resumed.results[0]["best"] == whole.results[0]["best"]


def test_losses_are_logged_at_every_look_and_at_the_end(data, run):
    def logged(**dev):
        history = run(recipe(task("mood", data), steps=5, learning_rate=1e-9, dev={"log_every": 25, **dev})).history
        return [line["step"] for line in history if "loss" in line]

    assert logged() == [5]
    assert logged(every=2) == [2, 4, 5]
    assert logged(every=2, patience=1) == [2, 4]  # where it stops, as nothing gets better


def test_texts_that_are_cut_are_told_of(data, run, caplog):
    with caplog.at_level("WARNING", "layerwise.train.multitask.job"):
        run(recipe(task("mood", data, max_length=5), task("same", data), steps=2))
    said = next(record.getMessage() for record in caplog.records if record.getMessage().startswith("task mood"))
    assert re.fullmatch(
        r"task mood: \d+\.\d % of its texts were longer than max_length = 5 tokens, and were truncated", said
    )
    assert 0 < float(said.split()[2]) < 100


def test_a_pooler_of_layers_that_are_not_there_is_named(data, run):
    with pytest.raises(MixError, match=r"\[model\] pooler '9 @ mean' of .*: There is no layer 9"):
        run(recipe(task("mood", data), model={"pooler": "9 @ mean"}))


def test_patience_stops_early(data, run, monkeypatch):
    scripted = iter([0.5, 0.4, 0.3])
    monkeypatch.setattr(
        "layerwise.train.multitask.dev.score_tasks",
        lambda *given: Report({"near/pearson": 0.0}, next(scripted, 0.0), {}),
    )
    trained = run(recipe(*all_tasks(data), steps=10, dev={"every": 1, "patience": 2}))
    assert trained.facts["steps"] == 3


class Killed(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize(
    "iteration",
    [pytest.param("cycling", marks=pytest.mark.slow), "proportional"],  # cycling is interrupted and resumed above
)
def test_killed_and_resumed_equals_uninterrupted(data, run, tmp_path, iteration):
    what = recipe(
        *all_tasks(data, mood={"contrast": 0.1}),
        mixing={"iteration": iteration, "weights": "learned"},
        steps=9,
        schedule="linear",
        dev={"every": 3},
    )

    def stop(step, *_):
        if step == 7:
            raise Killed("now")

    whole = run(what, seed=1)
    with pytest.raises(Killed, match="now"):
        run(what, seed=1, folder=tmp_path / "run", on_step=stop)
    resumed = run(what, seed=1, folder=tmp_path / "run", resume=True)
    assert resumed.history == whole.history
    assert resumed.facts["dev"] == whole.facts["dev"]
    with pytest.raises(InputError, match="holds checkpoints of a training; resume with --resume"):
        run(what, folder=tmp_path / "run")


# What is refused


@pytest.mark.parametrize(
    ("name", "task_more", "more", "said"),
    [
        ("mood", {}, {"model": {"inference": "last"}}, r"\[model\] unknown key 'inference'"),
        ("mood", {}, {"model": {"head": "mlp-bn"}}, r"\[model\] Unknown head 'mlp-bn'.*Known: none, mlp, linear"),
        ("mood", {"contrast": 1}, {"mixing": {"frozen_encoder": True}}, "'mood': contrast compares two dropout passes"),
        ("near", {}, {"mixing": {"frozen_encoder": True}}, "neither pooler nor heads have weights"),
        ("mood", {"max_length": 500}, {}, "'mood': max_length is 500, but .* takes at most 60 tokens"),
        ("mood", {"contrast": 1}, {"model": {"dropout": 0.0}}, "has no dropout, so two passes over a text are equal"),
    ],
)
def test_what_can_not_be_trained_is_refused(data, run, name, task_more, more, said):
    with pytest.raises(InputError, match=said):
        run(recipe(task(name, data, **task_more), **more))


def test_what_a_task_that_is_left_out_asks_for_does_not_matter(data, run):
    tasks = task("mood", data), task("same", data, contrast=1, weight=0)
    trained = run(recipe(*tasks, mixing={"frozen_encoder": True, "weights": "given"}, steps=1))
    assert set(trained.model.heads) == {"mood"}


def test_outputs_that_are_all_equal_correlate_with_nothing(data, encoder):
    student, tasks, _ = built(recipe(task("near", data, head="linear")), encoder)
    for parameter in student.head_of("near").parameters():
        torch.nn.init.zeros_(parameter)
    found = score_tasks(student.to_predictor(tasks), tasks)
    assert found.scores == {"near/pearson": 0.0}
    assert found.overall == 0.5
