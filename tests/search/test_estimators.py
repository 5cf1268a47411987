"""The searches as estimators: parameters, clones, pickles, and what they print."""

import builtins
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import layerwise.search.table
from layerwise.errors import LayerwiseError
from layerwise.search import LayerSearch, ScoreTable, TransferProtocol, TransferSearch


@pytest.fixture(scope="module")
def views():
    random = np.random.default_rng(0)
    left, gold = random.normal(size=(120, 4, 8)), random.random(120)
    noise = random.normal(size=(120, 4, 8))
    noise[:, 2] *= gold[:, None]
    return left, left + noise, -gold


@pytest.mark.parametrize("kind", [LayerSearch, TransferSearch])
def test_parameters_are_read_changed_and_cloned(kind):
    search = kind(device="cpu", progress=print)
    assert search.get_params()["progress"] is print
    assert clone(search).get_params() == search.get_params()
    assert search.set_params(device="cuda") is search
    assert search.device == "cuda"
    with pytest.raises(LayerwiseError, match=r"Unknown parameter 'devcie'.*Did you mean 'device'"):
        search.set_params(devcie="cpu")


def test_a_clone_of_a_fitted_search_is_not_fitted_and_finds_the_same(views):
    search = LayerSearch(metric="pearson", space="all", splits=2, seed=3).fit(*views)
    copied = clone(search)
    assert not hasattr(copied, "best_")
    assert copied.fit(*views).best_ == search.best_


def test_a_fitted_search_is_pickled(views):
    search = LayerSearch(seed=3).fit(*views)
    loaded = pickle.loads(pickle.dumps(search))
    assert loaded.best_ == search.best_
    assert loaded.verdict_.gain == search.verdict_.gain
    assert (loaded.transform(views[0]) == search.transform(views[0])).all()


def test_reprs_say_what_it_is(views):
    assert repr(LayerSearch()) == "LayerSearch()"
    assert repr(LayerSearch(metric="pearson", dev=0.5, seed=3)) == "LayerSearch(metric='pearson', seed=3)"
    protocol = TransferProtocol(outer=2)
    assert repr(TransferSearch(protocol=protocol)) == f"TransferSearch(protocol={protocol!r})"
    search = LayerSearch().fit(*views)
    assert repr(search.table_) == f"ScoreTable(15 sets, the best 2 @ mean with {search.table_[0].score:.4g})"
    assert repr(search.verdict_) == f"Verdict({str(search.verdict_)!r})"
    nothing = ScoreTable({"mean": (np.array([1], dtype=np.uint64), np.array([np.nan]))})
    assert repr(nothing) == "ScoreTable(1 sets, none with a score)"


def test_a_table_as_a_frame(views):
    pytest.importorskip("pandas")
    table = LayerSearch().fit(*views).table_
    frame = table.to_pandas()
    assert list(frame.columns) == ["layers", "pooling", "score"]
    assert len(frame) == len(table)
    assert frame.layers[0] == "2"
    assert frame.score[0] == table.best.score
    assert list(frame.score) == sorted(frame.score, reverse=True)


def test_without_pandas_one_line_says_so(views, monkeypatch):
    monkeypatch.setattr(layerwise.search.table, "find_spec", lambda name: None)
    with pytest.raises(LayerwiseError, match=r"ScoreTable\.to_pandas needs pandas: pip install pandas"):
        LayerSearch().fit(*views).table_.to_pandas()


def test_pandas_is_imported_by_to_pandas_alone(views, monkeypatch):
    whole = builtins.__import__

    def without_pandas(name, *args, **options):
        assert name.partition(".")[0] != "pandas"
        return whole(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    LayerSearch().fit(*views)


@pytest.mark.parametrize("metric", ["spearman", "pearson"])
@pytest.mark.parametrize("dev", [0.5, None])
def test_a_layer_whose_similarities_are_all_equal_never_wins(metric, dev, views):
    left, right, gold = (np.array(array) for array in views)
    for layer in range(4):
        flat_left, flat_right = left.copy(), right.copy()
        flat_left[:, layer] = flat_right[:, layer] = 1.0
        search = LayerSearch(metric=metric, dev=dev, space="up to 1", resamples=50).fit(flat_left, flat_right, gold)
        assert search.best_.layers != (layer,)
        assert np.isfinite(search.best_.dev)
        assert np.isnan(search.table_.score_of([layer]))
        assert search.table_[-1].layers == (layer,), "last, not first"
        if dev is not None:
            assert search.verdict_.use.layers != (layer,)


def test_layers_that_are_all_equal_are_refused_in_one_line(views):
    with pytest.raises(LayerwiseError, match="No set has a score: all pairs are equally similar in every layer"):
        LayerSearch().fit(np.ones((60, 3, 4)), np.ones((60, 3, 4)), views[2][:60])


def test_nan_views_are_refused(views):
    left = views[0].copy()
    left[7, 1, 0] = np.nan
    with pytest.raises(LayerwiseError, match="NaN"):
        LayerSearch().fit(left, views[1], views[2])
