"""Decoders: the views are the model's own hidden states, however sentences are padded and batched."""

import json
import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from layerwise.encoder import LayerEncoder, TappedLayers, read_views
from layerwise.model import LayerModel
from support.slow_cases import covering, one_in
from support.tiny import DECODERS, DEPTH, SENTENCES, save_decoder

POOLINGS = ["mean", "cls", "max", "last", "weighted-mean", "mean-but-first"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("decoders")
    return {name: save_decoder(name, root / name) for name in DECODERS}


@pytest.fixture(scope="module")
def encoders(folders):
    return {name: LayerEncoder(folder, device="cpu") for name, folder in folders.items()}


def own_states(encoder, sentence):
    """One sentence alone, as the model itself gives it: (layers, tokens, width)."""
    ids = torch.tensor([encoder.tokenizer(sentence, truncation=True, max_length=encoder.max_length)["input_ids"]])
    with torch.inference_mode():
        output = encoder.model(input_ids=ids, output_hidden_states=True)
    return torch.stack([*output.hidden_states[:-1], output.last_hidden_state])[:, 0].numpy()


def pooled(states):
    """Plain NumPy of every pooling: (layers, tokens, width) -> name -> (layers, width)."""
    places = np.arange(1, states.shape[1] + 1)[:, None]
    return {
        "mean": states.mean(1),
        "cls": states[:, 0],
        "max": states.max(1),
        "last": states[:, -1],
        "weighted-mean": (states * places).sum(1) / places.sum(),
        "mean-but-first": states[:, 1:].mean(1) if states.shape[1] > 1 else states.mean(1),
    }


@pytest.mark.parametrize("name", one_in(2, DECODERS))
def test_views_are_the_models_own_hidden_states(encoders, name):
    encoder = encoders[name]
    assert encoder.depth == DEPTH
    assert isinstance(encoder.reader, TappedLayers)
    assert encoder.reader.ignores_padding
    views = encoder.encode_layers(SENTENCES, POOLINGS)
    for row, sentence in enumerate(SENTENCES):
        expected = pooled(own_states(encoder, sentence))
        for pooling in POOLINGS:
            assert np.allclose(views[pooling][row], expected[pooling], atol=1e-5), (name, pooling, sentence)


@pytest.mark.parametrize("name", one_in(3, DECODERS))
def test_a_batch_never_changes_an_embedding(encoders, name):
    encoder = encoders[name]
    together = encoder.encode_layers(SENTENCES, POOLINGS)
    for row, sentence in enumerate(SENTENCES):
        alone = encoder.encode_layers([sentence], POOLINGS)
        others = encoder.encode_layers([sentence, *SENTENCES[::-1], sentence], POOLINGS)
        for pooling in POOLINGS:
            assert np.allclose(alone[pooling][0], together[pooling][row], atol=1e-5)
            assert np.allclose(others[pooling][0], others[pooling][-1], atol=1e-5)
            assert np.allclose(others[pooling][0], together[pooling][row], atol=1e-5)


def padded_on(side, rows):
    """Token ids as a tokenizer pads them, with the mask: (sentences, longest) each."""
    longest = max(map(len, rows))
    paddings = [[0] * (longest - len(row)) for row in rows]
    left = side == "left"
    ids = [padding + row if left else row + padding for padding, row in zip(paddings, rows, strict=True)]
    masks = [
        padding + [1] * len(row) if left else [1] * len(row) + padding
        for padding, row in zip(paddings, rows, strict=True)
    ]
    return torch.tensor(ids), torch.tensor(masks)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", DECODERS)
def test_padding_on_either_side_gives_the_same(encoders, name, side):
    """GPT-2 numbers positions from the first token, padding included, unless it is told them; T5 takes none at all."""
    encoder = encoders[name]
    rows = [encoder.tokenizer(sentence)["input_ids"][: encoder.max_length] for sentence in SENTENCES]
    tokens, mask = padded_on(side, rows)
    inputs = {"input_ids": tokens, "attention_mask": mask}
    if name == "gpt2":
        inputs["position_ids"] = (mask.cumsum(1) - 1).clamp_min(0)
    with torch.inference_mode():
        views = read_views(
            encoder.reader, tokens, mask, range(DEPTH + 1), POOLINGS, positions=inputs.get("position_ids")
        ).numpy()
        output = encoder.model(**inputs, output_hidden_states=True)
    states = torch.stack([*output.hidden_states[:-1], output.last_hidden_state], dim=1).numpy()
    alone = encoder.encode_layers(SENTENCES, POOLINGS)
    for row, real in enumerate(mask.bool().numpy()):
        expected = pooled(states[row][:, real])
        for number, pooling in enumerate(POOLINGS):
            assert np.allclose(views[row, number], expected[pooling], atol=1e-5), (pooling, SENTENCES[row])
            assert np.allclose(views[row, number], alone[pooling][row], atol=1e-5), (pooling, SENTENCES[row])


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5"])  # rotary, absolute and relative positions
def test_a_tokenizer_that_pads_on_the_left_changes_nothing(encoders, folders, name, tmp_path):
    folder = tmp_path / name
    shutil.copytree(folders[name], folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"padding_side": "left"}))
    encoder = LayerEncoder(folder, device="cpu")
    assert encoder.tokenizer.padding_side == "left"
    expected = encoders[name].encode_layers(SENTENCES, POOLINGS)
    for pooling, views in encoder.encode_layers(SENTENCES, POOLINGS).items():
        assert np.allclose(views, expected[pooling], atol=1e-5), pooling
    model = LayerModel(encoder, "2 @ last")
    model.save(tmp_path / "saved")
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.allclose(plain.encode(SENTENCES), expected["last"][:, 2], atol=1e-5)


def test_nothing_is_cached_for_a_next_token(encoders):
    for name, encoder in encoders.items():
        assert not getattr(encoder.model.config, "use_cache", False), name


@pytest.mark.parametrize(
    ("name", "mix"), one_in(2, covering(DECODERS, ["1 @ last", "1,2 @ mean", "4 @ weighted-mean"]))
)
def test_saved_decoders_are_cut_and_load_in_plain_sentence_transformers(encoders, name, mix, tmp_path):
    model = LayerModel(encoders[name], mix)
    model.save(tmp_path / "saved")
    highest = model.mix.layers[-1]
    again = LayerModel.load(tmp_path / "saved", device="cpu")
    assert again.encoder.depth in (highest, highest + 1)
    assert again.mix == model.mix
    assert np.allclose(again.encode(SENTENCES), model.encode(SENTENCES), atol=1e-5)
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")  # no trust_remote_code: native modules only
    assert np.allclose(plain.encode(SENTENCES), model.encode(SENTENCES), atol=1e-5)


def test_half_precision_is_read_as_asked(folders):
    half = LayerEncoder(folders["llama"], device="cpu", dtype="bfloat16")
    assert next(half.model.parameters()).dtype == torch.bfloat16
    views, whole = half.encode_layers(SENTENCES), LayerEncoder(folders["llama"], device="cpu").encode_layers(SENTENCES)
    assert views.dtype == np.float32
    cosines = (views * whole).sum(-1) / np.linalg.norm(views, axis=-1) / np.linalg.norm(whole, axis=-1)
    assert cosines.min() > 0.98
