"""The demonstration as a story: four steps, the files that it leaves, and a last line that opens the report."""

import pyarrow.parquet as pq
import pytest

from layerwise.data import demo_corpus, demo_pairs, load_pairs
from layerwise.model import LayerModel
from support.commands import call, call_json


@pytest.fixture(scope="module")
def told(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "a folder"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERWISE_CACHE", str(folder.parent / "cache"))
        return folder, call("demo", tiny_bert, "-o", folder, "--device", "cpu")


def test_four_steps_are_told_in_order_each_with_what_it_shows(told):
    steps = [line for line in told[1].splitlines() if line.startswith("Step ")]
    assert [line.split(":")[0] for line in steps] == [f"Step {number} of 4" for number in (1, 2, 3, 4)]
    assert all(len(line.split(". ")) == 2 and line.endswith(".") for line in steps)


def test_the_files_are_left_for_looking_at(told):
    folder, output = told
    assert sorted(path.name for path in folder.iterdir()) == [
        ".demo.json",
        "corpus",
        "corpus.txt",
        "model",
        "pairs.csv",
        "report.html",
    ]
    assert (folder / "corpus.txt").read_text().splitlines() == demo_corpus()
    assert len(load_pairs(str(folder / "pairs.csv"))) == len(demo_pairs())
    assert pq.read_table(folder / "corpus").num_rows == len(demo_corpus())
    assert f"Saved the model of {LayerModel.load(folder / 'model').mix} in {folder / 'model'}." in " ".join(
        output.split()
    )
    for name in ("model", "pairs.csv", "corpus.txt, corpus", "report.html"):
        assert any(line.strip().startswith(name) for line in output.splitlines())


def test_the_report_has_the_verdict_of_the_demonstration(told):
    page = (told[0] / "report.html").read_text(encoding="utf-8")
    assert "Is it over-smoothed?" in page
    assert "layerwise report" in page
    assert "280 pairs" in page


def test_the_last_line_opens_the_report(told):
    folder, output = told
    *_, before, last = output.splitlines()
    assert before == "Open the report in a browser:"
    assert last == (folder / "report.html").resolve().as_uri()


@pytest.mark.slow
def test_a_program_learns_where_the_report_is(tiny_bert, tmp_path, monkeypatch):
    from layerwise.cli import demo
    from layerwise.errors import MissingExtraError

    words = ("demo", tiny_bert, "-o", tmp_path / "out", "--device", "cpu")
    assert call_json(*words, "--no-report")["report"] is None

    def missing(extra, purpose, *modules):
        raise MissingExtraError(f"{purpose} needs jinja2", extra)

    monkeypatch.setattr(demo, "require", missing)
    output = call(*words)
    assert output.splitlines()[-1] == "the report needs jinja2: pip install 'layerwise[report]', for the report."
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_second_call_prints_the_first_while_nothing_has_changed(tmp_path, monkeypatch):
    calls = []

    def run_demo(model, out, device, **_):
        calls.append(model)
        for name in ("model", "corpus"):
            (out / name).mkdir(parents=True, exist_ok=True)
        for name in ("pairs.csv", "corpus.txt", "report.html"):
            (out / name).write_text("here")
        print(f"run {len(calls)}")

    monkeypatch.setattr("layerwise.cli.demo.run_demo", run_demo)
    out = tmp_path / "out"
    assert call("demo", "-o", out).strip() == "run 1"
    again = call("demo", "-o", out)
    assert again.startswith("run 1\nNothing has changed since ")
    assert call("demo", "-o", out, "--fresh").strip() == "run 2"
    (out / "report.html").unlink()
    assert call("demo", "-o", out).strip() == "run 3"
    (out / ".demo.json").write_text("damaged")
    assert call("demo", "-o", out).strip() == "run 4"
    assert calls == ["default"] * 4
