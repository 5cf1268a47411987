"""Every set's score against brute force in float64: means of views, cosines, SciPy's and scikit-learn's metrics."""

from contextlib import contextmanager
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, rankdata, spearmanr
from sklearn.metrics import average_precision_score

from layerwise import Head, Search
from layerwise.errors import InputError, LayerwiseError, MixError
from layerwise.search import Space, as_metric, layers_of, sources
from layerwise.search.forms import Halves, scatter_bits, symmetric, triangle, weighted
from layerwise.search.heads import HeadPairs
from layerwise.search.metrics import METRICS
from layerwise.search.problems import PairProblem
from layerwise.search.sorting import sort_carrying
from layerwise.search.sources import PairGrams, lower_bits
from layerwise.search.spaces import mask_of, membership
from support.slow_cases import one_in

GRADED, LABELLED = ["spearman", "pearson"], ["cosine_ap", "cosine_accuracy"]


def cosine(left, right):
    """(n, d), (n, d) -> (n,): 0 where a vector is all zeros; equal to 12 digits means equal."""
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = (left * right).sum(1)
    return np.round(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0), 12)


def naive_score(metric, similarities, gold):
    if metric in GRADED:
        if np.ptp(similarities) == 0:
            return np.nan
        return (spearmanr if metric == "spearman" else pearsonr)(similarities, gold).statistic
    if metric == "cosine_ap":
        return average_precision_score(gold, similarities)
    return max(((similarities >= limit) == gold).mean() for limit in [*similarities, np.inf])


def brute_force(left, right, gold, metric, space=None):
    """Set -> score, one after the other."""
    left, right = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    layers = range(left.shape[1])
    found = {}
    for chosen in (chosen for size in layers for chosen in combinations(layers, size + 1)):
        if space is None or space.allows(np.array([mask_of(chosen)], dtype=np.uint64))[0]:
            similarities = cosine(left[:, list(chosen)].mean(1), right[:, list(chosen)].mean(1))
            found[chosen] = naive_score(metric, similarities, gold)
    return found


def scanned(left, right, gold, metric, space=None):
    problem = PairProblem(PairGrams.of(left, right), np.asarray(gold, dtype=np.float64), METRICS[metric])
    masks, scores = problem.scan(space or Space())
    assert len(set(masks.tolist())) == len(masks) == len(scores)
    return {layers_of(int(mask)): float(score) for mask, score in zip(masks, scores, strict=True)}


def assert_same(found, expected, tolerance=1e-10):
    assert found.keys() == expected.keys()
    for chosen, score in expected.items():
        assert found[chosen] == pytest.approx(score, abs=tolerance, nan_ok=True), chosen


def random_pairs(pairs, layers, width=6, seed=0):
    """Views of both sides, which are alike; grades with ties; labels."""
    random = np.random.default_rng(seed)
    left = random.normal(size=(pairs, layers, width))
    right = left + random.normal(size=left.shape)
    return left, right, random.integers(0, 6, size=pairs) / 2, random.integers(0, 2, size=pairs).astype(float)


def with_identical_sentences(left, right):
    right[::3] = left[::3]


def with_parallel_sentences(left, right):
    right[::2] = left[::2] * np.random.default_rng(1).uniform(0.1, 9, size=(len(left[::2]), 1, 1))  # 1, but for noise


def with_opposite_sentences(left, right):
    right[::2] = -left[::2]
    right[::4] *= np.random.default_rng(1).uniform(0.1, 9, size=(len(left[::4]), 1, 1))  # -1, but for noise


def with_zero_vectors(left, right):
    left[::5] = 0
    right[1::5] = 0
    right[2::5, 0] = 0


def with_layers_that_cancel(left, right):
    left[::4, -1] = -left[::4, 0]


def with_repeated_pairs(left, right):
    for side in (left, right):
        side[len(side) // 2 :] = side[: len(side) - len(side) // 2]


def with_a_layer_without_information(left, right):
    right[:, 0] = left[:, 0]


@contextmanager
def scan_settings(block=2**17, uppers=64, threads=2):
    """The blocks and threads of a scan."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_CPU_BLOCK", block)
        patch.setattr(sources, "_MAX_UPPER_SETS", uppers)
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@pytest.mark.parametrize("metric", GRADED + LABELLED)
@pytest.mark.parametrize(("pairs", "layers"), [(5, 1), (8, 2), (37, 2), (37, 7), (101, 5)])
def test_every_set_scores_as_by_brute_force(metric, pairs, layers):
    left, right, grades, labels = random_pairs(pairs, layers, seed=pairs)
    labels[:2] = 0, 1
    gold = grades if metric in GRADED else labels
    found = scanned(left, right, gold, metric)
    assert len(found) == 2**layers - 1
    assert_same(found, brute_force(left, right, gold, metric))


@pytest.mark.parametrize("metric", one_in(2, GRADED + LABELLED))
@pytest.mark.parametrize(
    "change",
    [
        with_identical_sentences,
        with_parallel_sentences,
        with_opposite_sentences,
        with_zero_vectors,
        with_layers_that_cancel,
        with_repeated_pairs,
        with_a_layer_without_information,
    ],
    ids=lambda change: change.__name__,
)
def test_ties_and_degenerate_vectors_score_as_by_brute_force(change, metric):
    left, right, grades, labels = random_pairs(101, 6, width=24, seed=2)
    change(left, right)
    gold = grades if metric in GRADED else labels
    assert_same(scanned(left, right, gold, metric), brute_force(left, right, gold, metric))


@pytest.mark.parametrize("metric", GRADED)
def test_equal_similarities_have_no_correlation(metric):
    left, _, grades, _ = random_pairs(23, 3)
    for right in (left, 3 * left, -left, np.zeros_like(left)):
        assert np.isnan(list(scanned(left, right, grades, metric).values())).all()
    _, right, *_ = random_pairs(23, 3)
    with_a_layer_without_information(left, right)
    assert [chosen for chosen, score in scanned(left, right, grades, metric).items() if np.isnan(score)] == [(0,)]


@pytest.mark.parametrize("metric", ["spearman", "cosine_ap"])
def test_more_pairs_than_a_block_holds(metric, monkeypatch):
    monkeypatch.setattr("layerwise.search.sources._CPU_BLOCK", 2**17)
    left, right, grades, labels = random_pairs(6001, 5, width=4)
    assert lower_bits(3 * len(left), 5, torch.device("cpu")) == 3  # the fewest
    gold = grades if metric == "spearman" else labels
    assert_same(scanned(left, right, gold, metric), brute_force(left, right, gold, metric))


@pytest.mark.parametrize(
    "convert",
    [
        np.float16,
        np.float32,
        lambda views: torch.from_numpy(views).half(),
        lambda views: torch.from_numpy(views).bfloat16(),
        lambda views: torch.from_numpy(views).float(),
        lambda views: torch.from_numpy(views),
        lambda views: np.asfortranarray(views)[:, ::-1],
    ],
    ids=["float16", "float32", "torch-half", "torch-bfloat16", "torch-float", "torch-double", "strided"],
)
def test_views_of_any_kind_are_summed_in_float64(convert):
    left, right, grades, _ = random_pairs(40, 3, width=5)
    left, right = convert(left), convert(right)
    double = [side.double().numpy() if isinstance(side, torch.Tensor) else side for side in (left, right)]
    assert_same(scanned(left, right, grades, "spearman"), brute_force(*double, grades, "spearman"))


def test_views_that_become_grams_a_part_at_a_time(monkeypatch):
    left, right, *_ = random_pairs(40, 3, width=5)
    whole = PairGrams.of(left, right).grams
    monkeypatch.setattr(sources, "_GRAM_PAIRS", 7)
    assert torch.allclose(PairGrams.of(left, right).grams, whole, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "space",
    [
        Space(largest=2),
        Space.exactly(3),
        Space(contiguous=True),
        Space(contiguous=True, smallest=2, include=(2,)),
        Space(include=(0, 5)),
        Space(include=(1,), exclude=(-1,), largest=3),
        Space(only=(0, 2, 4, 6)),
        Space(highest=3, smallest=2),
        Space(include=tuple(range(7))),
        Space(only=(3,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("block", [1, 2**17])
def test_spaces_are_scanned_whole_and_nothing_else(space, block):
    left, right, grades, _ = random_pairs(29, 7, seed=3)
    everything = scanned(left, right, grades, "spearman")
    expected = {layers_of(int(mask)) for masks in space.masks(7, 50) for mask in masks}
    with scan_settings(block=block, uppers=3):
        found = scanned(left, right, grades, "spearman", space)
    assert_same(found, {chosen: everything[chosen] for chosen in expected})
    assert len(found) == space.count(7)


def test_a_space_without_members_is_refused_before_the_scan():
    left, right, grades, _ = random_pairs(10, 3)
    with pytest.raises(MixError, match="No set of layers 0 to 2 fits"):
        scanned(left, right, grades, "spearman", Space(smallest=4))


def test_more_layers_than_halves_can_take():
    left, right, grades, _ = random_pairs(20, 40, width=4)
    found = scanned(left, right, grades, "spearman", Space(largest=2))
    assert len(found) == 40 + 780
    for chosen in [(0,), (39,), (0, 39), (17, 23)]:
        similarities = cosine(left[:, list(chosen)].mean(1), right[:, list(chosen)].mean(1))
        assert found[chosen] == pytest.approx(spearmanr(similarities, grades).statistic, abs=1e-10)


def test_a_small_space_of_many_layers_costs_no_walk_through_all_sets():
    left, right, grades, _ = random_pairs(350, 21, width=4)
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        allows = Space.allows
        patch.setattr(Space, "allows", lambda self, masks: asked.append(len(masks)) or allows(self, masks))
        assert len(scanned(left, right, grades, "spearman", Space(largest=1))) == 21
    assert sum(asked) < 2**16  # of 2^21 sets, 21 are in the space


@given(st.integers(0, 10**6), st.sampled_from(GRADED + LABELLED))
def test_the_order_of_pairs_changes_no_score(seed, metric):
    left, right, grades, labels = random_pairs(17, 3, seed=seed % 100)
    with_identical_sentences(left, right)
    gold = grades if metric in GRADED else labels
    order = np.random.default_rng(seed).permutation(len(gold))
    shuffled = scanned(left[order], right[order], gold[order], metric)
    assert_same(shuffled, scanned(left, right, gold, metric), 1e-12)


@given(st.integers(2, 40), st.integers(2, 6), st.integers(0, 10**6), st.sampled_from(GRADED + LABELLED))
def test_a_resample_scores_as_its_pairs_again_and_again(pairs, levels, seed, metric):
    """Similarities and grades of few values are tied in many places."""
    random = np.random.default_rng(seed)
    gold = random.integers(2 if metric in LABELLED else levels, size=pairs).astype(float)
    similarities = random.uniform(-1, 1, (4, pairs))
    similarities[2:] = random.integers(levels, size=(2, pairs)) / levels
    similarities[3, 1:] = similarities[3, 0]
    rows = random.integers(pairs, size=pairs)
    used, score = as_metric(metric).resampled(gold, rows)
    if np.ptp(gold[rows]):
        expected = [naive_score(metric, row[rows], gold[rows]) for row in similarities]
        found = score(torch.from_numpy(similarities[:, used]))
        assert found.numpy() == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(st.floats(1e-30, 1e30), st.integers(0, 100), st.sampled_from(GRADED + LABELLED))
def test_scaling_the_views_changes_no_score(scale, seed, metric):
    left, right, grades, labels = random_pairs(17, 3, seed=seed)
    with_identical_sentences(left, right)
    gold = grades if metric in GRADED else labels
    assert_same(scanned(left * scale, right * scale, gold, metric), scanned(left, right, gold, metric))
    assert_same(scanned(left * scale, right, gold, metric), scanned(left, right, gold, metric))


@pytest.mark.parametrize("scale", [1e-2, 1e-4, 1e-6, 1e-9])
def test_a_layer_of_short_vectors_is_no_zero_vector(scale):
    """Where every block adds to a residual stream, the first layers are much shorter than the last."""
    left, right, grades, _ = random_pairs(31, 4)
    left[:, :2] *= scale
    right[:, :2] *= scale
    assert_same(scanned(left, right, grades, "spearman"), brute_force(left, right, grades, "spearman"))


@given(st.integers(1, 8), st.integers(0, 8), st.integers(1, 5), st.integers(0, 10**6), st.randoms())
def test_halves_are_the_forms_of_all_sets(layers, lower, items, seed, shuffle):
    numbers = list(range(layers))
    shuffle.shuffle(numbers)
    below, above = sorted(numbers[:lower]), sorted(numbers[lower:])
    random = torch.Generator().manual_seed(seed)
    grams = symmetric(torch.randn(items, layers, layers, generator=random, dtype=torch.float64))
    halves = Halves.of(grams, above, below)
    every = np.arange(2 ** len(above), dtype=np.uint64)
    members = torch.from_numpy(membership(every, len(above)))
    for upper, columns in zip(scatter_bits(every, above), halves.columns(members), strict=True):
        masks = halves.lower_masks | upper
        rows = torch.from_numpy(membership(masks, layers))
        naive = torch.einsum("rl,ilm,rm->ri", rows, grams, rows)
        assert torch.allclose(halves.block(columns), naive, atol=1e-12)
        assert torch.allclose(weighted(rows, triangle(grams)), naive, atol=1e-12)
        some = torch.arange(0, len(rows), 2)
        assert torch.allclose(halves.block(columns, some), naive[some], atol=1e-12)


@given(st.integers(1, 2**12), st.integers(1, 9), st.integers(1, 4), st.integers(0, 100))
def test_blocks_and_threads_change_no_score(block, uppers, threads, seed):
    left, right, grades, _ = random_pairs(13, 6, seed=seed)
    with_identical_sentences(left, right)
    expected = scanned(left, right, grades, "spearman")
    with scan_settings(block, uppers, threads):
        assert_same(scanned(left, right, grades, "spearman"), expected, 1e-12)
        assert torch.get_num_threads() == threads


def test_the_order_of_a_scan_does_not_depend_on_threads():
    left, right, grades, _ = random_pairs(13, 8)
    problem = PairProblem(PairGrams.of(left, right), grades, METRICS["spearman"])
    scans = []
    for threads in (1, 2, 4):
        with scan_settings(block=2**8, uppers=2, threads=threads):
            scans.append(problem.scan(Space()))
    for masks, scores in scans[1:]:
        assert np.array_equal(masks, scans[0][0])
        assert np.array_equal(scores, scans[0][1])


def test_progress_counts_every_set_once():
    left, right, grades, _ = random_pairs(13, 8)
    done = []
    with scan_settings(block=2**8, uppers=2):
        PairProblem(PairGrams.of(left, right), grades, METRICS["spearman"]).scan(Space(largest=3), progress=done.append)
    assert sum(done) == Space(largest=3).count(8)
    assert len(done) > 1


@given(
    st.lists(st.integers(-4, 4), min_size=5, max_size=40),
    st.lists(st.integers(-3, 3), min_size=5, max_size=40),
    st.sampled_from(GRADED + LABELLED),
)
def test_metrics_of_similarities_full_of_ties(similarities, gold, metric):
    size = min(len(similarities), len(gold))
    values, gold = np.array(similarities[:size]) / 4, np.array(gold[:size], dtype=float)
    if metric in LABELLED:
        gold = (gold > 0).astype(float)
    if np.ptp(gold) == 0:
        return
    rows = torch.from_numpy(np.stack([values, -values, values[::-1].copy(), np.zeros(size)]))
    found = METRICS[metric](gold)(rows.clone())
    expected = [naive_score(metric, row, gold) for row in rows.numpy()]
    assert found.tolist() == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("bits", [1, 4, 11])
def test_rounding_noise_around_the_values_of_equal_sentences_is_a_tie(value, bits):
    noise = np.array([0, 1, -1, 2, -2, 3, -3]) * np.finfo(float).eps / 2
    found = sort_carrying(torch.from_numpy(value + noise)[None], torch.tensor([1, 0, 1, 0, 1, 0, 1]), bits)
    assert found.tied is not None
    assert found.tied.all()
    assert found.carried.tolist() == [[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]]


@pytest.mark.parametrize("bits", [1, 4, 11])
def test_rows_are_sorted_with_what_they_carry(bits):
    similarities = np.random.default_rng(0).uniform(-1, 1, size=(20, 15))
    numbers = np.random.default_rng(1).integers(0, 2**bits, size=15)
    found = sort_carrying(torch.from_numpy(similarities), torch.from_numpy(numbers), bits)
    assert found.tied is None
    assert np.array_equal(found.carried.numpy(), numbers[np.argsort(similarities, axis=1)])


def test_given_weights_score_as_by_brute_force():
    left, right, grades, _ = random_pairs(33, 5)
    weights = np.random.default_rng(1).uniform(-0.2, 1, size=(30, 5))
    found = PairProblem(PairGrams.of(left, right), grades, METRICS["spearman"]).scores(weights)
    for row, score in zip(weights, found, strict=True):
        mixed = [np.einsum("plw,l->pw", side, row) for side in (left, right)]
        assert score == pytest.approx(spearmanr(cosine(*mixed), grades).statistic, abs=1e-10)


def test_a_function_of_the_user_scores_every_set():
    left, right, grades, _ = random_pairs(21, 4)

    def largest_error(similarities, gold):
        return -np.abs(similarities - gold / 3).max()

    metric = as_metric(largest_error)
    assert metric.name == "largest_error"
    masks, scores = PairProblem(PairGrams.of(left, right), grades, metric).scan(Space())
    for mask, score in zip(masks, scores, strict=True):
        chosen = list(layers_of(int(mask)))
        similarities = cosine(left[:, chosen].mean(1), right[:, chosen].mean(1))
        assert score == pytest.approx(largest_error(similarities, grades), abs=1e-10)


def test_an_error_in_the_users_function_reaches_the_user():
    left, right, grades, _ = random_pairs(21, 4)

    def broken(similarities, gold):
        raise ZeroDivisionError("in the user's metric")

    threads = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError, match="in the user's metric"):
        Search(dev="all", metric=broken).fit_views(left, right, grades)
    assert torch.get_num_threads() == threads


def test_an_unknown_metric_lists_those_that_are_known():
    with pytest.raises(LayerwiseError, match=r"Known: align-uniform, .*; for retrieval mrr@10"):
        as_metric("spearmen")


def test_average_ranks_of_grades_are_kept():
    """Grades 1, 2, 2, 3 and similarities in the same order, worked out by hand."""
    gold = np.array([1.0, 2.0, 2.0, 3.0, 4.0])
    found = METRICS["spearman"](gold)(torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5]], dtype=torch.float64))
    ranks = np.array([1, 2.5, 2.5, 4, 5])
    assert rankdata(gold).tolist() == ranks.tolist()
    assert found.item() == pytest.approx(np.corrcoef(ranks, [1, 2, 3, 4, 5])[0, 1], abs=1e-14)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
def test_a_head_behind_every_set(activation, bias):
    left, right, grades, _ = random_pairs(30, 4, width=6)
    torch.manual_seed(0)
    head = Head(torch.randn(5, 6) / 2, torch.randn(5) if bias else None, activation=activation)
    weight = head.linear.weight.detach().double().numpy()
    shift = head.linear.bias.detach().double().numpy() if bias else 0
    function = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "identity": lambda x: x}[activation]
    pairs = HeadPairs.of(left, right, head)
    masks, scores = PairProblem(pairs, grades, METRICS["spearman"]).scan(Space())
    assert len(masks) == 15
    for mask, score in zip(masks, scores, strict=True):
        chosen = list(layers_of(int(mask)))
        mixed = [function(side[:, chosen].mean(1) @ weight.T + shift) for side in (left, right)]
        assert score == pytest.approx(naive_score("spearman", cosine(*mixed), grades), abs=1e-10), chosen
        weights = torch.from_numpy(membership(np.array([mask], dtype=np.uint64), 4))
        assert np.abs(pairs.similarities(weights)[0].numpy() - cosine(*mixed)).max() < 1e-11


def test_a_head_in_blocks_of_any_size_and_on_some_pairs(monkeypatch):
    left, right, grades, _ = random_pairs(30, 4, width=6)
    head, rows = Head(torch.eye(6)[:3], torch.ones(3)), np.array([4, 9, 2, 17, 28, 6])
    whole = PairProblem(HeadPairs.of(left, right, head), grades, METRICS["spearman"])
    alone = PairProblem(HeadPairs.of(left[rows], right[rows], head), grades[rows], METRICS["spearman"])
    assert np.allclose(whole.pick(rows).scan(Space())[1], alone.scan(Space())[1], atol=1e-12)
    masks, scores = whole.scan(Space())
    monkeypatch.setattr("layerwise.search.heads._BLOCK", {"cpu": 200, "cuda": 200})
    again = whole.scan(Space())
    assert np.array_equal(masks, again[0])
    assert np.allclose(scores, again[1], atol=1e-12)


def test_a_linear_head_without_bias_changes_nothing_when_it_is_a_rotation():
    left, right, grades, _ = random_pairs(30, 4, width=6)
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))[0]
    head = Head(rotation, activation="identity")
    scores = PairProblem(HeadPairs.of(left, right, head), grades, METRICS["pearson"]).scan(Space())[1]
    plain = scanned(left, right, grades, "pearson").values()
    assert sorted(scores) == pytest.approx(sorted(plain), abs=1e-5)


def test_views_that_a_head_cannot_take_are_refused():
    left, right, _, _ = random_pairs(10, 3, width=6)
    with pytest.raises(InputError, match="The head takes 4 numbers, but the views have 6"):
        HeadPairs.of(left, right, Head(torch.eye(4)))
    right[4, 1, 2] = np.inf
    with pytest.raises(InputError, match="NaN or infinite"):
        HeadPairs.of(left, right, Head(torch.eye(6)))
