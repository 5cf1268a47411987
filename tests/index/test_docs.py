"""The commands of docs/indexing.md, and those of docs/running.md that change an index, run as they stand."""

from itertools import pairwise
from pathlib import Path

import pytest

from layerwise.data import demo_corpus
from layerwise.index import open_index
from layerwise.model import LayerModel
from support.commands import call, call_json
from support.pages import DOCS, assert_shown, blocks_of, commands_of


@pytest.mark.slow
def test_the_commands_of_the_page_run_and_print_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("\n".join(demo_corpus()) + "\n", encoding="utf-8")
    blocks = blocks_of(DOCS / "indexing.md")
    commands = commands_of(blocks[0])
    assert [command[0] for command in commands] == ["embed", "embed", "index", "query", "dedup", "cluster"]
    for command in commands:
        call(*command)
    ((query, shown),) = [(one, after) for one, after in pairwise(blocks) if one.text.startswith("layerwise query")]
    (words,) = commands_of(query)
    assert_shown(shown, call(*words))


def test_an_index_is_replaced_as_the_page_says_and_one_that_is_open_stays_as_it_was(tmp_path, tiny_bert, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in blocks_of(DOCS / "running.md") if "index build" in block.text]
    commands = [[str(tiny_bert) if word == "default" else word for word in words] for words in commands_of(block)]
    assert [words[0] for words in commands] == ["embed", "index"]
    texts = demo_corpus()[:12]
    rows = [f'doc-{number},"{text}"' for number, text in enumerate(texts)]
    found, opened, model = [], None, LayerModel.load(tiny_bert)
    for lines in (rows[:10], rows[2:]):
        Path("help.csv").write_text("\n".join(["id,text", *lines]) + "\n", encoding="utf-8")
        for words in commands:
            call(*words)
        opened = open_index("help.index") if opened is None else opened
        hits = call_json("query", "help.index", texts[5], "-k", "10")[0]["hits"]
        found.append({hit["columns"]["id"] for hit in hits})
    assert found == [{f"doc-{number}" for number in numbers} for numbers in (range(10), range(2, 12))]
    still = [opened.columns(int(row))["id"] for row in opened.search(model.encode(texts[:1]), 10).rows[0]]
    assert still[0] == "doc-0"
    assert set(still) == found[0]
