"""Decoders: every pooler learns, causal or not, all weights or LoRA; merged, saved and resumed they are the same."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from layerwise.encoder import LayerEncoder, dropout_rate, parse_pooling
from layerwise.errors import InputError
from layerwise.mixes import parse_mix
from layerwise.model import LayerModel
from layerwise.train.contrastive.decoders import add_lora, attend_both_ways, merge_lora
from layerwise.train.contrastive.prompted import prompt_of, training_tokenizer
from layerwise.train.loop.student import dropout_set, set_dropout
from support.slow_cases import covering, one_in, some_slow
from support.tiny import SENTENCES, save_decoder
from support.training import encoder_of, losses, recipe, texts, train_recipe

LORA = {"lora": 4, "lora_alpha": 8}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_decoder("llama", tmp_path_factory.mktemp("decoders") / "llama")


POOLERS = ["last @ mean", "last @ last", "last @ mean in echo", "last @ last in eol", "last @ weighted-mean"]
BOTH_WAYS = {"attention": "bidirectional"}


@pytest.mark.parametrize(
    ("pooler", "model"),
    one_in(
        3,
        [
            *some_slow(((pooler, {}) for pooler in POOLERS), slow=[("last @ mean", {}), ("last @ last", {})]),
            *covering(["last @ mean in echo", "last @ last"], [LORA, BOTH_WAYS]),
        ],
    ),
)
def test_every_pooler_of_a_decoder_learns(llama, tmp_path, pooler, model):
    what = recipe(model={"pooler": pooler, "dropout": 0.1, **model}, steps=12, learning_rate=3e-3)
    trained = train_recipe(what, tmp_path / "run", encoder=encoder_of(llama), corpus=texts(8))
    found = losses(trained)
    assert sum(found[-3:]) < 0.97 * sum(found[:3]), found


@pytest.mark.parametrize(
    "model", one_in(3, [LORA, {**LORA, "attention": "bidirectional"}, {"attention": "bidirectional"}])
)
def test_the_saved_model_gives_the_same_embeddings(llama, tmp_path, model):
    what = recipe(model={"pooler": "last @ mean", "dropout": 0.1, **model})
    trained = train_recipe(what, tmp_path / "run", encoder=encoder_of(llama), corpus=texts(8))
    expected = trained.model.encode(SENTENCES)
    trained.model.save(tmp_path / "model")
    loaded = LayerModel.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), expected, rtol=1e-4, atol=1e-5)
    host = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(host.encode(SENTENCES), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(host.encode(SENTENCES[0]), expected[0], rtol=1e-4, atol=1e-5)  # without padding
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config.get("is_causal", True) == ("attention" not in model)
    names = LayerEncoder(llama, device="cpu").model.state_dict().keys()
    assert loaded.encoder.model.state_dict().keys() == names
    assert not np.allclose(expected, LayerModel.load(llama, device="cpu").encode(SENTENCES), atol=1e-3)


def test_lora_merged_is_lora_unmerged(llama):
    encoder = encoder_of(llama)
    before = encoder.encode_layers(SENTENCES)
    names = encoder.model.state_dict().keys()
    add_lora(encoder.model, rank=2, alpha=8, dropout=0.0, seed=0)
    np.testing.assert_allclose(encoder.encode_layers(SENTENCES), before, rtol=1e-5, atol=1e-5)  # B begins at 0
    trained = [name for name, parameter in encoder.model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    with torch.no_grad():
        for name, parameter in encoder.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.2, generator=torch.Generator().manual_seed(len(name)))
    unmerged = encoder.encode_layers(SENTENCES)
    assert np.abs(unmerged - before).max() > 0.01
    merge_lora(encoder.model)
    assert encoder.model.state_dict().keys() == names
    np.testing.assert_allclose(encoder.encode_layers(SENTENCES), unmerged, rtol=1e-3, atol=1e-4)


def test_lora_changes_only_the_linear_layers(llama, tmp_path):
    what = recipe(model={"pooler": "last @ mean", "dropout": 0.1, **LORA})
    trained = train_recipe(what, tmp_path / "run", encoder=encoder_of(llama), corpus=texts(8))
    before = LayerEncoder(llama, device="cpu").model.state_dict()
    after = trained.model.encoder.model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("proj" in name for name in changed)


@pytest.mark.slow
def test_lora_is_resumed(llama, tmp_path):
    what = recipe(model={"pooler": "last @ mean", "dropout": 0.1, **LORA}, dev={"every": 3})
    whole = train_recipe(what, tmp_path / "whole", encoder=str(llama), corpus=texts(), device="cpu")

    def interrupt(step, *_):
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_recipe(what, tmp_path / "run", encoder=str(llama), corpus=texts(), device="cpu", on_step=interrupt)
    resumed = train_recipe(what, tmp_path / "run", encoder=str(llama), corpus=texts(), device="cpu", resume=True)
    np.testing.assert_array_equal(resumed.model.encode(SENTENCES), whole.model.encode(SENTENCES))


def test_attention_both_ways(llama, tiny_bert):
    encoder = encoder_of(llama)
    first = [encoder.encode_layers([text], "cls")[0, -1] for text in ("the old river", "the old door")]
    np.testing.assert_allclose(first[0], first[1], atol=1e-5)  # the first token sees nothing after it
    attend_both_ways(encoder)
    first = [encoder.encode_layers([text], "cls")[0, -1] for text in ("the old river", "the old door")]
    assert np.abs(first[0] - first[1]).max() > 1e-3
    together = encoder.encode_layers(SENTENCES)
    alone = np.concatenate([encoder.encode_layers([text]) for text in SENTENCES])
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-4)
    with pytest.raises(InputError, match="is not causal"):
        attend_both_ways(LayerEncoder(tiny_bert, device="cpu"))


def test_the_dropout_of_a_decoder(llama):
    model = encoder_of(llama).model
    assert dropout_rate(model) == 0
    set_dropout(model, 0.2)
    assert dropout_rate(model) == 0.2
    with dropout_set(model, 0.4):
        assert dropout_rate(model) == 0.4
    assert dropout_rate(model) == 0.2


@pytest.mark.parametrize(("pooler", "texts_of_it"), [("last @ mean in echo", 2), ("last @ last in eol", 1)])
def test_a_text_has_its_length_each_time_that_it_appears(llama, pooler, texts_of_it):
    encoder, mix = encoder_of(llama), parse_mix(pooler)
    tokenizer = training_tokenizer(encoder, prompt_of(mix), max_length=4)
    text = "old river old clock old door"
    (ids,) = tokenizer([text]).ids
    (whole,) = encoder.prompted(parse_pooling(mix.poolings[0]).prompt)([text]).ids
    assert len(whole) - len(ids) == texts_of_it * 2  # six words are cut to four


def test_two_equal_passes_are_refused(llama, tmp_path):
    with pytest.raises(InputError, match=r"set dropout = 0\.1"):
        train_recipe(recipe(), tmp_path / "run", encoder=encoder_of(llama), corpus=texts(8))
