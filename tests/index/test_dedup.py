"""Duplicates are those of a plain loop, clusters the groups that are there; the files hold every row."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data import RowSource
from layerwise.embed import EmbedJob, ModelChoice, VectorFiles, run_embed
from layerwise.errors import InputError
from layerwise.index import clusters_of, find_duplicates
from support.commands import call, call_json, refused
from support.tiny import SENTENCES


def plain(vectors, threshold):
    """Each row against every kept one, one by one."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    kept, representatives = [], []
    for row, vector in enumerate(units):
        cosines = [float(vector @ units[other]) for other in kept]
        best = int(np.argmax(cosines)) if kept else -1
        if kept and cosines[best] >= threshold:
            representatives.append(kept[best])
        else:
            kept.append(row)
            representatives.append(row)
    return representatives


def saved(tmp_path_factory, vectors) -> VectorFiles:
    path = tmp_path_factory.mktemp("vectors") / "some.npy"
    np.save(path, vectors.astype(np.float32))
    return VectorFiles.of(path)


@pytest.mark.parametrize("block", [3, 50, 1024])
@pytest.mark.parametrize("threshold", [0.6, 0.9, 0.999])
def test_duplicates_are_those_of_a_plain_loop(tmp_path_factory, monkeypatch, block, threshold):
    monkeypatch.setattr("layerwise.index.dedup._BLOCK", block)
    random = np.random.default_rng(3)
    vectors = random.normal(size=(15, 8))[random.integers(0, 15, 120)] + 0.1 * random.normal(size=(120, 8))
    found = find_duplicates(saved(tmp_path_factory, vectors), threshold=threshold)
    assert found.representatives.tolist() == plain(vectors, threshold)


@given(seed=st.integers(0, 10_000), threshold=st.floats(0.3, 0.99))
def test_no_two_kept_rows_are_near_and_every_other_is_near_its_representative(tmp_path_factory, seed, threshold):
    vectors = np.random.default_rng(seed).normal(size=(40, 3))
    found = find_duplicates(saved(tmp_path_factory, vectors), threshold=threshold)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    kept = units[found.kept]
    assert (np.triu(kept @ kept.T, 1) < threshold + 1e-5).all()
    cosines = (units * units[found.representatives]).sum(1)
    assert (cosines >= threshold - 1e-5).all()
    assert found.kept[found.representatives].all()
    assert found.sizes[found.kept].sum() == 40


def test_lists_find_exact_copies(tmp_path_factory):
    vectors = np.random.default_rng(0).normal(size=(500, 8))
    files = saved(tmp_path_factory, np.concatenate([vectors, vectors]))
    found = find_duplicates(files, threshold=0.9999, kind="ivf")
    assert found.representatives.tolist() == [*range(500), *range(500)]
    with pytest.raises(InputError, match=r"threshold 1\.5 is no cosine"):
        find_duplicates(files, threshold=1.5)


def test_clusters_find_groups_that_are_there(tmp_path_factory):
    random = np.random.default_rng(1)
    groups = random.integers(0, 4, 200)
    files = saved(tmp_path_factory, 5 * np.eye(4, 6)[groups] + 0.2 * random.normal(size=(200, 6)))
    found = clusters_of(files, 4, nearest=2)
    pairs = set(zip(groups.tolist(), found.labels.tolist(), strict=True))
    assert len(pairs) == 4, "each group is one cluster"
    assert found.sizes.tolist() == np.bincount(found.labels, minlength=4).tolist()
    for number, rows in enumerate(found.nearest):
        own = np.flatnonzero(found.labels == number)
        assert found.cosines[rows].tolist() == np.sort(found.cosines[own])[::-1][:2].tolist()
    assert np.array_equal(clusters_of(files, 4).labels, found.labels), "the same seed gives the same clusters"
    assert len(clusters_of(files).sizes) == 10
    with pytest.raises(InputError, match="201 clusters of 200 vectors are not possible"):
        clusters_of(files, 201)


def test_the_commands_write_every_row(tmp_path, tiny_bert, capsys, monkeypatch):
    (tmp_path / "texts.txt").write_text("\n\n" + "\n".join(SENTENCES * 2), encoding="utf-8")
    job = EmbedJob(RowSource.of(str(tmp_path / "texts.txt"), ("text", "text")), shard_rows=4, empty="skip")
    run_embed(job, ModelChoice(str(tiny_bert)), tmp_path / "vectors")
    facts = call_json("dedup", tmp_path / "vectors", "-o", tmp_path / "d.parquet", "--threshold", "0.9999")
    assert (facts["rows"], facts["kept"], facts["groups"]) == (14, 7, 7)
    table = pq.read_table(tmp_path / "d.parquet").to_pydict()
    assert table["row"] == list(range(2, 16)), "numbers in the input, whose first lines are empty"
    assert table["representative"] == [*range(2, 9), *range(2, 9)]
    assert table["kept"] == [True] * 7 + [False] * 7
    assert table["text"] == SENTENCES * 2
    assert table["group_size"] == [2] * 14
    printed = call("dedup", tmp_path / "vectors", "-o", tmp_path / "d.csv", "--threshold", "0.9999")
    assert "7 of 14 rows are near duplicates" in printed
    assert (
        (tmp_path / "d.csv").read_text().startswith("row,kept,representative,cosine,group_size,text\n2,True,2,1.0,2,")
    )
    error = refused(capsys, monkeypatch, "dedup", tmp_path / "vectors", "-o", tmp_path / "d.csv")
    assert "d.csv: exists already; give another name, or --overwrite" in error
    error = refused(capsys, monkeypatch, "dedup", tmp_path / "vectors", "-o", tmp_path / "d.xml")
    assert "its ending names no format" in error
    printed = call("cluster", tmp_path / "vectors", "-o", tmp_path / "c.jsonl", "-k", "2")
    assert any(sentence in printed for sentence in SENTENCES)
    assert "14 rows in 2 clusters" in printed
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert [row["row"] for row in rows] == list(range(2, 16))
    assert [row["cluster"] for row in rows[:7]] == [row["cluster"] for row in rows[7:]]
