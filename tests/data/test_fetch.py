"""What is published becomes rows: native files give the rows written by hand, and nothing half-fetched is kept.

Repositories are folders behind file://, a hub's data set is a local one: nothing touches the network.
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from layerwise.data import (
    NoSubsetError,
    Source,
    Task,
    differences,
    fetch_task,
    find_file,
    known_tasks,
    load_task,
    obtain,
    read_task,
)
from layerwise.errors import InputError, LayerwiseError

REPO, COMMIT = "who/what", "0123456789abcdef"
FILES = {"train": "a.txt", "test": "b.txt"}


def publish(root: Path, files: dict[str, str | bytes], folder: str = "") -> str:
    """Lay files out like a repository; the base address to fetch them from."""
    for name, content in files.items():
        path = root / REPO / COMMIT / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root.as_uri()


def make_task(reader: str, options: dict, kind: str = "classification", **settings) -> Task:
    source = Source(kind="github", repo=REPO, revision=COMMIT, reader=reader, options=options)
    return Task(name="mine", kind=kind, file="some/mine.parquet", suite="other", source=source, **settings)


def fetched(tmp_path: Path, task: Task, files: dict[str, str | bytes], folder: str = "") -> list[dict]:
    path = fetch_task(task, tmp_path / "out", base=publish(tmp_path / "web", files, folder))
    assert path == tmp_path / "out" / task.file
    assert [each.name for each in path.parent.iterdir()] == [path.name], "nothing else is left"
    return pq.read_table(path).to_pylist()


def triples(rows: list[dict]) -> list[tuple]:
    return [tuple(row.values()) for row in rows]


# Native formats


def test_sts_year_drops_pairs_without_a_grade(tmp_path):
    files = {
        "STS.input.MSRvid.txt": "a cat .\ta dog .\nno grade\there\na bird .\ta plane .\textra\n",
        "STS.gs.MSRvid.txt": "3.800\n\n0\n",
        "STS.input.surprise.OnWN.txt": "caf\u00e9\ta\u2028b\r\n",
        "STS.gs.surprise.OnWN.txt": "5\r\n",
    }
    options = {"folder": "data/STS12", "subsets": ["MSRvid", "surprise.OnWN"]}
    task = make_task("sts-year", options, "sts", columns={"subset": "subset"}, splits={"test": ["test"]})
    assert fetched(tmp_path, task, files, "data/STS12") == [
        {"sentence1": "a cat .", "sentence2": "a dog .", "score": 3.8, "subset": "MSRvid", "split": "test"},
        {"sentence1": "a bird .", "sentence2": "a plane .", "score": 0.0, "subset": "MSRvid", "split": "test"},
        {"sentence1": "café", "sentence2": "a\u2028b", "score": 5.0, "subset": "surprise.OnWN", "split": "test"},
    ]


def test_stsb_takes_more_columns_and_lone_quotes(tmp_path):
    line = 'main-news\theadlines\t2013\t0001\t{}\tsay "no\tit is " so{}\n'
    files = {"a.txt": line.format("5.000", ""), "b.txt": line.format("0.25", "\thttp://a\tb")}
    task = make_task("stsb", {"files": FILES}, "sts", splits={"train": ["train"], "test": ["test"]})
    rows = fetched(tmp_path, task, files)
    assert triples(rows) == [
        ('say "no', 'it is " so', 5.0, "main-news/headlines", "train"),
        ('say "no', 'it is " so', 0.25, "main-news/headlines", "test"),
    ]


SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def test_sick(tmp_path):
    files = {"a.txt": SICK + "1\tA man sits \tA man stands\t3.165\tNEUTRAL\r\n\n"}
    task = make_task("sick", {"files": {"test": "a.txt"}}, "sts", splits={"test": ["test"]})
    assert fetched(tmp_path, task, files) == [
        {
            "sentence1": "A man sits",
            "sentence2": "A man stands",
            "score": 3.165,
            "subset": "sick",
            "split": "test",
            "entailment": "NEUTRAL",
        }
    ]


def test_csv_pairs(tmp_path):
    files = {"a.txt": 'Ein Mann.,"Ein Mann, der ""singt"".",2.5\n'}
    task = make_task("csv-pairs", {"files": {"test": "a.txt"}, "subset": "de"}, "sts", splits={"test": ["test"]})
    assert triples(fetched(tmp_path, task, files)) == [("Ein Mann.", 'Ein Mann, der "singt".', 2.5, "de", "test")]


def test_mrpc_knows_no_quoting_and_drops_its_byte_order_mark(tmp_path):
    files = {"a.txt": '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\t"We" won.\tThey said "we won.\r\n'}
    columns = {"left": "sentence1", "right": "sentence2"}
    task = make_task("mrpc", {"files": {"test": "a.txt"}}, columns=columns, splits={"test": ["test"]})
    assert triples(fetched(tmp_path, task, files)) == [('"We" won.', 'They said "we won.', 1, "test")]


def test_quora_drops_rows_that_lack_something(tmp_path):
    rows = '0\tx1\tWhy?\t"""Why"" not?"\t1.0\n1\tx2\tWhat?\t\t0.0\n2\tx3\tWho?\tWhen?\t\n3\tx4\tWhere?\tHow?\t0.0\n'
    files = {"a.txt": "\tid\tsentence1\tsentence2\tis_duplicate\n" + rows}
    columns = {"left": "sentence1", "right": "sentence2", "label": "label"}
    task = make_task("quora", {"files": {"dev": "a.txt"}}, "retrieval", columns=columns, duplicates=True)
    assert triples(fetched(tmp_path, task, files)) == [("Why?", '"Why" not?', 1, "dev"), ("Where?", "How?", 0, "dev")]


def test_polarity_is_latin_1_and_counts_empty_lines(tmp_path):
    files = {"rt.pos": "a fine clich\u00e9 .\n".encode("latin-1"), "rt.neg": b"dull .\n\nso dull .\n"}
    task = make_task("polarity", {"positive": "rt.pos", "negative": "rt.neg"})
    assert triples(fetched(tmp_path, task, files)) == [
        ("a fine cliché .", 1, "all"),
        ("dull .", 0, "all"),
        ("", 0, "all"),
        ("so dull .", 0, "all"),
    ]


SPLITS = {"train": ["train"], "test": ["test"]}


def test_text_label_numbers_sorted_classes_or_those_given(tmp_path):
    files = {"a.txt": "good one .\tO\nbad one .\tI\n", "b.txt": "another .\tI\n"}
    sorted_ones = fetched(tmp_path, make_task("text-label", {"files": FILES}, splits=SPLITS), files)
    assert triples(sorted_ones) == [("good one .", 1, "train"), ("bad one .", 0, "train"), ("another .", 0, "test")]
    given = make_task("text-label", {"files": FILES, "classes": ["O", "I"]}, splits=SPLITS)
    assert [row["label"] for row in fetched(tmp_path, given, files)] == [0, 1, 1]


def test_text_label_may_deal_its_rows_out(tmp_path):
    task = make_task("text-label", {"files": {"all": "a.txt"}, "alternate": ["train", "test"]}, splits=SPLITS)
    rows = fetched(tmp_path, task, {"a.txt": "one\t4\ntwo\t5\nthree\t4\n"})
    assert triples(rows) == [("one", 0, "train"), ("two", 1, "test"), ("three", 0, "train")]


def test_label_text_reads_trec_and_sst(tmp_path):
    files = {"a.txt": "DESC:manner How did it ?\nABBR:exp What is  C ?\n", "b.txt": b"NUM:date When , Ren\xe9 ?\n"}
    trec = make_task("label-text", {"files": FILES, "encoding": "latin-1"}, splits=SPLITS)
    assert triples(fetched(tmp_path, trec, files)) == [
        ("How did it ?", 1, "train"),
        ("What is  C ?", 0, "train"),
        ("When , René ?", 2, "test"),
    ]
    sst = make_task("label-text", {"files": FILES}, splits=SPLITS)
    rows = fetched(tmp_path, sst, {"a.txt": "0 a dull film .\n4 : the best\n", "b.txt": "2 so so\n"})
    assert triples(rows) == [("a dull film .", 0, "train"), (": the best", 2, "train"), ("so so", 1, "test")]


def test_senteval_probing(tmp_path):
    task = make_task("senteval-probing", {"file": "p.txt"}, splits={**SPLITS, "dev": ["dev"]})
    rows = fetched(tmp_path, task, {"p.txt": "tr\tNP_VP_.\tHe ran .\nva\tVP_.\tRun .\nte\tNP_VP_.\tShe ran .\n"})
    assert triples(rows) == [("He ran .", 0, "train"), ("Run .", 1, "dev"), ("She ran .", 0, "test")]


def test_parallel_lines(tmp_path):
    parts = [{"split": "train", "text": "a", "label": "b"}, {"split": "test", "text": "c", "label": "d"}]
    task = make_task("parallel-lines", {"parts": parts, "first_class": 1}, splits=SPLITS)
    rows = fetched(tmp_path, task, {"a": " One \n\nThree\n", "b": "1\n3\n2\n", "c": "Four", "d": "1"})
    assert triples(rows) == [("One", 0, "train"), ("", 2, "train"), ("Three", 1, "train"), ("Four", 0, "test")]


# Damage, absence, mistakes

STS = {"folder": "d", "subsets": ["X"]}
LINES = {"parts": [{"split": "test", "sentence1": "a", "label": "b"}]}
BAD = {
    "lines lost": ("parallel-lines", LINES, {"a": "x\ny\n", "b": "1\n"}, "different numbers of lines: a 2, b 1; fetch"),
    "no class": ("parallel-lines", LINES, {"a": "x\ny\n", "b": "1\nhigh\n"}, "b:2: 'high' is not a number"),
    "half a pair": ("sts-year", STS, {"STS.input.X.txt": "a\n", "STS.gs.X.txt": "1\n"}, r"X\.txt:1: 1 columns, expec"),
    "grades lost": (
        "sts-year",
        STS,
        {"STS.input.X.txt": "a\tb\nc\td\n", "STS.gs.X.txt": "1\n"},
        "2 pairs, but .* 1 gr",
    ),
    "no number": (
        "sts-year",
        STS,
        {"STS.input.X.txt": "a\tb\n", "STS.gs.X.txt": "good\n"},
        r"gs\.X\.txt:1: 'good' is n",
    ),
    "NaN": ("sts-year", STS, {"STS.input.X.txt": "a\tb\n", "STS.gs.X.txt": "nan\n"}, "'nan' is not a number"),
    "nothing": (
        "sts-year",
        STS,
        {"STS.input.X.txt": "a\tb\n", "STS.gs.X.txt": "\n"},
        "no rows; the published files may have changed",
    ),
    "lost file": (
        "sts-year",
        STS,
        {"STS.input.X.txt": "a\tb\n"},
        r"STS\.gs\.X\.txt: cannot be fetched: .*; with a netw",
    ),
    "short": ("stsb", {"files": {"test": "d"}}, {"d": "g\tf\ty\t1\t5\ta\n"}, "d:1: 6 columns, expected 7; the file"),
    "header": (
        "sick",
        {"files": {"test": "d"}},
        {"d": "a\tb\tc\td\te\n"},
        "d:1: the header is a, b, c, d, e; expected pair",
    ),
    "latin": ("sick", {"files": {"test": "d"}}, {"d": b"caf\xe9\n"}, r"d: not utf-8 \(.*\); the published file has ch"),
    "quotes": ("csv-pairs", {"files": {"test": "d"}, "subset": ""}, {"d": 'a,"b" c,1\n'}, "d:1: not valid CSV"),
    "page": ("csv-pairs", {"files": {"test": "d"}, "subset": ""}, {"d": "<html>\n"}, "d:1: 1 columns, expected 3"),
    "option": ("stsb", {"file": {}}, {}, "options of its source: missing a required argument: 'files'; known: files"),
    "options": ("stsb", {"files": {}, "x": 1}, {}, "options of its source: got an unexpected keyword argument 'x'"),
}


@pytest.mark.parametrize(("reader", "options", "files", "message"), BAD.values(), ids=BAD)
def test_what_is_damaged_is_named_and_leaves_nothing(tmp_path, reader, options, files, message):
    task = make_task(reader, options, "sts", splits={"test": ["test"]})
    base = publish(tmp_path / "web", files, options.get("folder", ""))
    with pytest.raises(InputError, match=message) as error:
        fetch_task(task, tmp_path / "out", base=base)
    assert str(error.value).startswith("github:who/what@0123456789ab: ")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "out").rglob("*.*"))


def test_classes_that_are_unknown(tmp_path):
    task = make_task("text-label", {"files": {"test": "a"}, "classes": ["O", "I"]}, splits={"test": ["test"]})
    with pytest.raises(InputError, match="class 'X' of 'a text'; expected one of O, I"):
        fetch_task(task, tmp_path, base=publish(tmp_path, {"a": "a text\tX\n"}))
    probing = make_task("senteval-probing", {"file": "a"}, splits=SPLITS)
    with pytest.raises(InputError, match="a:1: part 'xx'; expected one of tr, va, te"):
        fetch_task(probing, tmp_path, base=publish(tmp_path, {"a": "xx\t1\tb\n"}))


def test_rows_that_the_task_can_not_use_are_not_kept(tmp_path):
    task = make_task("text-label", {"files": {"train": "a"}}, splits={"test": ["test"]})
    with pytest.raises(InputError, match=r"no rows of the split test \(test\) of task 'mine'"):
        fetch_task(task, tmp_path / "out", base=publish(tmp_path / "web", {"a": "b\t1\n"}))
    assert list((tmp_path / "out" / "some").iterdir()) == []


def test_a_fetch_that_fails_keeps_what_was_there(tmp_path):
    task = make_task("polarity", {"positive": "p", "negative": "n"})
    base = publish(tmp_path / "web", {"p": "good\n", "n": "bad\n"})
    before = fetch_task(task, tmp_path / "out", base=base).read_bytes()
    (tmp_path / "web" / REPO / COMMIT / "n").unlink()
    with pytest.raises(InputError, match="n: cannot be fetched"):
        fetch_task(task, tmp_path / "out", base=base)
    assert (tmp_path / "out" / task.file).read_bytes() == before


def test_sources_that_can_not_be(tmp_path):
    with pytest.raises(InputError, match=r"task 'x' has no source to be fetched from; put x\.csv into a data folder"):
        fetch_task(Task(name="x", kind="sts", file="x.csv"), tmp_path)
    source = Source(kind="github", repo=REPO, revision=COMMIT, reader="stsb", options={"files": {}})
    with pytest.raises(InputError, match=r"task 'x' is fetched, so its file is Parquet; name it x\.parquet"):
        fetch_task(Task(name="x", kind="sts", file="x.csv", source=source), tmp_path)
    with pytest.raises(InputError, match=r"http://a: repositories are read by https://"):
        fetch_task(make_task("stsb", {"files": {}}, "sts"), tmp_path, base="http://a")
    with pytest.raises(LayerwiseError, match=r"Unknown reader 'sstb'\. Did you mean 'stsb'"):
        fetch_task(make_task("sstb", {}, "sts"), tmp_path)
    with pytest.raises(InputError, match=r"source: Unknown kind 'ftp'. Known: hub, github"):
        Source(kind="ftp", repo=REPO, revision=COMMIT, reader="stsb")


def test_a_folder_that_can_not_be_written(tmp_path):
    (tmp_path / "out").write_text("a file")
    task = make_task("polarity", {"positive": "p", "negative": "n"})
    with pytest.raises(InputError, match=r"mine\.parquet: cannot be written: "):
        fetch_task(task, tmp_path / "out", base=publish(tmp_path / "web", {"p": "good\n", "n": "bad\n"}))


# Is it what our figures were made on?


def test_other_rows_are_a_warning(tmp_path, caplog):
    options = {"positive": "p", "negative": "n"}
    base = publish(tmp_path / "web", {"p": "good\n", "n": "bad\n"})
    rows = read_task(make_task("polarity", options), fetch_task(make_task("polarity", options), tmp_path, base=base))
    assert rows.counts == {"all": 2}
    assert not caplog.records
    same = make_task("polarity", options, rows={"all": 2}, digest=rows.digest)
    fetch_task(same, tmp_path, base=base)
    assert not caplog.records
    fetch_task(make_task("polarity", options, rows={"all": 1_002}), tmp_path, base=base)
    assert caplog.messages == ["mine: 2 rows (all), not 1,002; published figures need not agree"]
    other = make_task("polarity", options, rows={"all": 2}, digest="0" * 32)
    fetch_task(other, tmp_path, base=base)
    assert "mine: as many rows, but other texts" in caplog.messages[-1]
    assert caplog.messages[-1].endswith("(digest); published figures need not agree")
    assert len(differences(read_task(other, tmp_path / other.file))) == 1


# The hub, by a local data set


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "hf"))
    folder = tmp_path / "hub"
    folder.mkdir()
    configs = ["---", "configs:"]
    for language in ("ar-ar", "en-en"):
        configs += [f"- config_name: {language}", "  data_files:"]
        for split in ("train", "validation"):
            configs += [f"  - split: {split}", f"    path: {language}-{split}.jsonl"]
            rows = [{"s1": f" {language} {split} {i}", "sentence2": "b", "grade": i / 2, "id": i} for i in range(3)]
            (folder / f"{language}-{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "README.md").write_text("\n".join([*configs, "---", ""]))
    return folder


COLUMNS = {"sentence1": "s1", "score": "grade"}


def hub_task(repo: object, only: str | None = None, **options) -> Task:
    source = Source(kind="hub", repo=str(repo), revision=COMMIT, reader="datasets", options=options)
    splits = {"train": ["train"], "test": ["test"]}
    columns = {"subset": "subset"} if only else {}
    return Task(
        name="t", kind="sts", file="t.parquet", suite="x", columns=columns, only=only, splits=splits, source=source
    )


OURS = {"splits": {"train": "train", "test": "validation"}, "columns": COLUMNS}


def test_hub_configs_are_subsets_of_one_file(tmp_path, hub):
    configs = {"en-en": "track5", "ar-ar": "track1"}
    task = hub_task(hub, "track1", configs=configs, **OURS)
    path = fetch_task(task, tmp_path / "out")
    assert len(pq.read_table(path)) == 12
    assert set(pq.read_table(path).column_names) == {"sentence1", "sentence2", "score", "subset", "split"}
    rows = read_task(task, path)
    assert rows.counts == {"train": 3, "test": 3}
    assert rows.left[0] == "ar-ar train 0"
    assert [rows.left[row] for row in rows.splits["test"]] == [f"ar-ar validation {i}" for i in range(3)]
    assert read_task(hub_task(hub, "track5"), path).labels == [0.0, 0.5, 1.0] * 2
    with pytest.raises(NoSubsetError, match=r"t\.parquet: no rows with subset = track2; needed: sentence1"):
        read_task(hub_task(hub, "track2"), path)


def test_hub_mistakes_are_one_line(tmp_path, hub):
    bad = {
        r"fr, train: cannot be fetched: BuilderConfig 'fr' not found": OURS | {"configs": {"fr": ""}},
        r"ar-ar, none: cannot be fetched: Unknown split": OURS | {"configs": {"ar-ar": ""}, "splits": {"test": "none"}},
        r"no column 'score'; it has s1, sentence2, grade, id": {**OURS, "configs": {"ar-ar": ""}, "columns": {}},
        r"missing a required argument: 'splits'; known: splits, configs, columns": {"configs": {}},
    }
    for message, options in bad.items():
        with pytest.raises(InputError, match=message) as error:
            fetch_task(hub_task(hub, **options), tmp_path / "out")
        assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_hub_without_a_network(tmp_path):
    task = known_tasks()["sts13-raw"]
    message = (
        r"^hub:mteb/sts13-sts@7e90230a92c1: default, test: cannot be fetched: .*; with a network run `layerwise data"
    )
    with pytest.raises(InputError, match=message):
        fetch_task(task, tmp_path)
    with pytest.raises(InputError, match=r"put sts_raw/sts13\.parquet into a data folder \(--data, LAYERWISE_DATA\)"):
        load_task(task)


def test_hub_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="needs the package datasets: pip install datasets"):
        fetch_task(known_tasks()["sts13-raw"], tmp_path)


# Finding what was fetched


def test_load_task_fetches_once_and_finds_it_again(tmp_path, hub, own_cache):
    task = hub_task(hub, "track1", configs={"ar-ar": "track1"}, **OURS)
    assert find_file(task) is None
    rows = load_task(task)
    assert find_file(task) == own_cache / "data" / "t.parquet"
    for file in hub.iterdir():
        file.unlink()
    assert load_task(task).digest == rows.digest


def test_obtain_is_the_file_that_is_here_or_was_fetched(tmp_path, hub, own_cache):
    task = hub_task(hub, "track1", configs={"ar-ar": "track1"}, **OURS)
    assert obtain(task) == own_cache / "data" / "t.parquet"
    for file in hub.iterdir():
        file.unlink()
    assert obtain(task) == find_file(task)


def test_a_data_folder_comes_before_what_was_fetched(tmp_path, hub, monkeypatch):
    task = hub_task(hub, "track1", configs={"ar-ar": "track1"}, **OURS)
    load_task(task)
    folder = tmp_path / "data"
    folder.mkdir()
    assert find_file(task, folder).parent != folder
    fetch_task(task, folder)
    assert find_file(task, folder) == folder / "t.parquet"
    monkeypatch.setenv("LAYERWISE_DATA", str(folder))
    assert find_file(task) == folder / "t.parquet"
    monkeypatch.setenv("LAYERWISE_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match="none: LAYERWISE_DATA does not exist; create it, name another"):
        find_file(task)
    with pytest.raises(InputError, match="none: the data folder does not exist"):
        find_file(task, tmp_path / "none")


def test_a_task_without_source_says_what_to_do(tmp_path):
    with pytest.raises(
        InputError,
        match=r"sts17\.parquet: no such file of task 'sts17-es-en-wmt', .*; put it into the folder",
    ):
        load_task(known_tasks()["sts17-es-en-wmt"])
    with pytest.raises(InputError, match=r"x\.csv: no such file of task 'x', .*; check the path in its declaration"):
        load_task(Task(name="x", kind="sts", file="x.csv"))
