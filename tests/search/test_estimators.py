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
