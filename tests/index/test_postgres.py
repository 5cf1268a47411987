"""Vectors in PostgreSQL: found as by brute force, replaced by id, and loaded whole though connections are lost."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerwise.data import demo_corpus
from layerwise.embed import VectorFiles
from layerwise.errors import InputError, MissingExtraError
from layerwise.index import ExactIndex, PostgresIndex, TableAddress, load_vectors, open_index, postgres_load
from layerwise.model import LayerModel
from support.commands import call, call_json, refused
from support.pages import DOCS, assert_shown, blocks_of, commands_of, run_python
from support.postgres import postgres_server
from support.tiny import SENTENCES, save_tiny

ROWS, WIDTH = 300, 12


@pytest.fixture(scope="session")
def server():
    with postgres_server() as address:
        yield address


@pytest.fixture
def sql(server):
    """A second connection, to look at tables and to end others' connections."""
    import psycopg

    with psycopg.connect(server.replace("/{}", ""), autocommit=True) as connection:

        def run(text: str) -> list[tuple]:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(postgres_load, "BATCH_ROWS", 50)


def vectors(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(ROWS, WIDTH)).astype(np.float32)


def write(path, rows: np.ndarray, **columns) -> VectorFiles:
    numbers = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    pq.write_table(pa.table({"row": np.arange(len(rows)), **columns, "embedding": numbers}), path)
    return VectorFiles.of(path)


@pytest.fixture
def files(tmp_path) -> VectorFiles:
    lang = ["en" if row % 3 else "de" for row in range(ROWS)]
    return write(tmp_path / "some.parquet", vectors(), lang=lang, size=np.arange(ROWS) / 2)


def test_recall_is_not_measured_with_rows_of_the_table(server, files, monkeypatch):
    """They are found by their own links; means of two rows are as hard as texts that are not in the table."""
    asked, distances = [], PostgresIndex.distances

    def recorded(self, queries, *arguments, **options):
        asked.append(queries)
        return distances(self, queries, *arguments, **options)

    monkeypatch.setattr(PostgresIndex, "distances", recorded)
    load_vectors(files, server.format("tuned"))
    queries, rows = asked[0], np.float16(vectors()).astype(np.float32)
    assert len(queries) == min(64, ROWS // 2)
    nearest = np.abs(queries[:, None] - rows).max(axis=2).min(axis=1)
    assert nearest.min() > 0.01
    sums = 2 * queries[0] - rows
    assert np.abs(sums[:, None] - rows).max(axis=2).min() < 1e-3, "the mean of two rows"


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_what_is_found_is_what_brute_force_finds(server, files, similarity):
    to = server.format(f"found_{similarity}")
    result = load_vectors(files, to, similarity=similarity)
    assert (result.rows, result.resumed, result.width, result.reconnected) == (ROWS, 0, WIDTH, 0)
    assert result.recall >= 0.95
    index = open_index(to)
    assert isinstance(index, PostgresIndex)
    assert (len(index), index.width) == (ROWS, WIDTH)
    queries = vectors(1)[:20]
    found, expected = index.search(queries, 10), ExactIndex(vectors(), similarity=similarity).search(queries, 10)
    same = [len(set(a) & set(b)) / 10 for a, b in zip(found.rows.tolist(), expected.rows.tolist(), strict=True)]
    assert np.mean(same) >= 0.95
    np.testing.assert_allclose(found.scores, expected.scores, atol=2e-2 if similarity == "dot" else 2e-3)
    row = int(found.rows[0, 0])
    assert index.columns(row) == {"row": row, "lang": "en" if row % 3 else "de", "size": row / 2}
    with pytest.raises(InputError, match=r"queries have the shape \(1, 3\)"):
        index.search(np.ones((1, 3), dtype=np.float32), 1)
    index.close()


def test_stored_numbers_are_those_of_half_precision(server, sql, files):
    load_vectors(files, server.format("halves"))
    check_rows(sql, "halves")
    ((method, kind),) = sql(
        "SELECT a.amname, o.opcname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " JOIN pg_am a ON a.oid = c.relam JOIN pg_opclass o ON o.oid = i.indclass[0]"
        " WHERE i.indrelid = 'halves'::regclass AND NOT i.indisprimary"
    )
    assert (method, kind) == ("hnsw", "halfvec_cosine_ops")


def test_conditions_hold_for_every_hit_and_values_are_no_sql(server, sql, files):
    to = server.format("conditions")
    load_vectors(files, to)
    queries, far = vectors(1)[:5], 40
    index = PostgresIndex.read(to, where="lang = :lang AND size < 60.5", values={"lang": "de"})
    allowed = [row for row in range(ROWS) if row % 3 == 0 and row / 2 < 60.5]
    found = index.search(queries, far)
    assert found.rows.shape == (5, far)
    assert set(found.rows.flat) <= set(allowed)
    exact = ExactIndex(vectors()[allowed]).search(queries, far)
    np.testing.assert_allclose(found.scores, exact.scores, atol=2e-3)
    attack = PostgresIndex.read(to, where="lang = :lang", values={"lang": "de' OR '1'='1"})
    assert attack.search(queries, 3).rows.shape == (5, 0)
    percent = PostgresIndex.read(to, where="lang LIKE 'd%' AND ':x' <> lang AND row::text <> '1'")
    assert (percent.search(queries, 3).rows % 3 == 0).all()
    sql("CREATE FUNCTION empties() RETURNS bool LANGUAGE sql AS 'DELETE FROM conditions; SELECT true'")
    for condition, message in (
        ("empties()", "cannot execute DELETE in a read-only transaction"),
        ("true); DROP TABLE conditions; --", "syntax error|multiple commands"),
        ("lng = 'de'", 'column "lng" does not exist; check --filter and --param'),
        ("pg_terminate_backend(pg_backend_pid())", "the connection was lost"),
    ):
        with pytest.raises(InputError, match=message):
            PostgresIndex.read(to, where=condition).search(queries, 3)
    assert sql("SELECT count(*) FROM conditions") == [(ROWS,)]
    with pytest.raises(InputError, match="has no value for :lang; give --param lang=VALUE"):
        PostgresIndex.read(to, where="lang = :lang")
    with pytest.raises(InputError, match="does not use --param x"):
        PostgresIndex.read(to, where="lang = 'de'", values={"x": "1"})


def test_rows_of_the_same_id_are_replaced_and_others_stay(server, sql, tmp_path):
    to, names = server.format("replaced"), [f"doc {row}" for row in range(ROWS)]
    load_vectors(write(tmp_path / "one.parquet", vectors(), name=names), to, id_column="name")
    changed, new = vectors(7), ["doc 3", "doc 299", "doc 300", "doc 300"]
    second = write(tmp_path / "two.parquet", changed[:4], name=new)
    assert load_vectors(second, to, id_column="name").rows == 4
    stored = dict(sql("SELECT name, embedding::text FROM replaced"))
    assert set(stored) == {*names, "doc 300"}
    expected = {"doc 3": changed[0], "doc 299": changed[1], "doc 300": changed[3], "doc 4": vectors()[4]}
    for name, vector in expected.items():
        np.testing.assert_array_equal(np.array(json.loads(stored[name]), np.float16), vector.astype(np.float16))
    index = PostgresIndex.read(to)
    hits = index.search(changed[:1], 1)
    assert index.columns(int(hits.rows[0, 0]))["name"] == "doc 3"
    with pytest.raises(InputError, match="has no column 'doc' for --id; it has row, name"):
        load_vectors(second, to, id_column="doc")
    with pytest.raises(InputError, match=r"was made with id = 'name', now it is 'row'; give another table"):
        load_vectors(second, to)


def ending(sql, after: int, times: int = 1):
    """Progress that ends the load's connection once so many rows are written."""
    state = {"rows": 0, "left": times}

    def progress(rows: int) -> None:
        state["rows"] += rows
        if state["rows"] >= after and state["left"]:
            state["left"] -= 1
            ended = sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'layerwise' AND pid <> pg_backend_pid()"
            )
            assert ended

    return progress


@pytest.mark.parametrize("after", [50, 150, 300])
def test_a_lost_connection_loses_and_doubles_nothing(server, sql, files, after):
    result = load_vectors(files, server.format(f"lost_{after}"), waits=(0.05, 0.1), progress=ending(sql, after))
    assert (result.rows, result.resumed) == (ROWS, 0)
    assert result.reconnected == 1 or after == ROWS
    check_rows(sql, f"lost_{after}")


def test_a_connection_that_is_lost_inside_a_batch_leaves_nothing_of_it(server, sql, files, monkeypatch):
    real, counted = postgres_load.rows_of, []

    def rows(vectors, batch, columns):
        for place, row in enumerate(real(vectors, batch, columns)):
            if batch.start == 100 and place == 20 and not counted:
                counted.extend(sql("SELECT count(*) FROM inside"))
                ending(sql, 0)(0)
            yield row

    monkeypatch.setattr(postgres_load, "rows_of", rows)
    result = load_vectors(files, server.format("inside"), waits=(0.05, 0.1))
    assert counted == [(100,)]
    assert (result.rows, result.reconnected) == (ROWS, 1)
    check_rows(sql, "inside")


def check_rows(sql, name: str) -> None:
    """Every row is there once, with its vector."""
    stored = sql(f"SELECT row, embedding::text FROM {name} ORDER BY row")  # noqa: S608 - a name of ours
    assert [row for row, _ in stored] == list(range(ROWS))
    np.testing.assert_array_equal(
        np.array([json.loads(text) for _, text in stored], dtype=np.float16), vectors().astype(np.float16)
    )


def test_where_it_stays_lost_the_same_command_resumes(server, sql, files):
    to = server.format("resumed")
    with pytest.raises(InputError, match=r"the connection was lost: .*; what was loaded is kept: run the same command"):
        load_vectors(files, to, waits=(), progress=ending(sql, 150))
    assert sql("SELECT count(*) FROM resumed") == [(150,)]
    told = []
    result = load_vectors(files, to, waits=(), progress=told.append)
    assert (result.rows, result.resumed) == (150, 150)
    assert told == [150, 50, 50, 50]
    assert sql("SELECT count(*), min(row), max(row) FROM resumed") == [(ROWS, 0, ROWS - 1)]
    again = load_vectors(files, to)
    assert (again.rows, again.resumed) == (ROWS, 0), "a finished load begins anew"
    assert sql("SELECT count(*) FROM resumed") == [(ROWS,)]


KILLED = """
import os, sys
from layerwise.index import postgres_load

postgres_load.BATCH_ROWS = 50
rows_of, sample = postgres_load.rows_of, postgres_load.PostgresIndex.sample

def killed_at(start, place):
    def rows(files, batch, columns):
        for number, row in enumerate(rows_of(files, batch, columns)):
            if batch.start == start and number == place:
                os.kill(os.getpid(), 9)
            yield row
    postgres_load.rows_of = rows

def killed_while_measuring(self, most):
    os.kill(os.getpid(), 9)

postgres_load.PostgresIndex.sample = killed_while_measuring
if sys.argv[1] != "measuring":
    killed_at(*map(int, sys.argv[1].split(",")))
sys.argv[1:] = ["index", "load", *sys.argv[2:]]
from layerwise.cli.app import main
main()
"""


@pytest.mark.slow
def test_a_killed_load_goes_on_with_the_same_command(server, sql, files, forks):
    """SIGKILL in a batch and while recall is measured: only missing rows are copied, each once."""
    to, versions = server.format("killed"), []
    for moment, there in (("100,20", 100), ("measuring", ROWS)):
        process = forks.start(KILLED, moment, files.place, "--to", to)
        assert process.wait() == -9, process.stderr
        versions.append(dict(sql("SELECT row, xmin::text FROM killed")))
        assert sorted(versions[-1]) == list(range(there))
    result = call_json("index", "load", files.place, "--to", to)
    assert [result[key] for key in ("rows", "resumed", "reconnected", "queries")] == [0, ROWS, 0, 64]
    assert result["recall"] >= 0.95
    check_rows(sql, "killed")
    versions.append(dict(sql("SELECT row, xmin::text FROM killed")))
    for earlier, later in pairwise(versions):
        assert earlier.items() <= later.items(), "what was there is not written again"
    assert PostgresIndex.read(to).facts.loading == {}
    assert "(300 were there already)" not in call("index", "load", files.place, "--to", to), (
        "a finished load begins anew"
    )


def test_recall_says_what_it_was_measured_against(server, files, monkeypatch, tmp_path):
    printed = call("index", "load", files.place, "--to", server.format("labelled"))
    assert "Recall@10 against exact search, on 64 means of two rows: " in printed
    monkeypatch.setattr(postgres_load, "_recall", lambda *_distances: 0.5)
    printed = call("index", "load", files.place, "--to", server.format("labelled"))
    assert "on 64 means of two rows: 0.500 (effort 1000).\nThat is below the wanted 0.95" in printed
    single = write(tmp_path / "single.parquet", vectors()[:1])
    printed = call("index", "load", single.place, "--to", server.format("single"))
    assert "Recall was not measured: the table has too few vectors." in printed


def test_tables_of_others_and_other_vectors_are_refused(server, sql, files, tmp_path):
    sql("CREATE TABLE mine (a int)")
    with pytest.raises(InputError, match="mine: is a table that `layerwise index load` did not make"):
        load_vectors(files, server.format("mine"))
    with pytest.raises(InputError, match="nothing: there is no such table; fill it by `layerwise index load`"):
        PostgresIndex.read(server.format("nothing"))
    load_vectors(files, server.format("kept"))
    narrow = write(tmp_path / "narrow.parquet", vectors()[:, :8], lang=["en"] * ROWS, size=np.arange(ROWS) / 2)
    with pytest.raises(InputError, match="kept: was made with width = 12, now it is 8; give another table"):
        load_vectors(narrow, server.format("kept"))
    with pytest.raises(InputError, match="was made with similarity = 'cosine', now it is 'dot'"):
        load_vectors(files, server.format("kept"), similarity="dot")
    large = write(tmp_path / "large.parquet", vectors() * 1e6)
    with pytest.raises(InputError, match=r"large\.parquet: its row 0 has numbers too large for half precision"):
        load_vectors(large, server.format("large"))
    nul = write(tmp_path / "nul.parquet", vectors(), text=["a\0b"] * ROWS)
    with pytest.raises(InputError, match="its row 0, column 'text' holds a NUL character"):
        load_vectors(nul, server.format("nul"))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://me:secret@localhost/db", "postgresql://localhost/db/: names no table; give postgresql://"),
        ("postgresql://localhost/db/a/b", "names no table"),
        ("postgresql://localhost/db/a.b.c", "names no table"),
        ("postgresql://me:secret@localhost:1/db/t?connect_timeout=2", "localhost:1/db/t: cannot connect: "),
    ],
)
def test_addresses_that_lead_nowhere_are_one_line_without_the_password(address, message):
    pytest.importorskip("psycopg")
    with pytest.raises(InputError, match=message) as raised:
        PostgresIndex.read(address)
    assert "secret" not in str(raised.value)
    parsed = TableAddress.parse("postgresql://me:secret@db.example:5433/my%20base/papers.chunks?sslmode=require")
    assert (parsed.name, urlsplit(parsed.conninfo).path) == (("papers", "chunks"), "/my%20base")
    assert parsed.shown == "postgresql://db.example:5433/my%20base/papers.chunks"


def test_without_psycopg_the_install_line_is_told(files, monkeypatch):
    monkeypatch.setattr("layerwise.extras.find_spec", lambda name: None)
    message = r"a table of PostgreSQL needs psycopg: pip install 'layerwise\[postgres\]'"
    with pytest.raises(MissingExtraError, match=message):
        load_vectors(files, "postgresql://localhost/db/table")
    with pytest.raises(MissingExtraError, match=message):
        open_index("postgresql://localhost/db/table")


def test_the_commands_of_the_page_run(server, tmp_path, tiny_bert, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "indexing.md").read_text(encoding="utf-8")
    block = next(block for block in page.split("```bash\n") if "index load" in block.split("```")[0])
    monkeypatch.chdir(tmp_path)
    rows = [f'"{text}",{"en" if number % 2 else "de"}' for number, text in enumerate(demo_corpus()[:30])]
    (tmp_path / "corpus.csv").write_text("\n".join(["text,lang", *rows]) + "\n", encoding="utf-8")
    commands = [line for line in block.split("```")[0].splitlines() if line.startswith("layerwise ")]
    here = {"postgresql://localhost/search/corpus": server.format("corpus"), "default": str(tiny_bert)}
    printed = [call(*(here.get(word, word) for word in shlex.split(line)[1:])) for line in commands]
    assert "30 vectors of 32 numbers" in printed[1]
    assert len([line for line in printed[2].splitlines() if line.strip().endswith(" en")]) == 10


def test_rows_are_changed_while_a_table_is_open_as_the_page_says(server, sql, tmp_path, tiny_bert, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in blocks_of(DOCS / "running.md") if "psql" in block.text]
    texts = demo_corpus()[:30]
    here = {"default": str(tiny_bert), "postgresql://localhost/search/help": server.format("help")}
    embed, load = ([here.get(word, word) for word in words] for words in commands_of(block))
    rows = {f"doc-{number}": text for number, text in enumerate(texts)}
    opened, model = None, LayerModel.load(tiny_bert)
    for changed in (rows, {"doc-28": "A ferry left.", "doc-29": "A boat came.", "doc-30": "It rained."}):
        lines = ["id,text", *(f'{name},"{text}"' for name, text in changed.items())]
        (tmp_path / "changed.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        call(*embed, "--overwrite")
        call(*load)
        opened = open_index(server.format("help")) if opened is None else opened
        rows |= changed
    (statement,) = re.findall(r'^psql search -c "(.*)"$', block.text, re.MULTILINE)
    sql(statement)
    del rows["doc-28"]
    hits = opened.search(model.encode([rows["doc-29"]]), 30).rows[0]
    found = [opened.columns(int(row)) for row in hits]
    assert found[0]["id"] == "doc-29"
    assert {hit["id"]: hit["text"] for hit in found} == rows
    opened.close()


@pytest.mark.slow  # by the default model
def test_the_sql_of_the_page_prints_what_it_shows(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"text": text, "lang": "de" if number % 2 else "en"} for number, text in enumerate(demo_corpus())]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    call("embed", "default", "rows.jsonl", "-o", "vectors", "--keep", "text", "--keep", "lang")
    call("index", "load", "vectors", "--to", server.format("sql_of_page"))
    blocks = blocks_of(DOCS / "indexing.md")
    ((code, shown),) = [(one.text, after) for one, after in pairwise(blocks) if "import psycopg" in one.text]
    here = {"postgresql://localhost/search": server.replace("/{}", ""), "FROM corpus": "FROM sql_of_page"}
    for old, new in here.items():
        assert old in code
        code = code.replace(old, new)
    assert_shown(shown, run_python(code, {}))


def test_the_commands_load_and_query_by_text_with_the_recorded_model(server, tmp_path, tiny_bert, capsys, monkeypatch):
    rows = [{"text": text, "lang": "en" if number % 2 else "de"} for number, text in enumerate(SENTENCES)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    keep = ("--keep", "text", "--keep", "lang")
    call("embed", tiny_bert, tmp_path / "rows.jsonl", "-o", tmp_path / "vectors", *keep)
    to = server.format("texts")
    printed = call("index", "load", tmp_path / "vectors", "--to", to)
    assert "7 vectors of 32 numbers in " in printed
    assert "Recall@10 against exact search, on 3 means of two rows: 1.000 (effort 40)." in printed
    found = call_json("query", to, SENTENCES[3], "-k", "2")
    assert found[0]["hits"][0] == {
        "row": 3, "score": pytest.approx(1, abs=2e-3), "columns": {"row": 3, "text": SENTENCES[3], "lang": "en"},
    }  # fmt: skip
    german = call_json("query", to, SENTENCES[3], "--filter", "lang = :lang", "--param", "lang=de")
    assert {hit["columns"]["lang"] for hit in german[0]["hits"]} == {"de"}
    assert SENTENCES[3] in call("query", to, SENTENCES[3], "-k", "1")
    other = save_tiny("electra", tmp_path / "electra")
    error = refused(capsys, monkeypatch, "query", to, "a door", "--model", other)
    assert "its vectors were made by another model than" in error
    call("embed", other, tmp_path / "rows.jsonl", "-o", tmp_path / "others", *keep)
    assert "holds vectors of another model" in refused(
        capsys, monkeypatch, "index", "load", tmp_path / "others", "--to", to
    )
    error = refused(capsys, monkeypatch, "query", tmp_path / "vectors", "a door", "--filter", "true")
    assert "--filter and --param are for tables of PostgreSQL" in error
