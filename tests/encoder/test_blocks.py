"""Encoders of some of their blocks: the same numbers as the blocks run by hand, saved and loaded alike."""

import numpy as np
import pytest
import torch

from layerwise.encoder import LayerEncoder, even_blocks
from layerwise.errors import ModelError
from layerwise.model import LayerModel
from support.slow_cases import most_slow
from support.tiny import SENTENCES, save_decoder

KEPT = (1, 2, 4)


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    root = tmp_path_factory.mktemp("decoders")
    return {name: save_decoder(name, root / name) for name in ("llama", "gpt2")}


@pytest.mark.parametrize(
    "name",
    most_slow(
        ["bert", "roberta", "mpnet", "distilbert", "deberta-v2", "modernbert", "electra"],
        now=["bert", "deberta-v2", "modernbert"],
    ),
)
def test_kept_blocks_run_one_after_the_other(tiny_folders, name, tmp_path):
    check(LayerEncoder(tiny_folders[name], device="cpu"), tmp_path)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_kept_blocks_of_a_decoder(decoders, name, tmp_path):
    check(LayerEncoder(decoders[name], device="cpu"), tmp_path)


def check(encoder, tmp_path):
    """Layers as the whole model gives them when its third block is passed over, and again from the saved folder."""
    shorter = encoder.with_blocks(KEPT)
    assert (shorter.depth, shorter.loaded_depth, encoder.depth) == (3, 4, 4)
    views = shorter.encode_layers(SENTENCES)
    skipped = encoder.reader.blocks[2].register_forward_hook(
        lambda _block, args, kwargs, output: (
            (args or (kwargs["hidden_states"],))[0]
            if isinstance(output, torch.Tensor)
            else ((args or (kwargs["hidden_states"],))[0], *output[1:])
        ),
        with_kwargs=True,
    )
    try:
        expected = encoder.encode_layers(SENTENCES, layers=[0, 1, 2, 4])
    finally:
        skipped.remove()
    np.testing.assert_allclose(views, expected, rtol=1e-4, atol=1e-5)
    model = LayerModel(shorter, "last @ mean")
    model.save(tmp_path / "model")
    loaded = LayerModel.load(tmp_path / "model", device="cpu")
    assert loaded.encoder.depth == 3
    np.testing.assert_allclose(loaded.encode(SENTENCES), views[:, -1], rtol=1e-4, atol=1e-5)
    assert "| blocks kept | 3 of 4 |" in (tmp_path / "model" / "README.md").read_text()


def test_the_copy_has_weights_of_its_own(tiny_bert):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    before, shorter = encoder.encode_layers(SENTENCES), encoder.with_blocks([1, 4])
    with torch.no_grad():
        for parameter in shorter.model.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(encoder.encode_layers(SENTENCES), before)


def test_all_blocks_are_the_encoder(tiny_bert):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    same = encoder.with_blocks(range(1, 5))
    assert same.fingerprint() == encoder.fingerprint()
    np.testing.assert_array_equal(same.encode_layers(SENTENCES), encoder.encode_layers(SENTENCES))


@pytest.mark.parametrize("kept", [[], [0, 1], [1, 5], [2, 1], [1, 1]])
def test_blocks_that_are_not_there(tiny_bert, kept):
    with pytest.raises(ModelError, match="different ones from 1 to 4, in rising order"):
        LayerEncoder(tiny_bert, device="cpu").with_blocks(kept)


def test_blocks_that_cannot_be_left_out(tiny_folders):
    with pytest.raises(ModelError, match="share their weights"):
        LayerEncoder(tiny_folders["albert"], device="cpu").with_blocks([1, 2])
    with pytest.raises(ModelError, match="keep block 1"):  # which alone has no norm before its attention
        LayerEncoder(tiny_folders["modernbert"], device="cpu").with_blocks([2, 3])


@pytest.mark.parametrize(
    ("count", "expected"), [(1, (1,)), (2, (1, 12)), (3, (1, 6, 12)), (6, (1, 3, 5, 8, 10, 12)), (12, range(1, 13))]
)
def test_even_distances(count, expected):
    assert even_blocks(count, 12) == tuple(expected)
    with pytest.raises(ModelError, match="give 1 to 12"):
        even_blocks(13, 12)
