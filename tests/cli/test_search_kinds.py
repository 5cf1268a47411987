"""`layerwise search` for clustering, reranking and other kinds, and for several tasks at once; one-line errors."""

import numpy as np
import pytest

from layerwise import LayerModel
from support.commands import assert_one_line, call, call_json, run_main
from support.row_files import write
from support.slow_cases import one_in
from support.tiny import DEPTH, WORDS

pytestmark = pytest.mark.usefixtures("tiny_models_loaded_once")

KINDS = {
    "topics": 'kind = "clustering"\nfile = "topics.csv"',
    "answers": 'kind = "reranking"\nfile = "answers.csv"',
    "library": 'kind = "retrieval"\nfile = "judged.csv"\ncorpus = { file = "books.csv" }\nmetric = "ndcg@10"',
    "classes": 'kind = "fewshot"\nfile = "topics.csv"\nsplits = { train = "train", dev = "dev", test = "test" }',
    "same": 'kind = "pair-classification"\nfile = "pairs.csv"',
    "mined": 'kind = "bitext"\nfile = "mined.csv"',
    "graded": 'kind = "sts"\nfile = "graded.csv"',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, random = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 5)) for _ in range(90)]
    parts = ["train"] * 30 + ["dev"] * 30 + ["test"] * 30
    labels = ["ab"[text.split()[0] < WORDS[len(WORDS) // 2]] for text in texts]
    topics = zip(texts, labels, parts, strict=True)
    write(path / "topics.csv", [{"text": text, "label": label, "split": part} for text, label, part in topics])
    write(path / "answers.csv", [{"query": texts[n // 4], "text": texts[n], "label": n % 2} for n in range(80)])
    write(path / "books.csv", [{"id": n, "text": text} for n, text in enumerate(texts)])
    write(path / "judged.csv", [{"query": texts[n][:-4], "passage": n} for n in range(20)])
    pairs = [
        {"sentence1": texts[n], "sentence2": texts[-n - 1], "label": n % 2, "score": n % 7 + n / 90} for n in range(40)
    ]
    write(path / "pairs.csv", pairs)
    for name in ("mined", "graded"):  # of other texts: rows that share a sentence with another task's are left out
        sides = [[" ".join(random.choice(WORDS, 6)) for _ in pairs] for _ in range(2)]
        others = [row | {"sentence1": a, "sentence2": b} for row, a, b in zip(pairs, *sides, strict=True)]
        write(path / f"{name}.csv", others)
    for name, text in KINDS.items():
        (path / f"{name}.toml").write_text(f'[[task]]\nname = "{name}"\n{text}\n')
    return path


@pytest.mark.parametrize("name", one_in(2, [name for name in KINDS if name != "graded"]))
def test_a_kind_by_its_metric_and_the_model_that_is_saved(tiny_bert, folder, tmp_path, name):
    """Half of the units choose among every set (or few: `classes` fits each); what is saved follows the verdict."""
    table, out = tmp_path / "table.csv", tmp_path / "model"
    space = ("--layers", "exactly 1") if name == "classes" else ()
    said = call_json("search", tiny_bert, folder / f"{name}.toml", *space, "--table", table, "--save", out)
    sets = DEPTH + 1 if space else 2 ** (DEPTH + 1) - 1
    assert said["candidates"] == f"{sets} sets"
    assert said["protocol"]["unit"] == {"answers": "queries", "library": "queries"}.get(
        name, "pairs" if name in ("same", "mined") else "rows"
    )
    assert said["protocol"]["choosing"] == {"topics": 45, "answers": 10, "library": 10, "classes": 30}.get(name, 20)
    assert said["gain"]["low"] <= said["gain"]["high"]
    loaded = LayerModel.load(out)
    assert str(loaded.mix) == said["verdict"]["use"]
    assert (loaded.mix.layers == (DEPTH,)) == (not said["verdict"]["reliable_gain"] or said["chosen"] == said["last"])
    assert len(table.read_text().splitlines()) == sets + 1


@pytest.mark.slow
def test_the_unseen_score_is_that_of_evaluate(tiny_bert, folder):
    """Test rows report where there are dev rows too: the score is what `evaluate` gives of the same layers."""
    said = call_json("search", tiny_bert, folder / "classes.toml", "--layers", "up to 2")
    for choice in ("chosen", "last"):
        scored = call_json("evaluate", tiny_bert, "--tasks", folder / "classes.toml", "--layers", said[choice]["mix"])
        assert said[choice]["test"] == pytest.approx(scored["tasks"]["classes"]["accuracy"] / 100)


def test_several_tasks_get_one_set(tiny_bert, folder, tmp_path):
    tasks = [folder / f"{name}.toml" for name in ("graded", "topics", "mined")]
    out, space = tmp_path / "model", ("--layers", "up to 2")
    said = call_json("search", tiny_bert, *tasks, "--weights", "2,1,1", *space, "--save", out)
    assert [task["weight"] for task in said["tasks"]["tasks"]] == [0.5, 0.25, 0.25]
    choices = {choice["name"]: choice for choice in said["tasks"]["choices"]}
    assert list(choices) == ["graded", "topics", "mined", "all tasks", "last layer"]
    for number, name in enumerate(("graded", "topics", "mined")):
        assert choices[name]["regrets"][number] == 0
        alone = call_json("search", tiny_bert, tasks[number], *space)
        assert choices[name]["mix"] == alone["chosen"]["mix"]
        assert choices[name]["unseen"][number] == pytest.approx(alone["chosen"]["test"])
    for choice in choices.values():
        own = [choices[name]["unseen"][number] for number, name in enumerate(("graded", "topics", "mined"))]
        assert choice["regrets"] == pytest.approx(np.array(own) - choice["unseen"])
        assert choice["mean"] == pytest.approx(np.dot([0.5, 0.25, 0.25], choice["unseen"]))
    joint = choices["all tasks"]
    assert said["chosen"]["test"] == pytest.approx(joint["mean"])
    assert said["gain"]["low"] <= said["gain"]["mean"] <= said["gain"]["high"]  # clusters of ten starts; scores, of one
    assert str(LayerModel.load(out).mix) == said["verdict"]["use"]
    told = call("search", tiny_bert, *tasks, "--weights", "2,1,1", *space)
    assert "Regret: what a choice loses against the task's own" in told
    assert "graded: spearman, weight 0.50; 20 pairs choose, 20 others report." in told
    nothing_random = call_json("search", tiny_bert, tasks[0], tasks[2], *space)
    difference = nothing_random["chosen"]["test"] - nothing_random["last"]["test"]
    assert nothing_random["gain"]["mean"] == pytest.approx(difference)


@pytest.mark.parametrize(
    ("tasks", "options", "message"),
    [
        (("topics",), ("--head",), "--head is for graded pairs, but task 'topics' is of clustering"),
        (("topics",), ("--prompts", "auto"), "--prompts is for graded pairs, but task 'topics' is of clustering"),
        (("topics",), ("--metric", "v_measure_sampled"), "v_measure_sampled cannot be resampled"),
        (("topics",), ("--weights", "1"), "--weights is for several tasks; give 2 or more"),
        (("topics", "same"), ("--weights", "1,2,3"), "3 weights for 2 tasks (topics, same)"),
        (("topics", "same"), ("--weights", "1,x"), "--weights '1,x': give numbers with commas between"),
        (("topics", "same"), ("--weights", "1,0"), "they must be above 0"),
        (("topics", "topics"), (), "task 'topics' is given twice"),
        (("topics", "same"), ("--metric", "map"), "--metric is for one task"),
        (("answers",), ("--limit", "6"), "answers: 6 queries, 3 of which choose, are too few"),
        (("topics",), ("--layers", "9"), "layer 9"),
    ],
)
def test_a_mistake_is_one_line(tiny_bert, folder, monkeypatch, capfd, tasks, options, message):
    paths = [folder / f"{name}.toml" for name in tasks]
    assert_one_line(*run_main(monkeypatch, capfd, "search", tiny_bert, *paths, *options), message)


def test_layer_weights_are_for_pairs(tiny_bert, folder, monkeypatch, capfd):
    ended = run_main(monkeypatch, capfd, "search", tiny_bert, folder / "mined.toml", "--method", "weights")
    assert_one_line(*ended, "layer weights are searched for pairs with scores or labels")
