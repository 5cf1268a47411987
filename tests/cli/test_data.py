"""`layerwise data`: lists, fetches and checks, says the same to people and programs, and loses nothing on the way."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from layerwise.cli.app import app, main
from layerwise.data import fetch as fetching
from layerwise.data import known_tasks

WIDE = {"COLUMNS": "300"}


def call(*arguments, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["data", *map(str, arguments)], env=WIDE, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def call_json(*arguments, code: int = 0) -> dict[str, dict]:
    return {entry["name"]: entry for entry in json.loads(call(*arguments, "--json", code=code))}


@pytest.fixture
def polarity(tmp_path, monkeypatch) -> Path:
    """A mirror of MR and CR, which is what `fetch` reads from; where repositories are is no setting of the command."""
    for name in ("mr", "cr"):
        source = known_tasks()[name].source
        folder = tmp_path / "web" / source.repo / source.revision / source.options["folder"]
        folder.mkdir(parents=True)
        (folder / source.options["positive"]).write_text("a fine film .\nfine .\n")
        (folder / source.options["negative"]).write_text("a dull film .\n")
    monkeypatch.setattr(fetching.fetch_task, "__kwdefaults__", {"base": (tmp_path / "web").as_uri()})
    return tmp_path / "web"


def put(folder: Path, name: str, rows: list[dict]) -> Path:
    path = folder / known_tasks()[name].file
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


# list


def test_list_shows_every_task_and_where_it_is(tmp_path):
    path = put(tmp_path, "mr", [{"text": "a", "label": 1}])
    facts = call_json("list", "--data", tmp_path)
    assert list(facts) == list(known_tasks())
    assert (facts["mr"]["where"], facts["mr"]["path"]) == ("folder", str(path))
    assert (facts["sts12"]["where"], facts["sts12"]["path"]) == ("not here", None)
    assert facts["sts12"]["source"] == "github:amao0o0/SynWMD@59042a92e862"
    assert facts["sts17-es-en-wmt"]["source"] is None
    assert facts["stsb"]["rows"] == {"train": 5749, "dev": 1500, "test": 1379}
    assert set(facts["mr"]) >= {"suite", "kind", "metric", "licence", "note"}


def test_list_for_people(tmp_path):
    shown = call("list", "--suite", "transfer", "--data", tmp_path)
    assert "0 of 8 tasks are here" in shown
    assert "67,349/872/1,821" in shown
    assert "sts12" not in shown
    alone = call("list", "sts12-raw")
    assert "hub:mteb/sts12-sts@a0d554a64d88" in alone
    assert "3,108 test" in alone


def test_list_of_a_user_task_file(tmp_path):
    (tmp_path / "own.toml").write_text('[[task]]\nname = "a"\nkind = "sts"\nfile = "a.csv"\n')
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\na,b,1\n")
    assert call_json("list", tmp_path / "own.toml")["a"]["where"] == "folder"


# fetch


def test_fetch_then_it_is_here(polarity, own_cache):
    shown = call("fetch", "mr", "CR")
    assert "mr: from github:robertoviegas/SimCSE@a0d98a537cef" in shown
    assert f"cr: fetched, {own_cache / 'data' / 'transfer' / 'cr.parquet'}" in shown
    facts = call_json("list", "mr", "cr", "mpqa")
    assert [fact["where"] for fact in facts.values()] == ["fetched", "fetched", "not here"]
    again = call("fetch", "mr")
    assert again.startswith("mr: is here")
    assert "from" not in again


def test_fetch_into_a_folder(polarity, tmp_path):
    call("fetch", "mr", "--to", tmp_path / "data")
    assert call_json("list", "mr", "--data", tmp_path / "data")["mr"]["where"] == "folder"
    call("fetch", "mr")
    shown = call("fetch", "cr", "mr", "--data", tmp_path / "data")
    assert "cr: fetched" in shown
    assert "mr: is here" in shown


def test_fetch_goes_on_after_a_failure(polarity, own_cache):
    source = known_tasks()["mr"].source
    (polarity / source.repo / source.revision / source.options["folder"] / "rt-polarity.neg").unlink()
    arguments = ["data", "fetch", "mr", "sts17-es-en-wmt", "cr"]
    result = CliRunner().invoke(app, arguments, env=WIDE, catch_exceptions=False)
    assert result.exit_code == 2
    errors = result.stderr.splitlines()[-2:]
    assert errors[0].startswith(
        "error: mr: github:robertoviegas/SimCSE@a0d98a537cef: rt-polarity.neg: cannot be fetched"
    )
    assert errors[1].startswith("error: sts17-es-en-wmt: task 'sts17-es-en-wmt' has no source")
    assert [path.name for path in (own_cache / "data").rglob("*.parquet")] == ["cr.parquet"]
    assert "cr: fetched" in result.stdout


def test_fetch_of_nothing_and_of_what_is_unknown(monkeypatch, capsys):
    for arguments, message in (
        (["fetch"], "error: no task to fetch; name some, or a suite: layerwise data fetch --suite sts\n"),
        (["fetch", "mrr"], "error: Unknown task 'mrr'. Did you mean 'mr"),
        (["list", "--suite", "none"], "error: Unknown suite 'none'. Known: sts, "),
        (["check", "--data", "nowhere"], "error: nowhere: the data folder does not exist; create it"),
    ):
        monkeypatch.setattr("sys.argv", ["layerwise", "data", *arguments])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert capsys.readouterr().err.startswith(message)


# check


def test_check_tells_what_differs(polarity, tmp_path):
    call("fetch", "cr", "--to", tmp_path / "data")
    checks = call_json("check", "cr", "mr", "--data", tmp_path / "data", code=2)
    assert checks["cr"]["state"] == "differs"
    assert checks["cr"]["rows"] == {"all": 3}
    assert checks["cr"]["why"] == "3 rows (all), not 3,775"
    assert (checks["mr"]["state"], checks["mr"]["path"], checks["mr"]["digest"]) == ("missing", None, None)
    shown = call("check", "cr", "mr", "--data", tmp_path / "data", code=2)
    assert "3 rows (all), not 3,775" in shown
    assert "missing" in shown


def test_check_ends_with_a_summary(tmp_path):
    told = "0 of 8 tasks are here; name their folder by --data, or fetch them: layerwise data fetch"
    assert call("check", "--suite", "transfer").splitlines()[-1] == told
    put(tmp_path, "mr", [{"text": "a", "label": 1}])
    put(tmp_path, "cr", [{"text": "a", "label": 1}]).write_bytes(b"PAR1")
    shown = call("check", "mr", "cr", "subj", "--data", tmp_path, code=2)
    assert shown.splitlines()[-1] == "2 of 3 tasks are here: 1 differs, 1 unreadable"


def test_check_of_what_is_not_here_is_no_failure():
    checks = call_json("check")
    assert list(checks) == list(known_tasks())
    assert {check["state"] for check in checks.values()} == {"missing"}


def test_check_of_a_damaged_file(tmp_path):
    put(tmp_path, "mr", [{"text": "a", "label": 1}]).write_bytes(b"PAR1")
    checks = call_json("check", "mr", "--data", tmp_path, code=2)
    assert checks["mr"]["state"] == "unreadable"
    assert "mr.parquet: not a readable Parquet file" in checks["mr"]["why"]


def test_check_of_a_shared_file_that_lacks_a_track(tmp_path):
    put(tmp_path, "sts17-en-en", [{"sentence1": "a", "sentence2": "b", "score": 1.0, "subset": "x", "split": "test"}])
    checks = call_json("check", "sts17-es-en-wmt", "--data", tmp_path)
    assert checks["sts17-es-en-wmt"]["state"] == "missing"
    assert "no rows with subset = track4b.es-en" in checks["sts17-es-en-wmt"]["why"]


def test_check_of_a_task_that_declares_no_digest(tmp_path):
    (tmp_path / "own.toml").write_text('[[task]]\nname = "a"\nkind = "sts"\nfile = "a.csv"\n')
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\na,b,1\n")
    check = call_json("check", tmp_path / "own.toml")["a"]
    assert (check["state"], check["rows"], len(check["digest"])) == ("undeclared", {"all": 1}, 32)


@pytest.mark.shared
def test_the_real_data_is_what_the_catalogue_says(shared):
    checks = call_json("check", "--suite", "sts", "--suite", "multilingual", "--data", shared / "data")
    assert {check["state"] for check in checks.values()} == {"ok"}
    assert checks["stsb"]["digest"] == known_tasks()["stsb"].digest
