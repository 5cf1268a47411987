"""Views chosen without labels: what is alike, who agrees, and what is kept where nobody does."""

import numpy as np
import pytest
import torch

from layerwise.errors import InputError
from layerwise.mixes import Mean
from layerwise.model import LayerModel
from layerwise.search import ALIKE, CRITERIA, Proposal, ViewSearch, alike_and_unlike, alike_texts, search_view_text
from layerwise.search.graded_pairs import GradedPairs
from layerwise.search.metrics import as_metric
from layerwise.search.unlabelled import guarded_separation
from layerwise.search.view_dropout import DropoutViews, two_passes
from support.commands import assert_one_line, call_json, run_main
from support.text_pairs import some_pairs
from support.tiny import save_decoder

LAST = {"deletion": 4.0, "neighbours": 1.0, "repetition": 5.0}


@pytest.fixture(scope="module")
def texts():
    pairs = some_pairs(40)
    return [*pairs.left, *pairs.right]


def test_changed_words_are_those_of_the_text(texts):
    for text, longer in zip(*alike_texts("repetition", texts, []), strict=True):
        words = longer.split()
        assert [word for n, word in enumerate(words) if not n or words[n - 1] != word] == _without_doubles(text)
        assert len(words) > len(text.split())
    for text, shorter in zip(*alike_texts("deletion", texts, []), strict=True):
        rest = iter(text.split())
        assert all(word in rest for word in shorter.split())  # a subsequence
        assert 0 < len(shorter.split()) < len(text.split())


def _without_doubles(text):
    words = text.split()
    return [word for n, word in enumerate(words) if not n or words[n - 1] != word]


def test_one_word_cannot_be_changed_and_neighbours_follow_each_other():
    assert ALIKE["deletion"](["one", "two words"], np.random.default_rng(0))[0] == ["two words"]
    assert alike_texts("neighbours", ["a", "b", "c"], []) == (["a", "b"], ["b", "c"])
    assert alike_texts("dropout", ["a"], []) == (["a"], None)
    assert alike_texts("pairs", ["a"], ["b"]) == (["a"], ["b"])


def test_unlike_pairs_are_of_other_rows(texts):
    left, right, labels = alike_and_unlike("deletion", texts, seed=3)
    size = int(sum(labels))
    assert labels == [1.0] * size + [0.0] * 5 * size
    of = dict(zip(left[:size], right[:size], strict=True))
    assert not any(of[one] == other for one, other in zip(left[size:], right[size:], strict=True))
    assert alike_and_unlike("deletion", texts, seed=3) == (left, right, labels)
    with pytest.raises(InputError, match="1 sentences make 1 pairs by repetition, too few"):
        alike_and_unlike("repetition", ["two words"])
    with pytest.raises(InputError, match="Unknown criterion 'magic'"):
        alike_and_unlike("magic", texts)


@pytest.mark.parametrize(
    ("separations", "agreed"),
    [
        ((4.1, 1.1, 5.1), True),
        ((4.1, 1.1, 5.0), True),
        ((4.1, 1.0, 5.0), False),  # better by one of three only
        ((4.9, 1.9, 4.9), False),  # worse by one
        ((4.0, 1.0, 5.0), False),
    ],
)
def test_a_set_is_agreed_on_where_none_has_it_worse_and_most_better(separations, agreed):
    proposal = Proposal("deletion", Mean.of(1), dict(zip(LAST, separations, strict=True)))
    assert proposal.is_agreed(LAST) == agreed


def test_where_the_last_layer_keeps_nothing_apart_worse_is_worse_and_better_better():
    last = {"repetition": -0.1, "deletion": 0.0}
    assert not Proposal("deletion", Mean.of(1), {"repetition": -3.0, "deletion": 0.0}).is_agreed(last)
    assert Proposal("deletion", Mean.of(1), {"repetition": 0.4, "deletion": 0.3}).is_agreed(last)


def test_a_real_model_without_labels(tiny_bert, texts, tmp_path):
    model = LayerModel.load(tiny_bert)
    search = ViewSearch(["mean", "cls", "mask in means"], most=3, bags=0)
    result = search_view_text(model, texts, search)
    assert [one.criterion for one in result.proposals] == list(CRITERIA) == ["deletion", "neighbours", "repetition"]
    for one in result.proposals:  # each criterion's own choice is best by itself
        assert one.separations[one.criterion] >= result.last[one.criterion] - 1e-6
    chosen = result.model
    if result.agreed is None:
        assert chosen.mix == Mean.of(model.encoder.depth)
        assert str(result).startswith("Keep the last layer")
    else:
        assert chosen.mix == result.agreed.mix
        assert chosen.fitted_on[-1].seen(texts).all()
    chosen.save(tmp_path / "chosen")
    assert np.allclose(LayerModel.load(tmp_path / "chosen").encode(texts[:3]), chosen.encode(texts[:3]), atol=1e-6)


def test_what_is_taken_away_is_recorded_with_the_model(tiny_bert, texts):
    result = search_view_text(LayerModel.load(tiny_bert), texts, ViewSearch(["mean"], less=(0,), bags=0))
    for one in result.proposals:
        assert one.mix.fitted is not None
    if result.agreed is not None:
        assert {record.what for record in result.model.fitted_on} >= {"layers", "means of views"}


def test_dropout_gives_each_text_two_passes(tiny_bert, texts):
    encode = DropoutViews(LayerModel.load(tiny_bert), "", show_progress_bar=False)
    left, right, labels = two_passes(texts[:8] * 2, seed=1)
    size = int(sum(labels))
    assert size == len({*texts[:8]})
    assert [text.split(" ", 1)[1] for text in left[:size]] == [text.split(" ", 1)[1] for text in right[:size]]
    assert not {*zip(left[size:], right[size:], strict=True)} & {*zip(left[:size], right[:size], strict=True)}
    inputs = [*left[:size], *right[:size]]
    views = encode(inputs, ["mean", "mask in means"])
    by_encoder = encode.encoder.encode_layers(texts[:8], "mask in means", dropout_seed=1)
    assert np.array_equal(views["mask in means"][:size], by_encoder)
    assert np.abs(views["mask in means"][:size, 4] - views["mask in means"][size:, 4]).max() > 1e-3
    assert np.array_equal(encode(inputs, ["mask in means"])["mask in means"], views["mask in means"])


def test_dropout_chooses_views_no_worse_than_the_last_layer(tiny_bert, texts):
    model = LayerModel.load(tiny_bert)
    search = ViewSearch(["mean", "cls", "mask in means"], most=3, width=2)
    result = search_view_text(model, texts, search, criteria=("dropout",))
    (chosen,) = result.proposals
    assert chosen.separations["dropout"] >= result.last["dropout"]
    encode, pairs = DropoutViews(model, "", show_progress_bar=False), two_passes(texts, seed=0)
    guard = GradedPairs.of(*pairs, metric=as_metric("align-uniform"), encode=encode, device="cpu")
    rows = np.arange(len(guard))
    assert guard.score(chosen.mix, rows) >= guard.score(result.last_mix, rows) - 1e-5
    separation = GradedPairs.of(*pairs, metric=as_metric("separation"), encode=encode, device="cpu")
    assert separation.score(chosen.mix, rows) == pytest.approx(chosen.separations["dropout"], rel=1e-4)


def test_a_set_below_the_guard_has_no_score():
    labels, similarities = np.array([1.0, 1.0, 0.0, 0.0]), torch.tensor([[0.9, 0.8, 0.1, 0.3], [0.9, 0.8, 0.7, 0.6]])
    guard = as_metric("align-uniform")(labels)(similarities)
    assert guard[0] > guard[1]
    first, second = guarded_separation(float(guard.mean()))(labels)(similarities).tolist()
    assert first == pytest.approx(float(as_metric("separation")(labels)(similarities)[0]))
    assert np.isnan(second)


def test_the_command_by_dropout(tiny_bert, texts, tmp_path, monkeypatch, capfd):
    file = tmp_path / "text.txt"
    file.write_text("\n".join(texts), encoding="utf-8")
    options = ["--no-labels", "dropout", "--prompts", "means", "--device", "cpu"]
    said = call_json("search", tiny_bert, file, *options)
    assert list(said["last"]["separation"]) == ["dropout"]
    decoder = save_decoder("llama", tmp_path / "llama")
    mistake = run_main(monkeypatch, capfd, "search", decoder, file, *options[:2], "--prompts", "eol", "--device", "cpu")
    assert_one_line(*mistake, "LlamaModel has no dropout: two passes would be equal")


def test_the_command_without_labels(tiny_bert, texts, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("\n".join(texts), encoding="utf-8")
    said = call_json("search", tiny_bert, file, "--no-labels", "all", "--prompts", "means", "--save", tmp_path / "m")
    assert [one["criterion"] for one in said["proposals"]] == list(CRITERIA)
    assert str(LayerModel.load(tmp_path / "m").mix) == said["use"]
    alone = call_json("search", tiny_bert, file, "--no-labels", "deletion", "--scale", "unit")
    assert list(alone["last"]["separation"]) == ["deletion"]
    layers = call_json("search", tiny_bert, file, "--no-labels", "repetition")
    assert layers["best"]["separation"] >= layers["last"]["separation"]
