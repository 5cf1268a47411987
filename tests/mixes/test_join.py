"""Mixes side by side are their own embeddings, concatenated."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from layerwise import Head, LayerEncoder, LayerModel, parse_mix
from layerwise.errors import LayerwiseError, MixError
from layerwise.evaluate import evaluate, load_subject, to_markdown
from layerwise.mixes import Concat, Mean
from layerwise.model import is_native
from support.slow_cases import one_in
from support.tiny import DEPTH, SENTENCES, WIDTH

TEXTS = [
    "last @ cls | last @ mean",
    "last @ mean | first-last @ mean",
    "last @ cls | 1:0.25,3:0.75 @ max | last-2 @ mean",
    "concat(3,1) @ max | 0 @ cls",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_join_parses_and_prints(text):
    mix = parse_mix(text)
    assert isinstance(mix, Concat)
    assert str(mix) == text
    assert parse_mix(text.replace(" ", "")) == parse_mix(str(mix)) == mix
    assert hash(parse_mix(text)) == hash(mix)
    assert eval(repr(mix), {"Concat": parse_mix}) == mix  # noqa: S307
    assert parse_mix(str(mix.resolve(12))) == mix.resolve(12) == mix.resolve(12).resolve(12)
    assert mix.width(8) == 8 * len(mix.parts) == 8 * (1 + text.count("|") + text.count("concat"))


def test_layers_are_the_union_and_poolings_come_once():
    mix = parse_mix("last @ cls | 3,1 | 2 @ cls").resolve(12)
    assert (mix.layers, mix.poolings) == ((1, 2, 3, 12), ("cls", "mean"))
    assert parse_mix("1 | 2 @ cls", pooling="max").poolings == ("max", "cls")
    assert parse_mix("1 @ cls | 2") != parse_mix("2 | 1 @ cls"), "their order is that of the numbers"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("last |", r"'last \|': no mix before or after a '\|'; a mix is layers such as"),
        ("| last", "no mix before or after"),
        ("last | wk", r"wk\(start=4,window=2\) cannot be joined; a join takes sets, weights and concatenations"),
        ("attention(cls, mean) | last", r"attention\(cls, mean\) cannot be joined"),
        ("last | last @ mean", r"A concatenation has a part twice: concat\(-1,-1\) @ mean"),
        ("last | first", "'first' is not a layer"),
        ("last @ cls | last @ men", "Unknown token pooling 'men'"),
    ],
)
def test_texts_that_are_no_join_are_refused(text, message):
    with pytest.raises(LayerwiseError, match=message):
        parse_mix(text)


def test_joins_that_can_not_be_are_refused():
    with pytest.raises(MixError, match="needs at least one layer, or two mixes"):
        Concat((Mean.of(1, 2),))
    with pytest.raises(MixError, match=r"views\(1 @ mean; unit\) cannot be joined"):
        Concat((Mean.of(1, scale="unit"), Mean.of(3)))
    with pytest.raises(MixError, match=r"needs views by cls and mean, but these \(7, 1, 1, 8\) are by 1 token pooling"):
        parse_mix(TEXTS[0])(np.zeros((7, 5, 8)))
    with pytest.raises(MixError, match="counts from the last layer"):
        _ = parse_mix(TEXTS[0]).layers


def test_views_of_one_pooling_are_enough_where_all_parts_have_it():
    views = np.random.default_rng(0).normal(size=(3, 5, 13, 4)).astype(np.float32)
    expected = np.concatenate([views[:, :, 12], (views[:, :, 1] + views[:, :, 12]) / 2], axis=-1)
    mix = parse_mix(TEXTS[1])
    np.testing.assert_allclose(mix(views), expected, atol=1e-6)
    np.testing.assert_allclose(mix(torch.from_numpy(views)), expected, atol=1e-6)


@pytest.mark.parametrize("text", TEXTS)
def test_a_joins_embeddings_are_its_parts_side_by_side(text, tiny_bert, sentences):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    model = LayerModel(encoder, text)
    expected = np.concatenate([LayerModel(encoder, part).encode(sentences) for part in text.split("|")], axis=1)
    assert model.width == expected.shape[1]
    assert np.abs(model.encode(sentences) - expected).max() < 1e-6
    views = encoder.encode_layers(sentences, model.mix.poolings, layers=model.mix.layers)
    both = np.stack([views[name] for name in model.mix.poolings], axis=1)
    for combined in (model.mix.combine(both), model.mix.combine(torch.from_numpy(both))):
        assert np.abs(np.asarray(combined) - expected).max() < 1e-6


@pytest.mark.parametrize("text", one_in(2, [*TEXTS, "1 @ cls | 2 @ mean"]))
def test_a_saved_join_gives_the_same_embeddings(text, tiny_bert, sentences, tmp_path):
    width = parse_mix(text).width(WIDTH)
    heads = [Head(torch.randn(8, width, generator=torch.Generator().manual_seed(1)) / 8)]
    model = LayerModel(tiny_bert, text, heads=heads)
    assert not is_native(model.mix)
    model.save(tmp_path / "model")
    loaded = LayerModel.load(tmp_path / "model", device="cpu")
    assert loaded.mix == model.mix
    assert loaded.encoder.depth == max(model.mix.layers), "blocks above are cut"
    assert np.abs(loaded.encode(sentences) - model.encode(sentences)).max() < 1e-6
    plain = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert plain.get_embedding_dimension() == 8
    assert np.abs(plain.encode(sentences) - model.encode(sentences)).max() < 1e-5


def test_the_card_shows_the_join_in_one_cell(tiny_bert, tmp_path):
    LayerModel(tiny_bert, TEXTS[0]).save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert rf"| layer mix | `{DEPTH} @ cls \| {DEPTH} @ mean` (" in card


@pytest.mark.parametrize("text", one_in(2, TEXTS))
def test_a_join_is_evaluated_by_its_own_embeddings(text, tiny_bert, pairs_task):
    subject = load_subject(str(tiny_bert), layers=[text, "2"], device="cpu")
    model = LayerModel.load(tiny_bert, mix=text, device="cpu")
    variant = subject.variants[0]
    assert (variant.label, variant.pooling) == (str(model.mix), "+".join(model.mix.poolings))
    found = dict(zip(("join", "2"), subject.embed(SENTENCES, "", subject.variants), strict=True))
    assert np.abs(found["join"] - model.encode(SENTENCES)).max() < 1e-5
    written = to_markdown(evaluate(subject, [pairs_task]))
    assert "| " + str(model.mix).replace("|", r"\|") + " |" in written
