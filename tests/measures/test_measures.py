"""Every measure over a model and pairs equals its formula, from the hidden states that transformers itself gives."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
import transformers as hf
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from layerwise.data import load_pairs, pairs_in_memory
from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.measures import (
    POOLINGS,
    ModelOnPairs,
    alignment,
    anisotropy,
    effective_rank,
    linear_cka,
    measure_attention,
    measure_changes,
    measure_chosen_layers,
    measure_cka,
    measure_geometry,
    measure_layer_scores,
    measure_pair_similarities,
    measure_projection,
    measure_setsim,
    measure_spectra,
    measure_token_matrices,
    measure_toksim,
    spectrum,
    uniformity,
)
from layerwise.mixes import Attention, parse_mix
from layerwise.model import LayerModel
from layerwise.search import Search
from support.attention import network_of
from support.text_pairs import PAIRS, some_pairs
from support.tiny import DEPTH


@pytest.fixture(scope="module")
def material(tiny_layers):
    return ModelOnPairs(tiny_layers, some_pairs(), cache=False)


@pytest.fixture(scope="module")
def states(tiny_bert):
    """text -> every layer's token states as transformers gives them: (layers, tokens, width)"""
    model, tokenizer = hf.AutoModel.from_pretrained(tiny_bert).eval(), hf.AutoTokenizer.from_pretrained(tiny_bert)
    return hidden_states_of(model, tokenizer)


def hidden_states_of(model, tokenizer):
    @cache
    def states_of(text):
        with torch.inference_mode():
            found = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        return torch.stack(found)[:, 0].double()

    return states_of


POOL = {"cls": lambda states: states[:, 0], "mean": lambda states: states.mean(1), "max": lambda states: states.amax(1)}


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


def different(material):
    return list(dict.fromkeys([*material.pairs.left, *material.pairs.right]))


# The material


def test_each_different_text_is_encoded_once_for_all_poolings(material, states):
    texts = different(material)
    assert material.texts == texts
    assert len(texts) == 2 * PAIRS - 1
    for pooling in POOLINGS:
        expected = torch.stack([POOL[pooling](states(text)) for text in texts])
        np.testing.assert_allclose(material.views[pooling], expected, atol=2e-5)
    left, right = material.sides(material.views["mean"])
    assert left.shape == right.shape == (PAIRS, DEPTH + 1, 32)
    np.testing.assert_array_equal(left[0], left[-1])


def test_views_are_read_from_the_cache_that_search_fills(tiny_layers, monkeypatch):
    pairs = some_pairs(6)
    first = ModelOnPairs(tiny_layers, pairs)
    expected, similarities = first.views["max"], measure_toksim(first).means
    monkeypatch.setattr(LayerEncoder, "stream", lambda *_, **__: pytest.fail("a forward pass"))
    again = ModelOnPairs(tiny_layers, pairs)
    np.testing.assert_array_equal(again.views["max"], expected)
    np.testing.assert_array_equal(measure_toksim(again).means, similarities)
    assert measure_layer_scores(again).scores.shape == (3, DEPTH + 1)


@pytest.mark.parametrize(
    "mix",
    [
        "last",
        "0,2 @ cls",
        "1:0.2,4:0.8",
        "concat(1,4) @ max",
        "last @ cls | 1 @ mean",
        "wk(start=1)",
        "attention(cls, mean, last=max)",
    ],
)
def test_own_embeddings_are_those_that_the_model_encodes(tiny_bert, mix):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    parsed = parse_mix(mix)
    if isinstance(parsed, Attention):
        parsed = parsed.with_fitted(network_of("softmax", 32).float())
    model = LayerModel(encoder, parsed, normalize=True, prompts={"x": "who left "}, default_prompt_name="x")
    found = ModelOnPairs(model, some_pairs(8), cache=False)
    np.testing.assert_allclose(found.embeddings, model.encode(different(found)), atol=1e-5)
    assert all(text.startswith("who left ") for text in found.texts)


# Scores


def test_layer_scores_are_spearman_of_cosines(material, states):
    found = measure_layer_scores(material)
    pairs = material.pairs
    assert found.poolings == POOLINGS
    for pooling in POOLINGS:
        for layer in range(DEPTH + 1):
            if (pooling, layer) == ("cls", 0):
                continue
            texts = zip(pairs.left, pairs.right, strict=True)
            cosines = [cosine(*(POOL[pooling](states(text))[layer] for text in both)) for both in texts]
            expected = 100 * spearmanr(cosines, pairs.gold).statistic
            assert found.of(pooling)[layer] == pytest.approx(expected, abs=0.05)
    assert np.isnan(found.of("cls")[0])  # the first token is the same in every sentence
    assert found.mix_score == pytest.approx(found.of("mean")[-1])
    assert found.mix == f"{DEPTH} @ mean"
    pooling, layer, score = found.best
    assert score == np.nanmax(found.scores) == found.of(pooling)[layer]
    rows = found.rows()
    assert [row["layers"] for row in rows] == ["0", "1", "2", "3", "4", "4 @ mean"]
    assert rows[2]["max"] == found.of("max")[2]
    assert rows[-1]["own mix"] == found.mix_score


def test_pair_similarities_are_cosines(material, states):
    found = measure_pair_similarities(material, "max")
    pairs = material.pairs
    assert found.layers.shape == (PAIRS, DEPTH + 1)
    for row in (0, 7, PAIRS - 1):
        a, b = states(pairs.left[row]).amax(1), states(pairs.right[row]).amax(1)
        np.testing.assert_allclose(found.layers[row], [cosine(x, y) for x, y in zip(a, b, strict=True)], atol=1e-5)
    np.testing.assert_allclose(measure_pair_similarities(material).layers[:, -1], found.mix_similarities, atol=1e-6)
    assert found.rows()[3]["layer 2"] == found.layers[3, 2]
    with pytest.raises(InputError, match=r"Unknown token pooling 'men'. Did you mean 'mean'\? Known: cls, mean, max"):
        measure_pair_similarities(material, "men")


# Over-smoothing


def naive_toksim(states):
    """SSCL's equation 1, pair by pair: (layers, tokens, width) -> (layers,)"""
    count = states.shape[1]
    return [
        sum(cosine(layer[i], layer[j]) for i in range(count) for j in range(count) if i != j) / (count * (count - 1))
        for layer in states
    ]


def check_smoothing(material, states):
    texts = different(material)
    toksim, setsim = measure_toksim(material), measure_setsim(material)
    expected = np.mean([naive_toksim(states(text)) for text in texts], axis=0)
    np.testing.assert_allclose(toksim.means, expected, atol=1e-5)
    assert toksim.sentences == setsim.sentences == len(texts)
    for pooling in ("cls", "mean"):
        views = [POOL[pooling](states(text)) for text in texts]
        expected = np.mean([[cosine(a, b) for a, b in pairwise(v)] for v in views], axis=0)
        np.testing.assert_allclose(setsim.of(pooling), expected, atol=1e-5)
    assert setsim.rows()[0] == {"layers": "0-1", "cls": setsim.of("cls")[0], "mean": setsim.of("mean")[0]}
    assert toksim.rows()[1]["toksim"] == toksim.means[1]


def test_toksim_and_setsim_are_their_formulas(tiny_layers, states):
    check_smoothing(ModelOnPairs(tiny_layers, some_pairs(8), cache=False), states)


@pytest.mark.slow
@pytest.mark.shared
def test_toksim_and_setsim_of_a_real_encoder(shared):
    folder = shared / "models" / "wiki-mlm-12x384"
    model = hf.AutoModel.from_pretrained(folder).eval()
    pairs = load_pairs("stsb", data=shared / "data").limited(4)
    check_smoothing(
        ModelOnPairs(LayerModel.load(folder, device="cpu"), pairs, cache=False),
        hidden_states_of(model, hf.AutoTokenizer.from_pretrained(folder)),
    )


def test_token_matrices_are_the_tokens_cosines(material, states):
    found = measure_token_matrices(material, "the old river", layers=(0, -1))
    assert found.tokens == ("[CLS]", "the", "old", "river", "[SEP]")
    assert found.layers == (0, DEPTH)
    for place, layer in enumerate(found.layers):
        own = states("the old river")[layer]
        np.testing.assert_allclose(found.cosines[place], [[cosine(a, b) for b in own] for a in own], atol=1e-5)
    assert found.rows()[6]["3 river"] == found.cosines[1, 1, 3]
    first = measure_token_matrices(material)
    assert (first.sentence, first.layers) == (material.pairs.left[0], (1, 2, DEPTH))
    assert measure_setsim(material).means.shape == (2, DEPTH)


# Attention


@pytest.mark.parametrize("scores", ["softmax", "ratio"])
def test_attention_weights_are_the_networks(tiny_bert, scores):
    network = network_of(scores, 32).float()
    mix = Attention("cls", "mean", last="cls", scores=scores).with_fitted(network)
    material = ModelOnPairs(LayerModel(LayerEncoder(tiny_bert, device="cpu"), mix), some_pairs(), cache=False)
    found = measure_attention(material, groups=3)
    queries, values = (torch.tensor(material.views[name]) for name in ("cls", "mean"))
    with torch.no_grad():
        expected = network.weights(queries, values).mean(1).numpy()
    np.testing.assert_allclose(found.weights, expected, atol=1e-5, rtol=1e-3)
    np.testing.assert_allclose(found.weights.sum(1), 1, rtol=1e-4)
    np.testing.assert_allclose(found.mean, found.weights.mean(0))
    assert found.texts == tuple(different(material))
    assert found.tokens.tolist() == [len(text.split()) + 2 for text in found.texts]
    assert sum(group.sentences for group in found.groups) == len(found.texts)
    for shorter, longer in pairwise(found.groups):
        assert shorter.longest < longer.shortest
    group = found.groups[-1]
    kept = (found.tokens >= group.shortest) & (found.tokens <= group.longest)
    np.testing.assert_allclose(group.mean, found.weights[kept].mean(0))
    assert found.rows()[2][group.label] == group.mean[2]


def test_sentences_of_one_length_are_one_group(tiny_bert):
    mix = Attention("cls", "mean").with_fitted(network_of("softmax", 32).float())
    pairs = pairs_in_memory(["the river", "the door"], ["the clock", "an old"])
    material = ModelOnPairs(LayerModel(LayerEncoder(tiny_bert, device="cpu"), mix), pairs, cache=False)
    (group,) = measure_attention(material).groups
    assert (group.label, group.sentences) == ("4 tokens", 4)


# Geometry


def test_geometry_is_that_of_each_layer_and_of_the_own_mix(material):
    found, own = measure_geometry(material, "max"), measure_geometry(material)
    alike = material.pairs.gold >= 4
    left, right = (torch.tensor(side[alike]) for side in material.positions)
    vectors = torch.tensor(material.views["max"][:, 2])
    assert found.anisotropy[2] == pytest.approx(float(anisotropy(vectors)))
    assert found.uniformity[2] == pytest.approx(float(uniformity(vectors)))
    assert found.effective_rank[2] == pytest.approx(float(effective_rank(vectors)))
    assert found.alignment[2] == pytest.approx(float(alignment(vectors[left], vectors[right])))
    assert found.labels == ("0", "1", "2", "3", "4", "4 @ mean")
    assert found.alike == f"{alike.sum()} pairs of score 4 or above, the highest fifth of 0 to 5"
    assert own.anisotropy[-1] == pytest.approx(own.anisotropy[-2])
    assert found.rows()[2]["effective rank"] == found.effective_rank[2]
    first = measure_geometry(material, "cls")  # the first token of layer 0 never changes
    assert first.anisotropy[0] == pytest.approx(1)
    assert np.isnan(first.effective_rank[0])


def test_spectra_and_cka_are_those_of_the_layers(material):
    found, views = measure_spectra(material), torch.tensor(material.views["mean"])
    np.testing.assert_allclose(found.shares[3], spectrum(views[:, 3]))
    assert len(found.shares) == DEPTH + 2
    assert found.rows()[3]["first 2"] == pytest.approx(float(found.shares[3][:2].sum()))
    alike = measure_cka(material)
    assert alike.cka[1, 3] == pytest.approx(float(linear_cka(views[:, 1], views[:, 3])), rel=1e-4)
    np.testing.assert_allclose(alike.cka.diagonal(), 1, rtol=1e-5)
    assert alike.rows()[1]["3"] == alike.cka[1, 3]


# Projection


def test_a_pca_of_the_most_and_the_least_alike_pairs(material):
    found = measure_projection(material, pairs=12, seed=5)
    assert found.points.shape == (12, 2, 2)
    assert found.alike.tolist() == [True] * 6 + [False] * 6
    assert found.grades[:6].min() >= found.grades[6:].max()
    assert sorted(found.grades[6:]) == sorted(material.pairs.gold)[:6]
    vectors = material.model.encode([text for pair in zip(found.left, found.right, strict=True) for text in pair])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = PCA(2).fit(units)
    np.testing.assert_allclose(
        np.abs(found.points.reshape(24, 2)), np.abs(expected.transform(units)), atol=1e-4
    )  # a direction's sign is free
    assert found.explained == pytest.approx(expected.explained_variance_ratio_.sum(), rel=1e-4)
    assert found.rows()[4]["right y"] == found.points[4, 1, 1]


def test_t_sne_is_the_same_with_the_same_seed(material):
    one, again = (measure_projection(material, "tsne", pairs=8, seed=1) for _ in range(2))
    np.testing.assert_array_equal(one.points, again.points)
    assert one.points.shape == (8, 2, 2)
    assert np.isfinite(one.points).all()
    assert one.explained is None


# What a search chooses


@pytest.fixture(scope="module")
def chosen(tiny_layers):
    """The grades are cosines of layers 1 and 3's mean: the answer is known."""
    pairs = some_pairs(120, seed=9)
    plain = ModelOnPairs(tiny_layers, pairs, cache=False)
    left, right = (torch.tensor(side[:, [1, 3]].mean(1)) for side in plain.sides(plain.views["mean"]))
    gold = torch.nn.functional.cosine_similarity(left, right).numpy()
    known = ModelOnPairs(tiny_layers, pairs_in_memory(pairs.left, pairs.right, gold), cache=False)
    return known, measure_chosen_layers(known, splits=3, seed=4)


@pytest.mark.slow
def test_a_search_finds_the_layers_that_made_the_grades(chosen):
    _, found = chosen
    assert found.best.mix == "1,3 @ mean"
    assert found.best.test == pytest.approx(100, abs=0.1)
    assert (found.blocks, found.all_blocks) == (3, DEPTH)
    assert found.shares[[1, 3]].tolist() == [1, 1]
    assert found.gain.mean == pytest.approx(found.best.test - found.last.test)
    assert found.gain.low > 0
    assert found.gain.p_value < 0.01
    assert (found.dev_pairs, found.test_pairs, found.splits, found.sets) == (60, 60, 3, 31)
    assert found.by_size.x == (1, 2, 3, 4, 5)
    assert found.by_size.mixes[1] == "1,3 @ mean"
    assert found.by_size.mean.argmax() == 1
    assert found.without.x == (0, 1, 2, 3, 4)
    assert found.without.mean[[1, 3]].max() < found.without.mean[[0, 2, 4]].min()
    assert found.by_pairs.x == (60, 30, 15, 8)
    assert found.notes[0].startswith("Use layers 1,3 @ mean: ")
    assert "best found is 1,3 @ mean with 100.0" in found.notes[1]


def test_what_is_chosen_equals_a_search_of_the_same_pairs(chosen):
    material, found = chosen
    left, right = ({"mean": side} for side in material.sides(material.views["mean"]))
    texts = list(zip(material.pairs.left, material.pairs.right, strict=True))
    search = Search(dev=0.5, splits=3, seed=4).fit_views(left, right, material.pairs.gold, texts=texts)
    selection = search.selection_
    assert found.gain.mean == pytest.approx(100 * selection.gain.mean)
    assert found.last.test == pytest.approx(100 * selection.last.test)
    shares = {layer: share for layer, share in enumerate(found.shares) if share}
    assert shares == dict(selection.stability.layers)
    assert [score.mix for score in found.front] == [str(choice.mix) for choice in selection.front]
    rows = found.rows()
    assert {len(row) for row in rows} == {7}
    assert next(row for row in rows if row["what"] == "without layer 3")["chosen by halves"] == 1


# Two models


def test_before_and_after_shows_every_figure_of_both(material):
    other = ModelOnPairs(material.model.replaced(mix="1 @ max"), material.pairs, cache=False)
    found = measure_changes(material, other)
    changes = {change.name: change for change in found.changes}
    assert changes["score of the own mix"].second == pytest.approx(measure_layer_scores(other).mix_score)
    assert changes["anisotropy"].first == pytest.approx(measure_geometry(material).anisotropy[-1])
    assert changes["effective rank"].second == pytest.approx(measure_geometry(other).effective_rank[-1])
    assert changes["TokSim of the last layer"].difference == 0  # the same encoder
    assert changes["uniformity"].better == "lower"
    assert found.rows()[0]["difference"] == changes["score of the own mix"].difference
    with pytest.raises(InputError, match="on the same pairs; these differ"):
        measure_changes(material, ModelOnPairs(material.model, some_pairs(5)))


def test_ungraded_pairs_are_compared_without_scores(tiny_layers):
    pairs = some_pairs(6)
    plain = ModelOnPairs(tiny_layers, pairs_in_memory(pairs.left, pairs.right), cache=False)
    found = measure_changes(plain, plain)
    assert not [change.name for change in found.changes if "score" in change.name]
    assert {change.difference for change in found.changes if change.name != "alignment"} == {0}
    assert np.isnan(next(change.first for change in found.changes if change.name == "alignment"))
