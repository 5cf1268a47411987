"""Search in a corpus: figures equal brute force and examples worked out by hand; nobody finds himself."""

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data import Task, TaskRows
from layerwise.errors import InputError
from layerwise.evaluate import (
    HostSubject,
    LayerSubject,
    Protocol,
    evaluate,
)
from layerwise.kinds import SearchSetting, prepare, score_retrieval
from layerwise.metrics import ranked_scores
from layerwise.model import LayerModel
from layerwise.search import as_retrieval
from support.commands import call_json
from support.tiny import SENTENCES, WORDS

EXACT = ("mrr@10", "recall@10", "ndcg@10")


def brute_force(queries, corpus, relevant, own=None, depth=10) -> dict[str, list[float]]:
    """Each query's figures by sorting every passage."""
    found = {"mrr": [], "recall": [], "ndcg": []}
    for number, (query, grades) in enumerate(zip(queries, relevant, strict=True)):
        cosine = corpus @ query / (np.linalg.norm(corpus, axis=1) * np.linalg.norm(query))
        order = [row for row in np.argsort(-cosine) if own is None or row != own[number]][:depth]
        gains = [grades.get(int(row), 0.0) for row in order]
        ideal = sorted(grades.values(), reverse=True)[:depth]
        ranks = [rank for rank, gain in enumerate(gains, 1) if gain]
        found["mrr"].append(1 / ranks[0] if ranks else 0.0)
        found["recall"].append(len(ranks) / len(grades))
        found["ndcg"].append(
            sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
            / sum(gain / math.log2(rank + 1) for rank, gain in enumerate(ideal, 1))
        )
    return found


def some_search(seed: int, queries: int, corpus: int) -> tuple[np.ndarray, np.ndarray, list[dict[int, float]]]:
    random = np.random.default_rng(seed)
    relevant = [
        {int(row): float(random.integers(1, 4)) for row in random.choice(corpus, min(corpus, 1 + n % 3), replace=False)}
        for n in range(queries)
    ]
    return random.normal(size=(queries, 6)), random.normal(size=(corpus, 6)), relevant


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 60), st.sampled_from([1, 3, 10]))
def test_figures_are_those_of_brute_force(seed, queries, corpus, depth):
    asked, passages, relevant = some_search(seed, queries, corpus)
    found = score_retrieval(asked, passages, relevant, setting=SearchSetting(depth=depth))
    expected = brute_force(asked, passages, relevant, depth=depth)
    for name, values in expected.items():
        assert found.figures[f"{name}@{depth}"] == pytest.approx(100 * np.mean(values), abs=1e-6), name
    assert np.allclose(found.items, expected["mrr"])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 40))
def test_duplicates_leave_out_the_query_itself(seed, corpus):
    vectors = np.random.default_rng(seed).normal(size=(corpus, 6))
    own = np.arange(corpus)
    relevant = [{(row + 1) % corpus: 1.0} for row in range(corpus)]
    found = score_retrieval(vectors, vectors, relevant, own=own)
    for name, values in brute_force(vectors, vectors, relevant, own).items():
        assert found.figures[f"{name}@10"] == pytest.approx(100 * np.mean(values), abs=1e-6), name


def test_an_example_by_hand():
    found = np.array([[4, 2, 9], [7, 8, -1], [1, 5, 3]])
    relevant = [{2: 1.0, 6: 1.0}, {3: 1.0}, {1: 2.0, 3: 3.0}]
    scores = ranked_scores(found, relevant, 3)
    assert scores["mrr@3"].tolist() == [0.5, 0.0, 1.0]  # the second place, never, the first place
    assert scores["recall@3"].tolist() == [0.5, 0.0, 1.0]
    first = (1 / math.log2(3)) / (1 + 1 / math.log2(3))
    third = (2 + 3 / math.log2(4)) / (3 + 2 / math.log2(3))
    assert scores["ndcg@3"] == pytest.approx([first, 0.0, third])


def test_a_perfect_search_is_100_everywhere_and_a_hopeless_one_0():
    corpus = np.eye(30)
    perfect = score_retrieval(corpus[:5], corpus, [{row: 1.0} for row in range(5)])
    assert [perfect.figures[name] for name in EXACT] == [100.0] * 3
    asked = np.tile(np.r_[1.0, np.linspace(0.5, 0.1, 29)], (2, 1))  # passages come in the order of their numbers
    hopeless = score_retrieval(asked, corpus, [{29: 1.0}, {28: 1.0}])
    assert [hopeless.figures[name] for name in EXACT] == [0.0] * 3
    assert hopeless.items.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("lists", [1, 4, 1024])
def test_ivf_that_looks_into_every_list_is_exact(lists):
    asked, passages, relevant = some_search(5, 40, 400)
    found = score_retrieval(asked, passages, relevant, setting=SearchSetting(lists=lists, probes=2000))
    for name in EXACT:
        assert found.figures[f"ivf_{name}"] == pytest.approx(found.figures[name])
    assert found.details["lists"] == min(lists, 400 // 39) == found.details["probes"]


def test_ivf_that_looks_into_one_list_finds_less_and_the_same_every_time():
    asked, passages, _ = some_search(6, 60, 800)
    unit = passages / np.linalg.norm(passages, axis=1, keepdims=True)
    relevant = [dict.fromkeys(np.argsort(-(unit @ query))[:10].tolist(), 1.0) for query in asked]
    setting = SearchSetting(probes=1)
    found = score_retrieval(asked, passages, relevant, setting=setting)
    assert found.figures["ivf_recall@10"] < found.figures["recall@10"] == 100
    again = score_retrieval(asked, passages, relevant, setting=setting)
    assert {name: again.figures[name] for name in EXACT} == {name: found.figures[name] for name in EXACT}
    assert again.figures["ivf_recall@10"] == found.figures["ivf_recall@10"]


def test_time_and_memory_are_told():
    asked, passages, relevant = some_search(7, 10, 500)
    figures = score_retrieval(asked, passages, relevant).figures
    assert figures["ms"] > 0
    assert figures["ivf_ms"] > 0
    assert figures["mb"] == pytest.approx(500 * 6 * 4 / 1e6, rel=0.05)
    assert figures["ivf_mb"] > figures["mb"]


@pytest.mark.parametrize("passages", [1, 2, 5])
def test_corpora_smaller_than_what_is_looked_at(passages):
    asked, corpus, relevant = some_search(8, 3, passages)
    found = score_retrieval(asked, corpus, relevant)
    assert found.figures["recall@10"] == 100.0
    assert found.figures["ivf_mrr@10"] == found.figures["mrr@10"]


def test_a_tiny_corpus_is_no_reason_for_a_warning(capfd):
    score_retrieval(*some_search(8, 3, 5))
    assert capfd.readouterr() == ("", "")


def test_bad_searches_are_refused():
    with pytest.raises(InputError, match=r"2 queries with 1 lists of passages, 3 in the corpus"):
        score_retrieval(np.ones((2, 2)), np.ones((3, 2)), [{0: 1.0}])
    with pytest.raises(InputError, match=r"0 in the corpus"):
        score_retrieval(np.ones((1, 2)), np.ones((0, 2)), [{0: 1.0}])
    for name in ("depth", "lists", "probes"):
        with pytest.raises(InputError, match=f"{name} is 0; it must be 1 or more"):
            SearchSetting(**{name: 0})


# From rows to a search


def rows_of(task: Task, rows: list[tuple]) -> TaskRows:
    left, right, *labels = (list(column) for column in zip(*rows, strict=True))
    return TaskRows(task, left, right, labels[0] if labels else [], [], {"test": np.arange(len(rows))}, 0)


TWINS = Task(name="twins", kind="retrieval", file="rows", columns={"label": "label"}, duplicates=True)
ASKED = Task(name="asked", kind="retrieval", file="rows")


def test_duplicates_are_found_both_ways_and_never_oneself():
    found = prepare(rows_of(TWINS, [("a", "b", 1.0), ("b", "c", 1.0), ("d", "a", 0.0), ("e", "e", 1.0)]))
    assert found.texts == {"": ["a", "b", "d", "e", "c"]}
    assert [found.passages[row] for row in found.queries] == ["a", "b", "c"]  # d has no duplicate, e only itself
    assert [set(own) for own in found.relevant] == [{1}, {0, 4}, {1}]
    assert found.unit_texts() == found.pick(np.arange(3)).unit_texts() == ["a", "b", "c"]
    assert found.pick(np.array([2])).unit_texts() == ["c", "b"]


def test_queries_search_passages_alone():
    found = prepare(rows_of(ASKED, [("q1", "p1"), ("q2", "p2"), ("q1", "p3"), ("p1", "p2")]))
    assert found.texts == {"query": ["q1", "q2", "p1"], "document": ["p1", "p2", "p3"]}
    assert found.relevant == [{0: 1.0, 2: 1.0}, {1: 1.0}, {1: 1.0}]
    assert found.queries.tolist() == [0, 1, 2]
    assert len(found.pick(np.array([1]))) == 1


def test_the_search_of_layers_and_the_evaluation_agree_on_what_is_relevant():
    rows = TaskRows(
        Task(name="asked", kind="retrieval", file="rows", columns={"label": "label"}),
        ["q1", "q2", "q1", "q3", "q1"],
        ["a", "b", "b", "c", "a"],
        [1.0, 0.0, 2.0, -1.0, 3.0],
        [],
        {"test": np.arange(5)},
        0,
    )
    queries, candidates, relevant = as_retrieval(rows)
    assert (queries, candidates, relevant) == (["q1"], ["a", "b", "c"], [{0: 3.0, 1: 2.0}])  # the last grade holds
    problem = prepare(rows)
    assert problem.texts == {"query": queries, "document": candidates}
    assert problem.relevant == relevant
    assert as_retrieval(rows_of(ASKED, [("q", "a")])) == (["q"], ["a"], [{0: 1.0}])


def test_a_task_without_relevant_rows_says_so():
    with pytest.raises(InputError, match=r"task 'twins' has no row with a label above 0; a query needs a relevant"):
        prepare(rows_of(TWINS, [("a", "b", 0.0)]))


@pytest.fixture
def search_file(tmp_path):
    """A user's own corpus: queries, passages, and a task file beside them."""
    random = np.random.default_rng(3)
    rows = [(" ".join(random.choice(WORDS, 3)), sentence) for sentence in SENTENCES]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("query", "passage"), *rows])
    text = '[[task]]\nname = "my-search"\nkind = "retrieval"\nfile = "rows.csv"\n'
    (tmp_path / "my.toml").write_text(text)
    return tmp_path / "my.toml"


def test_a_users_own_corpus_on_the_command_line(tiny_bert, search_file):
    found = call_json("evaluate", tiny_bert, "--tasks", search_file)
    model = LayerModel.load(tiny_bert, device="cpu")
    with (search_file.parent / "rows.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    asked, passages = (model.encode([row[place] for row in rows]) for place in (0, 1))
    expected = brute_force(asked, passages, [{row: 1.0} for row in range(len(rows))])
    figures = found["tasks"]["my-search"]
    assert figures["mrr@10"] == pytest.approx(100 * np.mean(expected["mrr"]), abs=1e-3)
    assert figures["ndcg@10"] == pytest.approx(100 * np.mean(expected["ndcg"]), abs=1e-3)
    assert found["average"] == figures["mrr@10"]
    stamp = found["protocol"]["stamps"]["my-search"]
    assert stamp["search"] == {"depth": 10, "lists": 1024, "probes": 16, "seed": 0}
    assert (stamp["kind"], stamp["split"], stamp["scored"]) == ("retrieval", "all rows", len(rows))


def test_another_depth_names_its_figures(tiny_layers, search_file):
    from layerwise.data import read_task_file

    (task,) = read_task_file(search_file)
    found = evaluate(LayerSubject(tiny_layers), [task], protocol=Protocol(search=SearchSetting(depth=3)))
    result = found.runs[0].results["my-search"]
    assert result.metric == "mrr@3"
    assert result.score == result.figures["mrr@3"]


def test_only_the_test_rows_ask(tmp_path, tiny_layers):
    rows = [{"query": f"{word} ?", "passage": word, "part": "a" if n < 6 else "b"} for n, word in enumerate(WORDS[:9])]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = Task(
        name="parts",
        kind="retrieval",
        file=str(tmp_path / "rows.jsonl"),
        columns={"split": "part"},
        splits={"train": ("a",), "test": ("b",)},
    )
    result = evaluate(LayerSubject(tiny_layers), [task]).runs[0].results["parts"]
    assert result.stamp["split"] == "test"
    assert (result.stamp["scored"], result.details["queries"], result.details["corpus"]) == (3, 3, 9)


class Prompted:
    """Says what it was asked by; queries and passages are one-hot vectors."""

    def __init__(self):
        self.asked = {}

    def _vectors(self, role, texts):
        self.asked[role] = list(texts)
        return np.array([np.eye(len(WORDS))[WORDS.index(text.split()[0])] for text in texts])

    def encode(self, texts, show_progress_bar=False):
        return self._vectors("", texts)

    def encode_query(self, texts, show_progress_bar=False):
        return self._vectors("query", texts)

    def encode_document(self, texts, show_progress_bar=False):
        return self._vectors("document", texts)


def test_queries_and_passages_are_encoded_as_such_and_duplicates_are_not(tmp_path):
    rows = [{"query": f"{word} now", "passage": f"{word} then", "label": 1} for word in WORDS[:4]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = str(tmp_path / "rows.jsonl")
    model = Prompted()
    result = evaluate(HostSubject(model), [Task(name="asked", kind="retrieval", file=path)]).runs[0].results["asked"]
    assert result.score == 100.0
    assert set(model.asked) == {"query", "document"}
    model = Prompted()
    twins = Task(name="twins", kind="retrieval", file=path, columns={"label": "label"}, duplicates=True)
    assert evaluate(HostSubject(model), [twins]).runs[0].results["twins"].score == 100.0
    assert set(model.asked) == {""}


def test_prompts_stand_before_queries_and_passages(tmp_path, tiny_layers):
    rows = [{"query": sentence, "passage": sentence[::-1]} for sentence in SENTENCES]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = Task(name="asked", kind="retrieval", file=str(tmp_path / "rows.jsonl"))
    model = LayerModel(tiny_layers.encoder, "2", prompts={"query": "who left: ", "document": "the old "})
    result = evaluate(LayerSubject(model), [task]).runs[0].results["asked"]
    asked = model.encode(["who left: " + row["query"] for row in rows])
    passages = model.encode(["the old " + row["passage"] for row in rows])
    expected = brute_force(asked, passages, [{row: 1.0} for row in range(len(rows))])
    assert result.figures["mrr@10"] == pytest.approx(100 * np.mean(expected["mrr"]), abs=1e-3)
    assert result.stamp["prompts"] == {"query": "who left: ", "document": "the old "}
    plain = evaluate(LayerSubject(LayerModel(tiny_layers.encoder, "2")), [task]).runs[0].results["asked"]
    assert plain.items.tolist() != result.items.tolist()
