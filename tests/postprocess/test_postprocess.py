"""Whitening, removed components and flows: against their formulas, by properties, and on bad input."""

import logging
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.errors import InputError, ModelError
from layerwise.postprocess import FittedOn, Flow, FlowNetwork, RemoveComponents, Whitening
from layerwise.postprocess.fitted_on import text_digest
from support.slow_cases import one_in

seeds = st.integers(0, 10_000)


def embeddings(rows: int = 200, width: int = 8, seed: int = 0) -> np.ndarray:
    """Correlated, far from 0, of unlike spread."""
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, width)) @ random.normal(size=(width, width)) + 5 * random.normal(size=width)


def small_flow(**options) -> Flow:
    return Flow(**({"blocks": 2, "hidden": 16, "epochs": 3, "batch_size": 64} | options))


EVERY = [Whitening, RemoveComponents, small_flow]


@given(seeds, st.integers(1, 8))
@settings(max_examples=30)
def test_whitened_embeddings_have_mean_0_and_the_identity_as_covariance(seed, kept):
    found = Whitening(kept).fit_transform(embeddings(seed=seed))
    assert found.shape == (200, kept)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-8)
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(kept), atol=1e-6)


def test_whitening_equals_the_papers_formula():
    x = embeddings()
    u, s, _ = np.linalg.svd(np.cov(x.T, bias=True))
    expected = (x - x.mean(axis=0)) @ (u @ np.diag(1 / np.sqrt(s)))[:, :5]
    found = Whitening(5).fit_transform(x)
    np.testing.assert_allclose(found * np.sign((found * expected).sum(0)), expected, atol=1e-8)


@given(seeds, st.integers(0, 7), st.booleans())
@settings(max_examples=30)
def test_removed_components_equal_the_formula_and_are_gone(seed, count, centre):
    x = embeddings(seed=seed)
    shifted = x - x.mean(axis=0) if centre else x
    top = np.linalg.svd(shifted, full_matrices=False)[2][:count]
    removal = RemoveComponents(count, centre=centre).fit(x)
    found = removal.transform(x)
    np.testing.assert_allclose(found, shifted - (shifted @ top.T) @ top, atol=1e-7)
    np.testing.assert_allclose(found @ removal.directions_, 0, atol=1e-7)


def test_dimensions_that_do_not_vary_on_their_own_are_dropped_with_a_line(caplog):
    x = embeddings(width=6)
    dependent = np.hstack([x, x[:, :1] + x[:, 1:2], np.ones((200, 1))])
    with caplog.at_level(logging.INFO, logger="layerwise"):
        found = Whitening().fit_transform(dependent)
    assert "Whitening keeps 6 of 8 directions: 200 embeddings vary in no more" in caplog.text
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(6), atol=1e-6)
    with pytest.raises(
        InputError, match=r"vary in 6 directions only, so whitening cannot keep 7 dimensions; .*dimensions=6"
    ):
        Whitening(7).fit(dependent)


def test_fewer_rows_than_dimensions():
    few = embeddings(5, 8)
    assert Whitening().fit_transform(few).shape == (5, 4)
    with pytest.raises(InputError, match="5 embeddings vary in 4 directions only, so whitening cannot keep 8"):
        Whitening(8).fit(few)
    with pytest.raises(InputError, match="5 embeddings of 8 numbers are too few for a flow; give 8 or more"):
        small_flow().fit(few)
    with pytest.raises(InputError, match="2 embeddings have less than 3 directions"):
        RemoveComponents(3).fit(few[:2])
    with pytest.raises(InputError, match="3 embeddings without any difference cannot be whitened"):
        Whitening().fit(np.ones((3, 4)))


@pytest.mark.parametrize("make", EVERY)
def test_bad_embeddings_are_refused(make):
    x = embeddings()
    broken = x.copy()
    broken[3, 0], broken[17, 5] = np.nan, np.inf
    with pytest.raises(InputError, match="2 embeddings hold NaN or infinite numbers: rows 3, 17; leave them out"):
        make().fit(broken)
    with pytest.raises(InputError, match=r"embeddings have the shape \(8,\); expected \(sentences, width\)"):
        make().fit(x[0])
    with pytest.raises(InputError, match=r"have the shape \(0, 8\)"):
        make().fit(x[:0])
    for call in (lambda new: new.transform(x), lambda new: new.module()):
        with pytest.raises(InputError, match=r"is not fitted yet: call fit\(embeddings\) first"):
            call(make())
    with pytest.raises(InputError, match="the embeddings are 7 wide; fitted was on 8"):
        make().fit(x).transform(x[:, :7])
    with pytest.raises(InputError, match="fitted_on records 1 sentences, but there are 200 rows"):
        make().fit(x, fitted_on=FittedOn.of(["one"], source="a text"))


@pytest.mark.parametrize("asked", [0, -1, 9])
def test_dimensions_and_counts_beyond_the_width_are_refused(asked):
    with pytest.raises(InputError, match=f"dimensions {asked} is not possible: the embeddings are 8 wide; give 1 to 8"):
        Whitening(asked).fit(embeddings())
    if asked:
        with pytest.raises(InputError, match=f"count {asked} is not possible: the embeddings are 8 wide"):
            RemoveComponents(asked).fit(embeddings())


@pytest.mark.parametrize("make", EVERY)
def test_modules_equal_transform_and_types_stay(make):
    x = embeddings()
    fitted = make().fit(x)
    with torch.no_grad():
        found = fitted.module()(torch.from_numpy(x).float()).numpy()
    np.testing.assert_allclose(found, fitted.transform(x), atol=1e-4)
    assert fitted.transform(x).dtype == np.float64
    assert fitted.transform(x.astype(np.float32)).dtype == np.float32
    assert np.array_equal(make().fit(x).transform(x), fitted.transform(x)), "a fit can be repeated"


@pytest.mark.parametrize("coupling", ["additive", "affine"])
@given(seed=seeds, width=st.integers(2, 7))
@settings(max_examples=15, deadline=None)
def test_a_flow_can_be_undone_and_knows_its_determinant(coupling, seed, width):
    torch.manual_seed(seed)
    network = FlowNetwork(width, blocks=3, hidden=5, coupling=coupling).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.5)
    x = torch.randn(4, width, dtype=torch.float64)
    outcome, log_det = network.with_log_det(x)
    torch.testing.assert_close(network(x[None])[0], outcome)
    for row, inverse in enumerate(network.inverse(outcome)):
        jacobian = torch.autograd.functional.jacobian(lambda v: network(v[None])[0], x[row])
        allowed = max(1e-9, 1e-13 * torch.linalg.cond(jacobian).item())  # a few draws are near to singular
        torch.testing.assert_close(inverse, x[row], rtol=0, atol=allowed)
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], log_det[row], rtol=0, atol=allowed)


def test_the_likelihood_is_a_density():
    """It integrates to 1 over the plane, so the log-determinant has the right sign."""
    torch.manual_seed(0)
    network = FlowNetwork(2, blocks=2, hidden=4, coupling="affine").double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.3)
    side = torch.linspace(-15, 15, 600, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    total = network.log_likelihood(grid).exp().sum() * (side[1] - side[0]) ** 2
    assert abs(total.item() - 1) < 1e-3


def test_a_new_flow_only_normalises():
    x = torch.from_numpy(embeddings())
    network = FlowNetwork(8, blocks=3, hidden=4, coupling="affine").double()
    network.start_at(x)
    found = network(x)
    torch.testing.assert_close(found.mean(0), torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(found.std(0, correction=0), torch.ones(8, dtype=torch.float64))


@pytest.mark.parametrize("coupling", one_in(2, ["additive", "affine"]))
def test_training_a_flow_lowers_its_loss_and_is_repeatable(coupling):
    x, seen = embeddings(1000), []
    flow = small_flow(coupling=coupling, epochs=6, progress=lambda epoch, loss: seen.append((epoch, loss)))
    before = torch.get_rng_state()
    flow.fit(x)
    assert torch.equal(torch.get_rng_state(), before), "the caller's random state is left alone"
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert flow.losses_ == tuple(loss for _, loss in seen)
    assert flow.losses_[-1] < flow.losses_[0] - 0.02
    assert small_flow(coupling=coupling, epochs=6).fit(x).losses_ == flow.losses_
    assert small_flow(coupling=coupling, epochs=6, seed=1).fit(x).losses_ != flow.losses_
    np.testing.assert_allclose(flow.inverse_transform(flow.transform(x)), x, atol=1e-3)


def test_a_constant_dimension_gives_no_nan():
    x = np.hstack([embeddings(), np.ones((200, 1))])
    flow = small_flow().fit(x)
    assert np.isfinite(flow.transform(x)).all()
    assert all(map(math.isfinite, flow.losses_))


def test_a_flow_that_goes_astray_is_stopped():
    with pytest.raises(
        InputError, match=r"The flow's loss became (nan|inf) in epoch 1: .*lower learning_rate \(1e\+30\)"
    ):
        small_flow(learning_rate=1e30).fit(embeddings())


def test_flows_that_can_not_be_are_refused():
    with pytest.raises(InputError, match=r"Unknown coupling 'spline'. Known: additive, affine"):
        small_flow(coupling="spline").fit(embeddings())
    with pytest.raises(ModelError, match="A flow needs width 2, 1 block and 1 hidden or more, not 1, 2, 16"):
        small_flow().fit(embeddings(width=1))
    with pytest.raises(InputError, match="A flow needs 1 epoch, 2 rows a batch and a learning rate above 0"):
        small_flow(epochs=0).fit(embeddings())


TEXTS = ["A cat sat.", "It rained.", "a  CAT sat. ", "Wer weiß?"]


def test_what_was_fitted_on_is_told_without_its_text():
    told = FittedOn.of(TEXTS, source="four sentences")
    assert (told.sentences, told.different) == (4, 3)
    assert told.seen(["it rained.", "It snowed.", " A CAT\tsat."]).tolist() == [True, False, True]
    assert told.saw(["it rained.", "It snowed."]) == 0.5
    assert math.isnan(told.saw([]))
    assert str(told) == "4 sentences of four sentences, 3 of them different"
    assert told.digest == text_digest(reversed(TEXTS)) != text_digest(TEXTS[1:2])
    assert told == FittedOn.of(TEXTS, source="four sentences") != told.named("flow")
    assert hash(told) == hash(FittedOn.of(TEXTS, source="four sentences"))
    with pytest.raises(InputError, match="texts is one string"):
        FittedOn.of("A cat sat.", source="one")


words = st.lists(st.sampled_from(["a", "b", "ab", "A", "B", "1", ".", ",", "'", "!"]), max_size=4).map(" ".join)


@given(st.lists(words), st.lists(words))
def test_seen_texts_are_those_of_the_same_letters(fitted, asked):
    def letters(text):
        return "".join(filter(str.isalnum, text.lower())) or text

    told = FittedOn.of(fitted, source="drawn")
    assert told.seen(asked).tolist() == [letters(text) in set(map(letters, fitted)) for text in asked]
    assert told.different == len(set(map(letters, fitted)))


@given(st.lists(st.text(), min_size=1))
def test_every_text_of_a_fit_was_seen(fitted):
    assert FittedOn.of(fitted, source="drawn").saw(fitted) == 1


def test_a_tokenised_sentence_is_the_raw_one():
    told = FittedOn.of(['She didn\'t say: "No!"', "..."], source="raw")
    assert told.seen(["she did n't say : `` no ! ''", "...", "!"]).tolist() == [True, True, False]


@pytest.mark.parametrize("make", EVERY)
def test_a_fit_keeps_the_record_or_says_that_there_is_none(make):
    x, texts = embeddings(), [f"sentence {number}" for number in range(200)]
    fitted = make().fit(x, fitted_on=FittedOn.of(texts, source="made up"))
    assert fitted.fitted_on_.what == fitted.name
    assert fitted.fitted_on_.saw(texts) == 1
    unknown = make().fit(x).fitted_on_
    assert math.isnan(unknown.saw(texts))
    with pytest.raises(InputError, match=r"unknown text: what was seen is not recorded; fit it again with fitted_on="):
        unknown.seen(texts)
