"""Training of exits: one pass gives them all, they learn, and the saved model can be cut at each."""

import numpy as np
import pytest
import torch

from layerwise.errors import InputError, MixError, ModelError
from layerwise.model import LayerModel
from layerwise.objectives import exit_contrast, exit_distillation
from layerwise.train.contrastive.dev import DevScore
from layerwise.train.contrastive.student import build_student
from support.commands import call_json
from support.row_files import write
from support.slow_cases import covering, one_in
from support.tiny import SENTENCES
from support.training import (
    encoder_of,
    recipe,
    said,
    save_dev,
    save_masked_bert,
    term,
    texts,
    train_recipe,
)

PAIRS = list(enumerate(zip(said(40, 8), said(40, 9), strict=True)))
EXITS = {"layers": (1, 2, -1), "widths": (0, 8)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_masked_bert(tmp_path_factory.mktemp("masked") / "bert")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(save_dev(tmp_path_factory.mktemp("data")))


@pytest.mark.parametrize(
    ("options", "pooler"),
    one_in(3, covering([{}, {"contrast": 0.0}, {"teacher": 0.0}], ["last @ mean", "last @ mask in means"])),
)
def test_exits_learn(folder, tmp_path, options, pooler):
    beside = [] if options.get("contrast") == 0 else [term("info-nce")]  # which moves the teacher
    what = recipe(*beside, term("exits", **EXITS, **options), model={"pooler": pooler}, steps=12, learning_rate=2e-3)
    trained = train_recipe(what, tmp_path / "run", encoder=encoder_of(folder), corpus=texts(8))
    found = [line["loss_exits" if beside else "loss"] for line in trained.history if "loss" in line]
    assert sum(found[-3:]) < 0.97 * sum(found[:3])


def test_one_pass_gives_the_formula_of_all_exits(folder):
    encoder = encoder_of(folder)
    what = recipe(term("exits", **EXITS, contrast=2.0, teacher=3.0), model={"pooler": "last @ mean"})
    student = build_student(what, encoder, seed=0)
    tokens = encoder.tokenizer(SENTENCES * 2, return_tensors="pt", padding=True)
    calls = []
    hook = encoder.model.register_forward_hook(lambda *_: calls.append(1))
    batch = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"]}
    batch["rows"] = torch.arange(len(SENTENCES))
    loss = student(batch)["loss"]
    hook.remove()
    assert len(calls) == 1
    views = torch.from_numpy(encoder.encode_layers(SENTENCES, "mean"))
    layers = [views[:, layer] for layer in (1, 2, 4)]
    expected = 2 * exit_contrast([(one, one) for one in layers], (32, 8))
    expected = expected + 3 * exit_distillation(layers, (32, 8), views[:, -1])
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)


def test_exits_follow_the_teacher_of_distil(folder):
    encoder = encoder_of(folder)
    distil = term("distil", teacher="x", similarities="none", weight=1e-9)
    exits = term("exits", **EXITS, contrast=0.0, follow="teacher")
    student = build_student(recipe(distil, exits, model={"pooler": "last @ mean"}), encoder, seed=0, teacher_width=16)
    tokens = encoder.tokenizer(SENTENCES, return_tensors="pt", padding=True)
    taught = torch.randn(len(SENTENCES), 1, 16, generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"], "frozen": taught}
    batch["rows"] = torch.arange(len(SENTENCES))
    views = torch.from_numpy(encoder.encode_layers(SENTENCES, "mean"))
    expected = exit_distillation([views[:, layer] for layer in (1, 2, 4)], (32, 8), taught[:, 0])
    assert float(student(batch)["loss"].detach()) == pytest.approx(float(expected), rel=1e-4)
    with pytest.raises(InputError, match="add the objective distil"):
        build_student(recipe(exits), encoder, seed=0)


@pytest.mark.slow
def test_the_saved_model_is_cut_at_every_exit(folder, data, tmp_path):
    what = recipe(
        term("info-nce"),
        term("exits", **EXITS),
        model={"pooler": "last @ mask in means"},
        dev={"task": "stsb", "every": 3},
    )
    trained = train_recipe(what, tmp_path / "run", encoder=encoder_of(folder), corpus=texts(), data=data)
    trained.model.save(tmp_path / "model")
    loaded, scores = LayerModel.load(tmp_path / "model", device="cpu"), trained.facts["dev"]["exits"]
    assert list(scores) == ["layer 1", "layer 2", "layer 4"]
    views = trained.model.encoder.encode_layers(SENTENCES, "mask in means")
    plain = DevScore(what.dev, data)
    for layer in (1, 2, 4):
        for width in (32, 8):
            cut = loaded.at_exit(layer, width)
            np.testing.assert_allclose(cut.encode(SENTENCES), views[:, layer, :width], rtol=1e-4, atol=1e-5)
            assert 100 * plain(cut)[plain.metric] == pytest.approx(scores[f"layer {layer}"][str(width)], abs=1e-3)
    cut = loaded.at_exit(2, 8)
    cut.save(tmp_path / "cut")
    small = LayerModel.load(tmp_path / "cut", device="cpu")
    assert (small.encoder.depth, small.width) == (2, 8)
    np.testing.assert_allclose(small.encode(SENTENCES), cut.encode(SENTENCES), rtol=1e-4, atol=1e-5)
    mean = np.mean([score for by_width in scores.values() for score in by_width.values()])
    assert trained.facts["dev"]["metric"] == "exits_mean"
    assert trained.facts["dev"]["best"] == pytest.approx(mean, abs=1e-3)
    assert "dev.exits.layer 2.8" in (tmp_path / "model" / "README.md").read_text()
    check_commands(tmp_path, data)


def check_commands(folder, data):
    """`evaluate --layers` scores an exit as it is saved by `at_exit`, and `search --max-layer` cuts the model there."""
    LayerModel.load(folder / "model", device="cpu").at_exit(2).save(folder / "two")
    options = ("--tasks", "stsb", "--data", data)
    cut = call_json("evaluate", folder / "model", *options, "--layers", "2 @ mask in means")
    saved = call_json("evaluate", folder / "two", *options)
    assert cut["mix"] == saved["mix"] == "2 @ mask in means"
    assert cut["tasks"]["stsb"] == pytest.approx(saved["tasks"]["stsb"], abs=1e-4)
    pairs = write(folder / "pairs.csv", [{"sentence1": a, "sentence2": b, "score": n % 6} for n, (a, b) in PAIRS])
    found = call_json("search", folder / "model", pairs, "--max-layer", 2, "--save", folder / "found")
    assert set(found["chosen"]["layers"]) <= {0, 1, 2}
    assert LayerModel.load(folder / "found", device="cpu").encoder.depth <= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": (1, 9)}, "There is no layer 9"),
        ({"layers": (1,), "widths": (33,)}, "a layer has 32 numbers"),
    ],
)
def test_exits_that_the_encoder_does_not_have(folder, options, message):
    with pytest.raises((InputError, MixError), match=message):
        build_student(recipe(term("exits", **options)), encoder_of(folder), seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": (1, 1)}, "given twice"),
        ({"layers": (1,), "contrast": 0.0, "teacher": 0.0}, "learn nothing"),
        ({"layers": ()}, "layers"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(InputError, match=message):
        term("exits", **options)


def test_a_pooler_of_several_poolings_is_refused(folder):
    what = recipe(term("info-nce"), term("exits", layers=(1,)), model={"pooler": "last @ cls | last @ mean"})
    with pytest.raises(InputError, match="cuts one token pooling"):
        build_student(what, encoder_of(folder), seed=0)
    with pytest.raises(ModelError, match="several ways"):
        LayerModel(encoder_of(folder), "last @ cls | last @ mean").at_exit(2)
