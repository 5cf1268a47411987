"""Tasks are declarations: the package's own are complete and are those of the real data; a user's are checked."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from layerwise.data import (
    KINDS,
    SUITES,
    Task,
    add_task,
    differences,
    fetch_task,
    find_tasks,
    known_tasks,
    load_task,
    read_task,
    read_task_file,
)
from layerwise.data.catalog import TASKS
from layerwise.data.published import READERS
from layerwise.errors import InputError
from support.slow_cases import most_slow, one_in

OWN = list(known_tasks().values())


# The package's own


def test_every_suite_has_its_tasks():
    suites = {suite: [task.name for task in find_tasks(suites=[suite])] for suite in SUITES}
    assert suites["sts"] == ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
    assert suites["transfer"] == ["mr", "cr", "subj", "mpqa", "sst2", "sst5", "trec", "mrpc"]
    assert len(suites["probing"]) == 10
    assert suites["retrieval"] == ["quora", "scifact", "cranfield", "cisi", "cacm"]
    assert all(suites.values())
    assert {task.name for task in find_tasks(suites=["all"])} == {name for names in suites.values() for name in names}
    assert [task.name for task in find_tasks(suites=["transfer-more"])] == ["sst2-sentences"]


@pytest.mark.parametrize("task", OWN, ids=lambda task: task.name)
def test_own_tasks_are_complete(task):
    assert task.kind in KINDS
    assert task.licence
    assert sum(task.rows.values()) > 0
    assert set(task.rows) == (set(task.splits) or {"all"})
    assert task.file.endswith(".parquet")
    assert re.fullmatch(r"[0-9a-f]{32}", task.digest) or task.name == "top_constituents"
    if task.source is None:
        assert task.name == "sts17-es-en-wmt" or task.file.startswith("mteb_types/"), "put into a data folder by hand"
        return
    assert re.fullmatch(r"[0-9a-f]{40}", task.source.revision), "pinned to a commit"
    assert task.source.kind == "hub" or task.source.reader in READERS


def test_tasks_that_share_a_file_share_its_source():
    for file in {task.file for task in OWN}:
        sources = [task.source for task in OWN if task.file == file and task.source]
        assert all(source == sources[0] for source in sources)
        parts = [(task.kind, task.only) for task in OWN if task.file == file]
        assert len(set(parts)) == len(parts)


CHECKED = sorted((task for task in OWN if task.digest), key=lambda task: -sum(task.rows.values()))
SMALLEST_OF_KIND = {task.kind: task.name for task in CHECKED}.values()


@pytest.mark.shared
@pytest.mark.parametrize("name", most_slow([task.name for task in CHECKED], now=SMALLEST_OF_KIND))
def test_counts_and_digests_are_those_of_the_real_data(shared, name):
    task = known_tasks()[name]
    rows = load_task(task, shared / "data")
    assert rows.counts == task.rows
    assert rows.digest == task.digest
    assert differences(rows) == []


# Names


@pytest.mark.parametrize("name", ["stsb", "STS-B", "sts_b", "STSB"])
def test_a_name_may_be_written_in_several_ways(name):
    assert [task.name for task in find_tasks([name])] == ["stsb"]


def test_each_task_once_in_the_order_asked_for():
    found = find_tasks(["sickr", "STS12", "sickr"], ["sts"])
    assert [task.name for task in found] == ["sickr", "sts12", "sts13", "sts14", "sts15", "sts16", "stsb"]


def test_unknown_names_and_suites():
    with pytest.raises(InputError, match=r"Unknown task 'stsc'\. Did you mean 'sts.*'\? Known: sts12, .*NAME\.toml"):
        find_tasks(["stsc"])
    with pytest.raises(InputError, match=r"Unknown suite 'stss'\. Did you mean 'sts'\? Known: sts, .*, mteb-like$"):
        find_tasks(suites=["stss"])


def test_a_task_made_in_python_is_known(monkeypatch):
    monkeypatch.setattr(TASKS, "_entries", {})
    task = add_task(Task(name="Mine-1", kind="sts", file="rows.csv", suite="ours"))
    assert find_tasks(["mine1"], ["ours"]) == [task]
    assert list(known_tasks())[-1] == "Mine-1"


# A user's task file

PAIRS = "sentence1,sentence2,score,part\na cat,a dog,3,x\na car,a bus,1,y\n"
WHOLE = """
[defaults.ours]
suite = "ours"

[[task]]
name = "pairs"
kind = "sts"
file = "pairs.csv"
metric = "pearson"
columns = { split = "part" }
splits = { test = "x" }

[[task]]
like = "ours"
name = "topics"
kind = "classification"
file = "deep/topics.jsonl"
columns = { left = "body", label = "topic" }

[[task]]
like = "ours"
name = "answers"
kind = "retrieval"
file = "answers.csv"
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "tasks.toml").write_text(WHOLE)
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "deep" / "topics.jsonl").write_text('{"body": "a goal", "topic": "sport"}\n')
    (tmp_path / "answers.csv").write_text("query,passage\nwhy?,because\n")
    return tmp_path


def test_a_task_file_of_all_kinds(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    pairs, topics, answers = map(load_task, find_tasks([f"{folder.name}/tasks.toml"]))
    assert (pairs.left, pairs.right, pairs.labels) == (["a cat"], ["a dog"], [3.0])  # the other row is of no split
    assert pairs.splits["test"].tolist() == [0]
    assert (pairs.task.metric, pairs.task.suite) == ("pearson", "own")
    assert (topics.left, topics.right, topics.labels, topics.counts) == (["a goal"], [], ["sport"], {"all": 1})
    assert topics.task.suite == "ours"
    assert (answers.left, answers.right, answers.labels) == (["why?"], ["because"], [])
    assert len(answers.digest) == 32


def test_a_task_file_is_beside_its_files_whatever_the_data_folder(folder, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LAYERWISE_DATA", str(tmp_path_factory.mktemp("data")))
    assert [len(load_task(task)) for task in read_task_file(folder / "tasks.toml")] == [1, 1, 1]


TASK = '[[task]]\nname = "a"\nkind = "sts"\nfile = "a.csv"\n'
HEAD = '[[task]]\nname = "a"\nkind = "sts"\nfile = "a.csv"\n'
BAD = {
    "split is a number": (HEAD + "splits = { test = [1] }\n", "splits.test.0 is 1; expected text"),
    "rows is a number": (HEAD + "rows = 5\n", "rows is 5; expected a table"),
    "rows are words": (HEAD + 'rows = { all = "many" }\n', "rows.all is 'many'; expected a whole number"),
    "duplicates is a text": (HEAD + 'duplicates = "false"\n', "duplicates is 'false'; expected true or false"),
    "only is a number": (HEAD + "only = 1\n", "only is 1; expected text"),
    "defaults are none": (
        "defaults = 5\n" + HEAD + 'like = "x"\n',
        r"number 1: like = 'x', but the tables of .* are: none",
    ),
    "no left": (HEAD + 'columns = { left = "" }\n', "columns.left must not be empty; sts needs left, right"),
    "no right": (HEAD + 'columns = { right = "" }\n', "columns.right must not be empty; sts needs left, right"),
    "not TOML": ("[[task", r"tasks\.toml: is not TOML: "),
    "not text": (b"\xff\xfe", r"tasks\.toml: is not UTF-8 text"),
    "nothing": ("", r"tasks\.toml: no \[\[task\]\] table; .* which has a name, kind and file"),
    "one table": ('[task]\nname = "a"\n', r"no \[\[task\]\] table; write \[\[task\]\], in double brackets"),
    "numbers": ("task = [1]\n", r"no \[\[task\]\] table"),
    "no name": ('[[task]]\nkind = "sts"\nfile = "a.csv"\n', r"\[\[task\]\] number 1: name is missing; give name = "),
    "no file": (TASK + '[[task]]\nname = "b"\nkind = "sts"\n', "task 'b': file is missing; give file = "),
    "bad key": (
        TASK + "colour = 1\n",
        "task 'a': unknown key 'colour'. .* Known: columns, corpus, digest, duplicates",
    ),
    "bad kind": (
        TASK.replace("sts", "sst"),
        "Unknown kind 'sst'. Did you mean 'sts'. Known: bitext, classification",
    ),
    "bad metric": (TASK + 'metric = "accuracy"\n', "Unknown metric of sts 'accuracy'. Known: spearman, pearson"),
    "bad column": (
        TASK + 'columns = { first = "x" }\n',
        "Unknown key of columns 'first'. Known: left, right",
    ),
    "bad role": (TASK + 'splits = { valid = ["x"] }\n', "Unknown key of splits 'valid'. Known: train, dev, test"),
    "bad name": (
        TASK.replace('"a"', '"a b"'),
        "task 'a b': a name must not be empty or hold a slash",
    ),
    "no subset": (TASK + 'only = "x"\n', "only = 'x' needs the column of the subsets: columns"),
    "no labels": (
        TASK.replace("sts", "retrieval") + "duplicates = true\n",
        "duplicates need a column of labels",
    ),
    "like nothing": (TASK + 'like = "ours"\n', r"number 1: like = 'ours', but the tables of \[defaults\] are: none"),
    "bad source": (
        TASK + 'source = { kind = "ftp" }\n',
        "task 'a': source: ",
    ),
    "odd source": (
        TASK + 'source = { kind = "ftp", repo = "", revision = "", reader = "" }\n',
        "task 'a': source: Unknown kind 'ftp'. Known: hub, github",
    ),
    "splits": (TASK + "splits = 3\n", "task 'a': splits is 3; expected a table"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_task_files_are_named(tmp_path, content, message):
    path = tmp_path / "tasks.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as error:
        read_task_file(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_task_file_that_is_not_there(tmp_path):
    with pytest.raises(
        InputError,
        match=r"none\.toml: cannot be read: No such file or directory; a task file is TOML",
    ):
        find_tasks([str(tmp_path / "none.toml")])


def test_tasks_are_values():
    task = Task(name="a", kind="sts", file="a.csv", splits={"test": ["x"]})
    assert task.replaced(file="a.csv") == task
    assert task.splits == {"test": ("x",)} == Task(name="a", kind="sts", file="a.csv", splits={"test": "x"}).splits
    with pytest.raises(ValueError, match="frozen"):
        task.name = "b"


# The catalogue's sources, with the real rows laid out as their authors did


def native(task: Task, rows: list[dict]) -> dict[str, str | bytes]:
    """The files that a task's source names, written from its rows."""
    options, reader = task.source.options, task.source.reader
    splits = options.get("files", {})
    if reader == "sts-year":
        parts = {subset: [row for row in rows if row["subset"] == subset] for subset in options["subsets"]}
        pairs = {f"STS.input.{k}.txt": lines("{sentence1}\t{sentence2}", v) for k, v in parts.items()}
        return pairs | {f"STS.gs.{k}.txt": lines("{score}", v) for k, v in parts.items()}
    if reader == "polarity":
        names = {1: options["positive"], 0: options["negative"]}
        return {name: lines("{text}", [r for r in rows if r["label"] == label]) for label, name in names.items()}
    if reader == "parallel-lines":
        first = options.get("first_class", 0)
        return {
            path: lines(
                "{" + column + "}", [row | {"label": row.get("label", 0) + first} for row in rows if of(row, part)]
            )
            for part in options["parts"]
            for column, path in part.items()
            if column not in ("split", "subset")
        }
    formats = {
        "stsb": "{genre}\t{file}\t2012\t1\t{score}\t{sentence1}\t{sentence2}",
        "sick": "1\t{sentence1}\t{sentence2}\t{score}\tNEUTRAL",
        "mrpc": "{label}\t1\t2\t{sentence1}\t{sentence2}",
        "quora": '{qqp_row}\tid\t"{sentence1}"\t"{sentence2}"\t{label}.0',
        "csv-pairs": '"{sentence1}","{sentence2}",{score}',
        "text-label": "{text}\t{name}",
        "label-text": "{name} {text}",
    }
    heads = {
        "sick": "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n",
        "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n",
        "quora": "\tid\tsentence1\tsentence2\tis_duplicate\n",
    }
    if reader in ("csv-pairs", "quora"):
        rows = [{k: v.replace('"', '""') if isinstance(v, str) else v for k, v in row.items()} for row in rows]
    named = [
        dict(row, genre=row["subset"].partition("/")[0], file=row["subset"].partition("/")[2], name="")
        if "subset" in row
        else dict(
            row, name=row.get("fine_label") or (row["label_name"] if "probing" in task.file else row.get("label"))
        )
        for row in rows
    ]
    return {
        path: heads.get(reader, "") + lines(formats[reader], [r for r in named if split in ("all", r["split"])])
        for split, path in splits.items()
    }


def of(row: dict, part: dict) -> bool:
    """Whether a row is of a part, by its split and subset."""
    return all(row[key] == part[key] for key in ("split", "subset") if key in part)


def lines(form: str, rows: list[dict]) -> str:
    return "".join(form.format(**row) + "\n" for row in rows)


FROM_FILES = [t for t in known_tasks().values() if t.source and t.source.kind == "github" and t.digest]
SMALLEST = {t.source.reader: t for t in sorted(FROM_FILES, key=lambda t: -sum(t.rows.values()))}


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    one_in(3, [t.name if t in SMALLEST.values() else pytest.param(t.name, marks=pytest.mark.slow) for t in FROM_FILES]),
)
def test_sources_give_the_rows_of_the_catalogue(tmp_path, shared, caplog, name):
    task = known_tasks()[name]
    rows = pq.read_table(shared / "data" / task.file).to_pylist()
    encoding = "latin-1" if task.source.options.get("encoding") == "latin-1" else "utf-8"
    root = tmp_path / task.source.repo / task.source.revision / task.source.options["folder"]
    root.mkdir(parents=True)
    for path, content in native(task, rows).items():
        (root / path).write_bytes(content.encode(encoding))
    path = fetch_task(task, tmp_path / "out", base=tmp_path.as_uri())
    assert read_task(task, path).digest == task.digest
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
