"""Explanations: the terms sum to the model's own cosine, whatever the mix; words; what is refused."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.encoder import POOLINGS
from layerwise.errors import InputError, LayerwiseError, MixError, ModelError
from layerwise.explain import LINEAR_POOLINGS, check_linear, explain_pair, explain_pairs
from layerwise.explain.words import words_of
from layerwise.files import plain_json
from layerwise.mixes import Attention, Concat, Mean, View, fit_centres, parse_mix
from layerwise.model import FlowHead, Head, LayerModel
from layerwise.postprocess import FlowNetwork, RemoveComponents
from support.tiny import DEPTH, SENTENCES, WIDTH, save_decoder

PROMPTED = ['last in "Topic: {text}"', "mean in echo", 'weighted-mean in "Say {text} again" over text']
MASKED = 'mask in "{text} means {mask}."'


@pytest.fixture(scope="module")
def models(tiny_layers, tmp_path_factory):
    folder = save_decoder("llama", tmp_path_factory.mktemp("explain") / "llama")
    return {"bert": tiny_layers, "llama": LayerModel.load(folder, device="cpu")}


def sets(poolings):
    layers = st.sets(st.integers(0, DEPTH), min_size=1)
    return st.builds(lambda chosen, name: Mean.of(*chosen, pooling=name), layers, st.sampled_from(poolings))


def weights(poolings):
    numbers = st.floats(-1, 3).filter(lambda weight: abs(weight) > 0.1)
    layers = st.dictionaries(st.integers(0, DEPTH), numbers, min_size=1).filter(lambda w: sum(w.values()) > 0.2)
    return st.builds(lambda by, name: Mean.weighted(by, pooling=name), layers, st.sampled_from(poolings))


def concats(poolings):
    layers = st.lists(st.integers(0, DEPTH), min_size=1, max_size=3, unique=True).map(tuple)
    return st.builds(lambda chosen, name: Concat.of(*chosen, pooling=name), layers, st.sampled_from(poolings))


def joins(poolings):
    parts = st.lists(sets(poolings) | weights(poolings), min_size=2, max_size=3, unique=True)
    return parts.map(lambda mixes: Concat(tuple(mixes)))


@st.composite
def views(draw, poolings):
    forms = st.tuples(st.sampled_from(poolings), st.sampled_from([None, 0, 2]))
    named = draw(st.lists(forms, min_size=1, max_size=3, unique=True))
    layers = st.sets(st.integers(0, DEPTH), min_size=1)
    chosen = [View(layer, *form) for form in named for layer in draw(layers)]
    numbers = st.lists(st.sampled_from([1.0, 2.0, 0.5, -0.25]), min_size=len(chosen), max_size=len(chosen))
    counts = draw(st.just([]) | numbers.filter(lambda weights: max(weights) > 0))
    mix = Mean.of(*chosen, scale=draw(st.sampled_from(["none", "unit"])), weights=counts)
    if mix.components is None:
        return mix
    random = np.random.default_rng(draw(st.integers(0, 5))).normal(size=(30, len(chosen), WIDTH))
    centres = fit_centres(torch.from_numpy(random).float(), 2).partly([view.remove for view in mix.views])
    return mix.with_fitted(centres.first(mix.components))


def mixes(poolings):
    return sets(poolings) | weights(poolings) | concats(poolings) | joins(poolings) | views(poolings)


PLAIN = [name for name in LINEAR_POOLINGS if name != "mask"]
NAMES = st.sampled_from([("bert", [*PLAIN, *PROMPTED, MASKED]), ("llama", [*PLAIN, *PROMPTED])])
TEXTS = st.sampled_from([*SENTENCES, "Unwell riverbeds!", "naïve 漢字 😀", "a"])


def assert_explained(model, left, right):
    result = explain_pair(model, left, right)
    one, other = model.encode([left, right]).astype(np.float64)
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert result.cosine == pytest.approx(cosine, abs=1e-6)
    assert abs(result.residual) < 1e-6
    terms = result.contributions
    assert terms.shape == (*[len(result.views)] * 2, len(result.left.tokens), len(result.right.tokens))
    for sums in (terms, result.by_token, result.by_word, result.by_view):
        assert sums.sum() == pytest.approx(cosine, abs=1e-6)
    assert np.allclose(terms.sum((0, 1)), result.by_token)
    assert np.allclose(terms.sum((2, 3)), result.by_view)
    assert result.by_word.shape == (len(result.left.words), len(result.right.words))
    return result


@given(data=st.data())
def test_the_terms_sum_to_the_cosine_of_the_model(models, data):
    name, poolings = data.draw(NAMES)
    mix = data.draw(mixes(poolings))
    assert_explained(models[name].with_mix(mix), data.draw(TEXTS), data.draw(TEXTS))


def test_a_term_is_the_product_of_two_weighted_token_states(tiny_layers):
    left, right = SENTENCES[0], SENTENCES[5]
    result = explain_pair(tiny_layers.with_mix("1,3"), left, right)
    states = []
    for text in (left, right):
        ids = torch.tensor([tiny_layers.tokenizer(text)["input_ids"]])
        with torch.inference_mode():
            output = tiny_layers.encoder.model(ids, output_hidden_states=True)
        states.append(torch.stack([output.hidden_states[layer][0] for layer in (1, 3)]).double().numpy())
    vectors = [each / np.linalg.norm(each.mean(1).sum(0)) / each.shape[1] for each in states]
    assert result.views == ("1 @ mean", "3 @ mean")
    assert np.allclose(result.contributions, np.einsum("vtw,usw->vuts", *vectors), atol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_tokens_that_are_not_pooled_have_no_part(tiny_layers, name):
    result = assert_explained(tiny_layers.with_mix(f"last @ {name}"), SENTENCES[0], SENTENCES[3])
    counts = {"cls": 1, "last": 1, "mean-but-first": len(result.left.tokens) - 1}
    assert (np.abs(result.by_token).sum(1) > 0).sum() == counts.get(name, len(result.left.tokens))


def test_means_that_are_taken_away_are_taken_from_every_token(tiny_layers):
    centres = fit_centres(torch.from_numpy(tiny_layers.encoder.encode_layers(SENTENCES, layers=[2])), 1)
    mix = parse_mix("views(2 @ mean; unit; less 1)").with_fitted(centres)
    result = assert_explained(tiny_layers.with_mix(mix), SENTENCES[0], SENTENCES[1])
    assert result.views == ("2 @ mean",)
    assert "(bias)" not in result.left.words


def test_linear_heads_and_truncation_are_explained_too(tiny_layers):
    fitted = RemoveComponents(1).fit(tiny_layers.with_mix("1,4").encode(SENTENCES))
    model = tiny_layers.with_mix("1,4").with_postprocess(fitted)
    random = torch.Generator().manual_seed(0)
    plain = Head(torch.randn(12, WIDTH, generator=random), activation="identity")
    for heads in ((), (plain,)):
        deeper = model.replaced(heads=(*model.heads, *heads), normalize=True, truncate_dim=10)
        result = assert_explained(deeper, SENTENCES[0], SENTENCES[2])
        assert result.views == ("1 @ mean", "4 @ mean", "(bias)")
        assert result.left.words[-1] == result.left.tokens[-1] == "(bias)"
    assert "(bias)" not in assert_explained(tiny_layers.replaced(heads=(plain,)), "a", "b").left.words


def test_the_models_own_prompt_is_part_of_the_text(tiny_layers):
    model = tiny_layers.replaced(prompts={"ask": "rain and "}, default_prompt_name="ask")
    result = assert_explained(model, "The river", "the clock")
    assert result.left.words == ("[CLS]", "rain", "and", "The", "river", "[SEP]")
    assert result.left.text == "The river"


def test_words_of_several_prompts_are_told_apart(tiny_layers):
    result = assert_explained(tiny_layers.with_mix(f"views(1 @ mean; 4 @ {MASKED})"), "rain", "river")
    words = list(zip(result.left.words, result.left.prompts, strict=True))
    assert words[:3] == [("[CLS]", ""), ("rain", ""), ("[SEP]", "")]
    assert words[6] == ("[MASK]", '"{text} means {mask}."')
    assert result.left.labels[1] == "rain"
    assert result.left.labels[6] == '[MASK] (in "{text} means {mask}.")'
    alone = explain_pair(tiny_layers.with_mix(f"4 @ {MASKED}"), "rain", "river").left
    assert alone.labels == alone.words


def test_truncated_and_empty_texts_are_explained(tiny_layers):
    assert_explained(tiny_layers, "rain " * 200, "")
    assert_explained(tiny_layers.with_mix('last @ mean in "Say: {text}"'), "river " * 200, "rain")


def test_a_sentence_with_itself_has_the_cosine_1(tiny_layers):
    assert assert_explained(tiny_layers, "The river rose", "The river rose").total == pytest.approx(1)


def test_pairs_are_explained_together_as_alone(tiny_layers):
    pairs = [(one, other) for one in SENTENCES for other in SENTENCES]
    for pair, result in zip(pairs, explain_pairs(tiny_layers, pairs), strict=True):
        assert (result.left.text, result.right.text) == pair
        if pair[0] == SENTENCES[1]:
            assert np.allclose(result.by_word, explain_pair(tiny_layers, *pair).by_word, atol=1e-6)
    assert list(explain_pairs(tiny_layers, [])) == []


def test_half_precision_is_explained_from_the_same_states(tiny_bert):
    assert_explained(LayerModel.load(tiny_bert, mix="1,4", device="cpu", dtype="bfloat16"), SENTENCES[0], SENTENCES[1])


def test_the_largest_terms_come_first(tiny_layers):
    result = explain_pair(tiny_layers, SENTENCES[0], SENTENCES[1])
    values = [abs(result.by_word[pair]) for pair in result.top_words(5)]
    assert values == sorted(values, reverse=True)
    assert values[0] == np.abs(result.by_word).max()
    assert len(result.top_words(10**6)) == result.by_word.size


@pytest.mark.parametrize("count", [1, 3, 10**6])
def test_rows_of_the_largest_terms_sum_to_the_cosine(tiny_layers, count):
    result = explain_pair(tiny_layers.with_mix("1,3,4"), SENTENCES[0], SENTENCES[1])
    for rows, sums in (
        (result.largest_by_word(count), result.by_word),
        (result.largest_by_view(count), result.by_view),
    ):
        assert len(rows) == min(count + 1, sums.size)
        assert sum(term for _, _, term in rows) == pytest.approx(result.cosine, abs=1e-6)
        others = sums.size - count
        assert others < 0 or rows[-1][:2] == (f"{others} other pairs", "")
    one, other = result.top_words(1)[0]
    assert result.largest_by_word(1)[0] == (
        result.left.words[one],
        result.right.words[other],
        result.by_word[one, other],
    )
    assert result.largest_by_view(8)[-1][0] == "1 other pair"


def test_json_has_the_sums_and_says_that_tokens_are_contextual(tiny_layers):
    result = explain_pair(tiny_layers, SENTENCES[0], SENTENCES[1])
    facts = json.loads(json.dumps(plain_json(result.as_dict())))
    assert np.sum(facts["by_token"]) == pytest.approx(facts["cosine"], abs=1e-6)
    assert facts["left"]["words"][0] == "[CLS]"
    assert "contextual" in facts["note"]


# Refusals


def test_every_pooling_is_linear_or_refused():
    assert {*POOLINGS} == {*LINEAR_POOLINGS, "max"}


REFUSED = {
    "last @ max": "max takes each dimension from another token",
    "1 @ mean | 2 @ max": "max takes each dimension from another token",
    "wk(start=1)": "SBERT-WK computes the weights",
}


@pytest.mark.parametrize("mix", REFUSED)
def test_mixes_that_are_not_linear_are_refused_with_the_reason(tiny_layers, mix):
    with pytest.raises(MixError, match=rf"cannot be explained exactly: .*{REFUSED[mix]}"):
        explain_pair(tiny_layers.with_mix(mix), "a", "b")


def test_attention_is_refused(tiny_layers):
    mix = Attention("cls", "mean").fresh(WIDTH, seed=0)
    with pytest.raises(MixError, match=r"cannot be explained exactly: attention computes the weights .* name a set of"):
        explain_pair(tiny_layers.with_mix(mix), "a", "b")


HEADS = {"tanh": Head(torch.eye(WIDTH)), "flow": FlowHead(FlowNetwork(WIDTH, blocks=1, hidden=4, coupling="affine"))}


@pytest.mark.parametrize("name", HEADS)
def test_heads_that_are_not_linear_are_refused(tiny_layers, name):
    with pytest.raises(ModelError, match=rf"its head \({name}\) is not linear"):
        check_linear(tiny_layers.replaced(heads=(HEADS[name],)))


def test_a_model_that_gives_other_numbers_in_each_pass_is_refused(tiny_layers, monkeypatch):
    encoded = tiny_layers.encode(["rain", "river"])
    noisy = type("Noisy", (LayerModel,), {"encode": lambda self, texts: encoded + 0.1 * np.arange(WIDTH)})
    with pytest.raises(ModelError, match=r"The terms sum to 0\.\d+, but the cosine is"):
        explain_pair(noisy(tiny_layers.encoder), "rain", "river")


def test_an_embedding_of_0_has_no_cosine(tiny_layers):
    model = tiny_layers.replaced(heads=(Head(torch.zeros(4, WIDTH), activation="identity"),))
    with pytest.raises(LayerwiseError, match=r"The embedding of 'rain' is 0"):
        explain_pair(model, "rain", "river")


def test_onnx_is_refused(tiny_layers, monkeypatch):
    monkeypatch.setattr(tiny_layers.encoder, "backend", "onnx")
    with pytest.raises(InputError, match="ONNX graphs don't give; use the torch backend"):
        check_linear(tiny_layers)


# Words


WORDS = {
    "pieces": (["un", "##well"], "Unwell", [(0, 2), (2, 6)], ["Unwell"]),
    "punctuation": (["a", ".", "."], "a..", [(0, 1), (1, 2), (2, 3)], ["a", ".", "."]),
    "spaces within spans": (["Ġa", "Ġb", "c"], " a bc", [(0, 2), (2, 4), (4, 5)], ["a", "bc"]),
    "bytes of one sign": (["ð", "Ł", "x"], "😀x", [(0, 1), (0, 1), (1, 2)], ["😀", "x"]),
    "no spaces between words": (["漢", "字"], "漢字", [(0, 1), (1, 2)], ["漢", "字"]),
    "combining marks": (["e", "́s"], "és", [(0, 1), (1, 3)], ["és"]),
    "special tokens": (["[CLS]", "a", "[SEP]"], "a", [(0, 0), (0, 1), (0, 0)], ["[CLS]", "a", "[SEP]"]),
    "a token of a space": (["▁", "a"], " a", [(0, 1), (1, 2)], ["▁", "a"]),
    "no spans": (["un", "##well"], "", [], ["un", "##well"]),
}


@pytest.mark.parametrize("case", WORDS)
def test_tokens_become_words(case):
    tokens, text, spans, expected = WORDS[case]
    words, of_token = words_of(tokens, text, spans)
    assert words == expected
    assert of_token.tolist() == sorted(of_token.tolist())
    assert set(of_token.tolist()) == set(range(len(words)))
