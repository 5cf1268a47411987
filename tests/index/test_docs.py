"""The commands of docs/indexing.md run as they stand."""

import shlex
from pathlib import Path

from layerwise.data import demo_corpus
from support.commands import call

PAGE = (Path(__file__).parents[2] / "docs" / "indexing.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_run_and_print_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("\n".join(demo_corpus()) + "\n", encoding="utf-8")
    block = PAGE.split("```bash\n")[1].split("```")[0]
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines() if line.startswith("layerwise ")]
    assert [command[0] for command in commands] == ["embed", "embed", "index", "query", "dedup", "cluster"]
    printed = {command[0]: call(*command) for command in commands}
    shown = [line.split() for line in PAGE.splitlines() if line.startswith("    0.")]
    assert [line.split() for line in printed["query"].splitlines() if line.strip().startswith("0.")] == shown
