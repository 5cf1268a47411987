"""FAISS indexes: they find what brute force finds, know their model, and are refused where they were changed."""

import json
import re

import faiss
import numpy as np
import pytest

from layerwise.checksums import write_checksums
from layerwise.data import RowSource
from layerwise.embed import EmbedJob, ModelChoice, VectorFiles, run_embed
from layerwise.errors import InputError
from layerwise.index import ExactIndex, FaissIndex, build_index, choose_kind, open_index
from layerwise.index.build import recall_at
from layerwise.model import LayerModel
from support.commands import assert_one_line, call, call_json, refused, run_main
from support.disks import small_disk
from support.tiny import SENTENCES, save_tiny

KINDS = ("flat", "hnsw", "ivf", "pq")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Rows around 40 centres, as texts have them."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, 16))
    rows = centres[random.integers(0, 40, 1200)] + 0.4 * random.normal(size=(1200, 16))
    path = tmp_path_factory.mktemp("vectors") / "some.npy"
    np.save(path, rows.astype(np.float32))
    return path


@pytest.fixture(scope="module")
def built(vectors, tmp_path_factory):
    root = tmp_path_factory.mktemp("indexes")
    return {kind: (root / kind, build_index(VectorFiles.of(vectors), root / kind, kind=kind)) for kind in KINDS}


@pytest.fixture(scope="module")
def embedded(tiny_bert, tmp_path_factory):
    root = tmp_path_factory.mktemp("embedded")
    (root / "texts.txt").write_text("\n".join(SENTENCES * 5), encoding="utf-8")
    job = EmbedJob(RowSource.of(str(root / "texts.txt"), ("text", "text")), shard_rows=8)
    run_embed(job, ModelChoice(str(tiny_bert), options={"device": "cpu"}), root / "vectors")
    return root / "vectors"


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_finds_what_brute_force_finds(kind, vectors, built):
    folder, result = built[kind]
    index, exact = open_index(folder), ExactIndex.read(vectors)
    assert (index.kind.name, len(index), index.width) == (kind, 1200, 16)
    assert (result.queries, result.rows) == (120, 1200)
    queries = np.load(vectors)[::10] + 0.1 * np.random.default_rng(1).normal(size=(120, 16)).astype(np.float32)
    found, expected = index.search(queries, 10), exact.search(queries, 100)
    recall = recall_at(found.rows, expected.rows, expected.scores, 10)
    assert recall >= (1.0 if kind == "flat" else 0.9)
    assert result.recall >= (1.0 if kind == "flat" else 0.95)
    rows = np.load(vectors)
    cosines = [rows[hits] @ query / np.linalg.norm(rows[hits], axis=1) / np.linalg.norm(query)
               for hits, query in zip(found.rows, queries, strict=True)]  # fmt: skip
    np.testing.assert_allclose(found.scores, cosines, atol=2e-3)  # PQ's are of float16
    assert (np.diff(found.scores, axis=1) <= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_found_once_even_where_few_lists_are_looked_at(kind, built):
    index = FaissIndex.read(built[kind][0])
    hits = index.search(np.ones((2, 16), dtype=np.float32), 5000)
    for row in hits.rows:
        assert sorted(row.tolist()) == list(range(1200)), "held-out rows too, under their own numbers"


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_dot_products_are_not_cosines(kind, vectors, tmp_path):
    build_index(VectorFiles.of(vectors), tmp_path / "dot", kind=kind, similarity="dot", recall=1.0)
    queries = np.load(vectors)[:20]
    expected = ExactIndex.read(vectors, similarity="dot").search(queries, 1)
    np.testing.assert_allclose(FaissIndex.read(tmp_path / "dot").search(queries, 1).scores, expected.scores, rtol=1e-5)


def test_the_kind_follows_the_size():
    sizes = {1000: "flat", 50_001: "hnsw", 5_000_000: "ivf", 20_000_000: "pq"}
    assert {rows: choose_kind("auto", rows, 384).name for rows in sizes} == sizes
    with pytest.raises(InputError, match=r"Unknown kind of index 'hsnw'. Did you mean 'hnsw'\?"):
        choose_kind("hsnw", 10, 8)
    with pytest.raises(InputError, match="kind pq needs 256 vectors or more"):
        choose_kind("pq", 255, 8)


def test_recall_counts_ties_as_nearest():
    rows, scores = np.arange(6)[None], np.array([[0.9, 0.8, 0.8, 0.8, 0.1, 0.0]], dtype=np.float32)
    assert recall_at(np.array([[0, 3]]), rows, scores, 2) == 1.0
    assert recall_at(np.array([[0, 4]]), rows, scores, 2) == 0.5


def test_an_index_is_replaced_only_if_asked_and_nothing_else_is(vectors, tmp_path):
    files = VectorFiles.of(vectors)
    build_index(files, tmp_path / "one", kind="flat")
    with pytest.raises(InputError, match="holds an index; give another folder, or --overwrite"):
        build_index(files, tmp_path / "one", kind="flat")
    build_index(files, tmp_path / "one", kind="ivf", overwrite=True)
    assert FaissIndex.read(tmp_path / "one").kind.name == "ivf"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    with pytest.raises(InputError, match="is there and no index, so it is not replaced"):
        build_index(files, tmp_path / "mine", overwrite=True)
    with pytest.raises(InputError, match="recall 0 is not possible"):
        build_index(files, tmp_path / "new", recall=0)
    assert {path.name for path in tmp_path.iterdir()} - {"cache"} == {"mine", "one"}


def test_vectors_that_are_not_numbers_or_not_all_there_are_refused(tmp_path, vectors, embedded):
    rows = np.load(vectors)
    rows[700, 3] = np.nan
    np.save(tmp_path / "bad.npy", rows)
    with pytest.raises(InputError, match=r"bad\.npy: its row 700 holds NaN or infinity"):
        build_index(VectorFiles.of(tmp_path / "bad.npy"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    manifest = embedded / "_embed.json"
    whole = manifest.read_text()
    try:
        manifest.write_text(json.dumps(json.loads(whole) | {"finished": False}))
        with pytest.raises(InputError, match="its run has not ended; run the same `layerwise embed` again"):
            VectorFiles.of(embedded)
        manifest.write_text(json.dumps(json.loads(whole) | {"shards": {"part-000099.parquet": 8}}))
        with pytest.raises(InputError, match=r"part-000099\.parquet: is missing"):
            VectorFiles.of(embedded)
    finally:
        manifest.write_text(whole)


# Files of strangers


@pytest.mark.parametrize("name", ["index.faiss", "index.json", "vectors.npy"])
def test_a_changed_byte_is_noticed(name, vectors, tmp_path):
    build_index(VectorFiles.of(vectors), tmp_path / "one", kind="pq")
    path = tmp_path / "one" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: "):
        FaissIndex.read(tmp_path / "one")
    (tmp_path / "one" / "checksums.json").unlink()
    with pytest.raises(InputError, match="one/"):
        FaissIndex.read(tmp_path / "one")


def forged(folder, **facts) -> None:
    """Facts of a stranger, with checksums that fit."""
    told = json.loads((folder / "index.json").read_text()) | facts
    (folder / "index.json").write_text(json.dumps(told))
    write_checksums(folder)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"rows": 5}, "is no flat index of 5 vectors"),
        ({"width": 17}, "is no flat index of 1200 vectors of 17 numbers"),
        ({"kind": "hnsw"}, "is no hnsw index"),
        ({"kind": "pickle"}, "Unknown kind 'pickle'"),
        ({"rows": 0}, "rows is 0; expected 1 or more"),
        ({"format": 9}, "format"),
    ],
)
def test_facts_that_are_not_those_of_the_file_are_refused(facts, message, vectors, tmp_path):
    build_index(VectorFiles.of(vectors), tmp_path / "one", kind="flat")
    forged(tmp_path / "one", **facts)
    with pytest.raises(InputError, match=message):
        FaissIndex.read(tmp_path / "one")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_ends_early_or_claims_more_than_it_has_is_refused(kind, vectors, tmp_path):
    build_index(VectorFiles.of(vectors), tmp_path / "one", kind=kind)
    path = tmp_path / "one" / "index.faiss"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:74] + b"\xff" * 8 + whole[82:]):
        path.write_bytes(content)
        forged(tmp_path / "one")
        with pytest.raises(InputError, match=r"index\.faiss: "):
            FaissIndex.read(tmp_path / "one")


def test_links_of_a_graph_that_lead_out_of_it_are_refused(vectors, tmp_path):
    build_index(VectorFiles.of(vectors), tmp_path / "one", kind="hnsw")
    path = tmp_path / "one" / "index.faiss"
    index = faiss.read_index(str(path))
    graph = faiss.downcast_index(index.index).hnsw
    links = faiss.vector_to_array(graph.neighbors)
    links[7] = 2_000_000
    faiss.copy_array_to_vector(links, graph.neighbors)
    faiss.write_index(index, str(path))
    forged(tmp_path / "one")
    with pytest.raises(InputError, match=r"index\.faiss: "):
        FaissIndex.read(tmp_path / "one")


# The commands


@pytest.mark.parametrize(("kind", "pages"), [("flat", 2), ("flat", 12), ("hnsw", 40), ("pq", 6), ("pq", 14)])
def test_a_full_disk_ends_with_2_and_the_same_command_builds(vectors, tmp_path, kind, pages, monkeypatch, capfd):
    """An index of other vectors that is there is kept until the new one is complete."""
    small = tmp_path / "small.npy"
    np.save(small, np.load(vectors)[:20])
    with small_disk(tmp_path / "disk", (10 + pages) * 4096) as disk:
        call("index", "build", small, "-o", disk.folder / "index")
        before = {path.name: path.read_bytes() for path in (disk.folder / "index").iterdir()}
        words = ["index", "build", vectors, "-o", disk.folder / "index", "--kind", kind, "--overwrite"]
        code, output, error = run_main(monkeypatch, capfd, *words)
        assert_one_line(code, output, error)
        name = rf"{re.escape(str(disk.folder / 'index'))}(/checksums\.json)?"
        full = f"error: {name}: cannot be written: No space left on device; free some space or give another path\n"
        assert re.fullmatch(full, error)
        assert [path.name for path in disk.folder.iterdir()] == ["index"], "nothing half written takes up room"
        assert {path.name: path.read_bytes() for path in (disk.folder / "index").iterdir()} == before
        disk.grow(2**20)
        assert call_json(*words)["rows"] == 1200
        assert len(open_index(disk.folder / "index")) == 1200


def test_a_corpus_is_embedded_indexed_and_queried(embedded, tmp_path, tiny_bert, capsys, monkeypatch):
    printed = call("index", "build", embedded, "-o", tmp_path / "index")
    assert "35 vectors of 32 numbers" in printed
    assert "Recall@10 on 3 held-out rows: 1.000" in printed
    found = call_json("query", tmp_path / "index", SENTENCES[3], "-k", "5")
    assert [hit["columns"]["text"] for hit in found[0]["hits"]] == [SENTENCES[3]] * 5
    assert [hit["row"] for hit in found[0]["hits"]] == [hit["columns"]["row"] for hit in found[0]["hits"]]
    exact = call_json("query", embedded, SENTENCES[3], "-k", "5")
    assert {hit["row"] for hit in found[0]["hits"]} == {hit["row"] for hit in exact[0]["hits"]}
    for hit in (*found[0]["hits"], *exact[0]["hits"]):  # five equal vectors, whose cosines rounding may tell apart
        assert hit["score"] == pytest.approx(1, abs=1e-6)
        assert hit["score"] <= 1
    assert SENTENCES[3] in call("query", tmp_path / "index", SENTENCES[3], "-k", "1", "--model", tiny_bert)
    (tmp_path / "queries.txt").write_text("\n".join(SENTENCES[:3]) + "\n")
    several = call_json("query", tmp_path / "index", "--file", tmp_path / "queries.txt", "-k", "1")
    assert [one["hits"][0]["columns"]["text"] for one in several] == SENTENCES[:3]
    assert [one["query"] for one in several] == SENTENCES[:3]
    other = save_tiny("electra", tmp_path / "electra")
    LayerModel.load(tiny_bert, device="cpu").with_mix("1 @ mean").save(tmp_path / "short")  # without the last layers
    for model in (other, tmp_path / "short"):
        error = refused(capsys, monkeypatch, "query", tmp_path / "index", "a door", "--model", model)
        assert "its vectors were made by another model than" in error


def test_joined_vectors_know_their_model_or_are_told_it(embedded, tmp_path, tiny_bert, capsys, monkeypatch):
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(SENTENCES), encoding="utf-8")
    call("embed", tiny_bert, source, "-o", tmp_path / "one.parquet", "--keep", "text")
    call("index", "build", tmp_path / "one.parquet", "-o", tmp_path / "index")
    assert call_json("query", tmp_path / "index", SENTENCES[2], "-k", "1")[0]["hits"][0]["row"] == 2
    call("embed", tiny_bert, source, "-o", tmp_path / "one.npy")
    call("index", "build", tmp_path / "one.npy", "-o", tmp_path / "unnamed")
    error = refused(capsys, monkeypatch, "query", tmp_path / "unnamed", "a door")
    assert "does not say which model made its vectors; name it by --model" in error
    call("index", "build", tmp_path / "one.npy", "-o", tmp_path / "named", "--model", tiny_bert)
    assert call_json("query", tmp_path / "named", SENTENCES[2], "-k", "1")[0]["hits"] == [
        {"row": 2, "score": pytest.approx(1.0, abs=1e-5), "columns": {}}
    ]
    error = refused(capsys, monkeypatch, "query", tmp_path / "named")
    assert "give one text to look for, or a file of texts" in error
    error = refused(capsys, monkeypatch, "query", tmp_path / "named", " ")
    assert "the text to look for is empty; give some words" in error
