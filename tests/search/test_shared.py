"""The search on real views of real pairs, identical sentences and tied grades included, against SciPy in float64."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import average_precision_score

from layerwise import LayerEncoder, Search
from layerwise.search import layers_of
from layerwise.search.spaces import membership

pytestmark = pytest.mark.shared
from support.slow_cases import one_in

SAMPLES = {"stsb": slice(0, 30), "sts12": slice(1500, 1565)}  # many pairs of the latter are the same sentence twice


@pytest.fixture(scope="module")
def encoder(shared) -> LayerEncoder:
    return LayerEncoder(shared / "models" / "wiki-mlm-12x384", device="cpu")


def read_pairs(shared, name):
    path = shared / "data" / "sts" / f"{name}.parquet"
    return pq.read_table(path, filters=[("split", "=", "test")]).to_pydict()


@pytest.fixture(scope="module")
def samples(shared, encoder):
    """Name -> sentences and their views by pooling, of either side, and grades. Every sentence is encoded once."""
    tables = {name: read_pairs(shared, name) for name in SAMPLES}
    columns = {
        name: [np.array(tables[name][column][rows]) for column in ("sentence1", "sentence2")]
        for name, rows in SAMPLES.items()
    }
    texts = sorted({str(text) for sides in columns.values() for side in sides for text in side})
    place, views = {text: row for row, text in enumerate(texts)}, encoder.encode_layers(texts, ("mean", "cls"))
    found = {}
    for name, rows in SAMPLES.items():
        picked = [[place[str(text)] for text in side] for side in columns[name]]
        sides = [{pooling: array[row] for pooling, array in views.items()} for row in picked]
        found[name] = columns[name], sides, np.array(tables[name]["score"][rows])
    return found


@pytest.fixture(scope="module")
def searched(samples):
    """Name -> the search over all sets, and all cosines by plain means of the vectors."""
    found = {}
    for name, (_, (left, right), gold) in samples.items():
        selection = Search(dev="all").fit_views(left["mean"], right["mean"], gold).selection_
        found[name] = selection, all_cosines(left["mean"], right["mean"], selection.table.masks)
    return found


def all_cosines(left, right, masks):
    """Cosines of the mean vectors in float64, without Gram matrices: (sets, pairs)"""
    pairs, layers, width = left.shape
    sides = [side.astype(np.float64).transpose(1, 0, 2).reshape(layers, -1) for side in (left, right)]
    found = []
    for part in np.array_split(membership(masks, layers), 64):
        shares = part / part.sum(1, keepdims=True)
        a, b = ((shares @ side).reshape(len(part), pairs, width) for side in sides)
        dots, left_squares, right_squares = (np.einsum("spw,spw->sp", x, y) for x, y in ((a, b), (a, a), (b, b)))
        found.append(dots / np.sqrt(left_squares * right_squares))
    return np.concatenate(found)


def rank_correlations(similarities, gold):
    """Spearman's correlation of every row with the grades: (sets, pairs) -> (sets,)"""
    ranks, grades = rankdata(similarities, axis=1), rankdata(gold)
    ranks, grades = ranks - ranks.mean(1, keepdims=True), grades - grades.mean()
    return ranks @ grades / np.linalg.norm(ranks, axis=1) / np.linalg.norm(grades)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, SAMPLES))
def test_every_set_scores_what_plain_scipy_says(name, samples, searched):
    texts, _, gold = samples[name]
    selection, similarities = searched[name]
    scores = selection.table.scores
    assert len(scores) == 8191
    assert len(set(gold)) < len(gold)  # tied grades
    assert ((texts[0] == texts[1]).sum() > 10) == (name == "sts12")
    assert np.abs(rank_correlations(similarities, gold) - scores).max() < 1e-4
    for row in np.random.default_rng(0).choice(8191, 300, replace=False):
        assert scores[row] == pytest.approx(spearmanr(similarities[row], gold).statistic, abs=1e-4)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_set_is_exact_where_rounding_parts_no_equals(name, samples, searched):
    selection, similarities = searched[name]
    scores = rank_correlations(np.round(similarities, 12), samples[name][2])
    assert np.abs(scores - selection.table.scores).max() < 1e-9


@pytest.mark.parametrize("name", SAMPLES)
def test_the_best_set_rescored_is_scipys_best(name, samples, searched):
    _, (left, right), gold = samples[name]
    selection, similarities = searched[name]
    scores = rank_correlations(np.round(similarities, 12), gold)
    assert selection.chosen.layers == layers_of(int(selection.table.masks[scores.argmax()]))
    a, b = (selection.chosen.mix(side["mean"].astype(np.float64)) for side in (left, right))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert selection.chosen.dev == pytest.approx(spearmanr(np.round(cosines, 12), gold).statistic, abs=1e-9)
    assert selection.chosen.dev > selection.last.dev


def test_a_sentence_encoded_twice_is_as_similar_as_a_sentence_encoded_once(samples, searched, encoder):
    """Another batch gives the same sentence vectors that differ in the 7th digit, and cosines of 1 - 1e-13."""
    texts, (left, right), gold = samples["sts12"]
    same = np.flatnonzero(texts[0] == texts[1])
    again = right["mean"].copy()
    again[same] = encoder.encode_layers([str(text) for text in texts[1][same]])
    found = Search(dev="all").fit_views(left["mean"], again, gold).selection_.table
    selection, _ = searched["sts12"]
    assert np.array_equal(found.masks, selection.table.masks)
    assert np.abs(1 - all_cosines(left["mean"][same], again[same], found.masks)).max() < 1e-12
    assert np.abs(found.scores - selection.table.scores).max() < 1e-9


@pytest.mark.parametrize("encoded", ["once", "twice"])
def test_identical_sentences_are_ties_for_labels_too(encoded, samples, encoder):
    texts, (left, right), gold = samples["sts12"]
    same = np.flatnonzero(texts[0] == texts[1])
    labels = np.random.default_rng(0).integers(0, 2, size=len(gold)).astype(float)
    other = right["mean"].copy()
    if encoded == "twice":
        other[same] = encoder.encode_layers([str(text) for text in texts[1][same]])
    table = (
        Search(dev="all", metric="cosine_ap", space="up to 2").fit_views(left["mean"], other, labels).selection_.table
    )
    similarities = np.round(all_cosines(left["mean"], right["mean"], table.masks), 12)
    expected = [average_precision_score(labels, row) for row in similarities]
    assert np.abs(table.scores - expected).max() < 1e-9


def test_the_first_token_of_layer_0_is_the_same_in_every_sentence(samples):
    _, (left, right), gold = samples["stsb"]
    table = (
        Search(dev="all", space="up to 2").fit_views({"cls": left["cls"]}, {"cls": right["cls"]}, gold).selection_.table
    )
    assert np.isnan(table.score_of((0,)))
    assert table[-1].layers == (0,)
    assert np.isnan(table.scores).sum() == 1


@pytest.mark.slow
def test_the_papers_protocol_on_the_whole_of_stsb(shared, encoder):
    table = read_pairs(shared, "stsb")
    views = encoder.encode_layers(table["sentence1"] + table["sentence2"])
    pairs = len(table["score"])
    search = Search(dev=350, splits=5).fit_views(views[:pairs], views[pairs:], table["score"])
    selection = search.selection_
    assert (selection.n_choosing, selection.n_reporting) == (350, 1029)
    assert 51 < 100 * selection.chosen.test < 53
    assert 44 < 100 * selection.last.test < 45
    assert selection.chosen.dev > selection.chosen.test  # what chose looks better than it is
    assert 0 < selection.gain.low < selection.gain.mean < selection.gain.high
    assert selection.gain.p_value < 0.01
