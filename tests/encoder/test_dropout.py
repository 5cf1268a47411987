"""Passes with dropout: what train mode gives, by seed only, with everything put back afterwards."""

import numpy as np
import pytest
import torch
import transformers as hf

from layerwise.encoder import LayerEncoder, dropout_rate
from layerwise.encoder.dropout import dropout_on
from layerwise.errors import InputError, ModelError
from layerwise.search.unlabelled import dropout_passes
from support.slow_cases import one_in
from support.tiny import ARCHITECTURES, DEPTH, SENTENCES, VOCABULARY, WIDTH, tiny_tokenizer

WITH_DROPOUT = [name for name in ARCHITECTURES if name not in ("albert", "modernbert")]  # by their configs' defaults


@pytest.fixture(scope="module")
def encoder(tiny_bert) -> LayerEncoder:
    return LayerEncoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def without_dropout(tmp_path_factory) -> LayerEncoder:
    folder = tmp_path_factory.mktemp("without-dropout")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    hf.BertModel(hf.BertConfig(vocab_size=len(VOCABULARY), **sizes, **rates)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return LayerEncoder(folder, device="cpu")


@pytest.mark.parametrize("name", one_in(2, WITH_DROPOUT))
def test_passes_differ_by_seed_and_only_by_seed(tiny_folders, name):
    encoder = LayerEncoder(tiny_folders[name], device="cpu")
    plain = encoder.encode_layers(SENTENCES)
    one, again, other = (encoder.encode_layers(SENTENCES, dropout_seed=seed) for seed in (1, 1, 2))
    assert one.shape == plain.shape
    assert np.array_equal(one, again)
    for layer in range(DEPTH + 1):
        assert np.abs(one[:, layer] - other[:, layer]).max() > 1e-3, layer
        assert np.abs(one[:, layer] - plain[:, layer]).max() > 1e-3, layer
    assert np.array_equal(encoder.encode_layers(SENTENCES), plain), "dropout is off again"


def test_a_pass_is_what_the_model_gives_in_train_mode(encoder):
    """One sentence, so that the random numbers are drawn in the same order."""
    found = encoder.encode_layers(SENTENCES[:1], dropout_seed=7)
    tokens = encoder.tokenizer(SENTENCES[:1], return_tensors="pt")
    encoder.model.train()
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(7)
            states = encoder.model(**tokens, output_hidden_states=True).hidden_states
    finally:
        encoder.model.eval()
    assert np.abs(found[0] - torch.stack(states)[:, 0].mean(1).numpy()).max() < 1e-5


def test_all_poolings_come_from_the_same_pass(encoder):
    both = encoder.encode_layers(SENTENCES, ["mean", "cls"], dropout_seed=1)
    assert np.array_equal(both["mean"], encoder.encode_layers(SENTENCES, "mean", dropout_seed=1))
    assert np.array_equal(both["cls"], encoder.encode_layers(SENTENCES, "cls", dropout_seed=1))


def test_dropout_passes_take_each_sentence_once(encoder):
    one, other = dropout_passes(encoder, [*SENTENCES, *SENTENCES[:3]], ["mean", "max"])
    for side in (one, other):
        assert {name: array.shape for name, array in side.items()} == dict.fromkeys(("mean", "max"), (7, 5, WIDTH))
    assert not np.array_equal(one["mean"], other["mean"])
    again, _ = dropout_passes(encoder, SENTENCES, ["mean", "max"])
    assert np.array_equal(again["max"], one["max"])


def test_the_random_state_and_the_mode_are_left_alone(encoder):
    torch.manual_seed(123)
    before, modes = torch.get_rng_state(), [module.training for module in encoder.model.modules()]
    encoder.encode_layers(SENTENCES, dropout_seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in encoder.model.modules()] == modes == [False] * len(modes)


def test_the_random_state_and_the_mode_are_put_back_after_an_exception(encoder, monkeypatch):
    plain = encoder.encode_layers(SENTENCES)
    torch.manual_seed(123)
    before, seen = torch.get_rng_state(), []

    def fail(*_arguments):
        seen.append(encoder.model.training)
        torch.rand(3)
        raise ValueError("in the midst of it")

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "read", fail)
        with pytest.raises(ValueError, match="in the midst of it"):
            encoder.encode_layers(SENTENCES, dropout_seed=1)
    assert seen == [True]
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in encoder.model.modules())
    assert np.array_equal(encoder.encode_layers(SENTENCES), plain)


def test_modules_go_back_to_their_own_modes():
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.25)).eval()
    model[1].train()

    def stop():
        with dropout_on(model, 0):
            assert model[0].training
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        stop()
    assert [module.training for module in model.modules()] == [False, False, True]
    assert dropout_rate(model) == 0.5


def test_dropout_views_are_not_cached(encoder, own_cache):
    plain = encoder.encode_layers(SENTENCES, cache=True)
    entries = sorted(own_cache.rglob("*"))
    dropped = encoder.encode_layers(SENTENCES, cache=True, dropout_seed=1)
    assert sorted(own_cache.rglob("*")) == entries
    assert not np.array_equal(dropped, plain)


def test_an_encoder_without_dropout_is_refused(without_dropout):
    with pytest.raises(ModelError, match=r"BertModel has no dropout: two passes would be equal; give pairs of text"):
        dropout_passes(without_dropout, SENTENCES, ["mean"])
    assert not without_dropout.model.training
    assert without_dropout.encode_layers(SENTENCES).shape == (7, 3, WIDTH)


@pytest.mark.parametrize("name", ["albert", "modernbert"])
def test_so_are_architectures_without_dropout_by_default(tiny_folders, name):
    with pytest.raises(ModelError, match="has no dropout"):
        LayerEncoder(tiny_folders[name], device="cpu").encode_layers(SENTENCES, dropout_seed=0)


def test_onnx_has_no_dropout(tiny_bert):
    encoder = LayerEncoder(tiny_bert, device="cpu", backend="onnx")
    with pytest.raises(InputError, match="Dropout runs with the torch backend only, not with ONNX"):
        dropout_passes(encoder, SENTENCES, ["mean"])
