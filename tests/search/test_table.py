"""The table of scores: its order, its front, and its files."""

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layerwise.search.table
from layerwise import Mean
from layerwise.errors import InputError, LayerwiseError
from layerwise.search import Scored, ScoreTable, layers_of
from layerwise.search.spaces import mask_of


def table_of(scores, pooling="mean"):
    """From layers -> score."""
    masks = np.array([mask_of(layers) for layers in scores], dtype=np.uint64)
    return ScoreTable({pooling: (masks, np.array(list(scores.values()), dtype=float))})


TWO_POOLINGS = ScoreTable(
    {
        "mean": (np.array([1, 2, 3], dtype=np.uint64), np.array([0.1, 0.2, 0.3])),
        "cls": (np.array([1, 2], dtype=np.uint64), np.array([0.4, 0.25])),
    }
)


def test_a_table_is_a_sequence_from_best_to_worst():
    table = table_of({(0,): 0.2, (1,): np.nan, (0, 1): 0.5, (2,): 0.5, (0, 2): -0.3})
    assert [scored.layers for scored in table] == [(2,), (0, 1), (0,), (0, 2), (1,)]
    assert table[0] == table.best == Scored(Mean.of(2), 0.5)
    assert [scored.layers for scored in table[1:3]] == [(0, 1), (0,)]
    assert len(table) == 5
    assert np.isnan(table[-1].dev)
    assert Scored(Mean.of(0, 1), 0.5) in table
    assert Scored(Mean.of(0, 1), 0.4) not in table
    with pytest.raises(IndexError, match="5"):
        table[5]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({(0, 1): 0.5, (3,): 0.5, (1,): 0.5, (2,): 0.5}, (1,)),
        ({(0, 3): 0.5, (1, 2): 0.5, (0, 1, 2): 0.5}, (1, 2)),
        ({(0, 1): 0.5 + 1e-14, (3,): 0.5, (2,): 0.4}, (3,)),
        ({(0, 1): 0.5 + 1e-9, (3,): 0.5}, (0, 1)),
    ],
)
def test_of_equally_good_sets_fewer_then_lower_layers_win(scores, best):
    table = table_of(scores)
    assert table.best.layers == table[0].layers == best


def test_poolings_are_ranked_together():
    mixes = ["0 @ cls", "0,1 @ mean", "1 @ cls", "1 @ mean", "0 @ mean"]
    assert [str(scored.mix) for scored in TWO_POOLINGS] == mixes
    assert TWO_POOLINGS.score_of([1]) == 0.2
    assert TWO_POOLINGS.score_of((1,), "cls") == 0.25
    assert TWO_POOLINGS.best.pooling == "cls"
    with pytest.raises(InputError, match="Layers 0,2 are not in the space that was searched"):
        TWO_POOLINGS.score_of((0, 2))
    with pytest.raises(InputError, match="'max' was not searched; these were: mean, cls"):
        TWO_POOLINGS.score_of((0,), "max")


def test_a_table_without_any_score_has_no_best():
    nothing = table_of({(0,): np.nan, (1,): np.nan})
    with pytest.raises(InputError, match="No set has a score"):
        _ = nothing.best
    assert repr(nothing) == "ScoreTable(2 sets, none with a score)"
    assert repr(TWO_POOLINGS) == "ScoreTable(5 sets, the best 0 @ cls with 0.4)"


@given(st.lists(st.integers(0, 4), min_size=31, max_size=31), st.sets(st.integers(0, 30), max_size=10))
def test_the_front_holds_what_no_cheaper_set_reaches(scores, unknown):
    sets = [layers_of(mask) for mask in range(1, 32)]
    known = {chosen: score / 4 for chosen, score in zip(sets, scores, strict=True)}
    known |= {sets[place]: np.nan for place in unknown}
    naive = []
    for highest in range(5):
        here = [chosen for chosen in sets if chosen[-1] == highest and not np.isnan(known[chosen])]
        best = min(here, key=lambda chosen: (-known[chosen], len(chosen), chosen[::-1]), default=None)
        if best and all(known[best] > known[cheaper] for cheaper in naive):
            naive.append(best)
    assert [scored.layers for scored in table_of(known).front()] == naive


def read_back(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="," if path.suffix == ".csv" else "\t"))


@pytest.mark.parametrize("name", ["all.csv", "all.tsv", "all.jsonl", "all.parquet", "ALL.CSV"])
def test_a_table_is_written_and_read_back(name, tmp_path):
    TWO_POOLINGS.write(tmp_path / "missing" / name)
    rows = read_back((tmp_path / "missing" / name).rename(tmp_path / name.lower()))
    assert [tuple(map(int, row["layers"].split(","))) for row in rows] == [scored.layers for scored in TWO_POOLINGS]
    assert [row["pooling"] for row in rows] == [scored.pooling for scored in TWO_POOLINGS]
    assert [float(row["score"]) for row in rows] == [scored.dev for scored in TWO_POOLINGS]
    assert not list((tmp_path / "missing").iterdir()), "no part is left behind"


def test_a_written_set_without_a_score_is_json(tmp_path):
    table_of({(0,): 0.5, (1,): np.nan}).write(tmp_path / "table.jsonl")
    assert "NaN" not in (tmp_path / "table.jsonl").read_text()
    assert read_back(tmp_path / "table.jsonl")[1]["score"] is None


@pytest.mark.parametrize("name", ["table", "table.txt", "table.json", "table.csv.gz"])
def test_a_table_of_no_known_format_is_refused(name, tmp_path):
    with pytest.raises(InputError, match=r"a table is written as .csv, .tsv, .jsonl, .parquet"):
        TWO_POOLINGS.write(tmp_path / name)
    assert not list(tmp_path.glob("table*"))


def test_a_table_over_a_folder_or_below_a_file_is_refused(tmp_path):
    (tmp_path / "table.csv").mkdir()
    with pytest.raises(InputError, match=r"table\.csv: is a folder; give the name of a file"):
        TWO_POOLINGS.write(tmp_path / "table.csv")
    (tmp_path / "file.csv").touch()
    with pytest.raises(InputError, match=r"file\.csv is a file, not a folder; give another path"):
        TWO_POOLINGS.write(tmp_path / "file.csv" / "table.csv")


def test_a_table_as_a_frame(monkeypatch):
    frame = TWO_POOLINGS.to_pandas()
    assert list(frame.columns) == ["layers", "pooling", "score"]
    assert frame.layers.tolist() == ["0", "0,1", "1", "1", "0"]
    assert frame.score.tolist() == [scored.dev for scored in TWO_POOLINGS]
    monkeypatch.setattr(layerwise.search.table, "find_spec", lambda name: None)
    with pytest.raises(LayerwiseError, match=r"ScoreTable\.to_pandas needs pandas: pip install pandas"):
        TWO_POOLINGS.to_pandas()
