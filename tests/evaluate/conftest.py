"""Small tasks of every kind, for tests of our evaluation and of mteb's on the same rows."""

import numpy as np
import pytest

from layerwise.data import Task
from support.row_files import write
from support.tiny import WORDS


@pytest.fixture(scope="session")
def kind_tasks(tmp_path_factory) -> dict[str, Task]:
    """A small task of each kind that mteb has, but for graded pairs."""
    folder, random = tmp_path_factory.mktemp("kinds"), np.random.default_rng(3)

    def text(words: int = 4) -> str:
        return " ".join(random.choice(WORDS, words))

    classed = [{"text": text(), "label": "abc"[n % 3], "split": "train" if n < 60 else "test"} for n in range(90)]
    pairs = [
        {"sentence1": some, "sentence2": f"{some} {text(1)}", "label": n % 2} for n in range(40) for some in [text(5)]
    ]
    candidates = [{"query": f"{WORDS[n // 5]} cat", "text": text(), "label": int(n % 5 == 0)} for n in range(40)]
    corpus = [{"id": f"d{n}", "text": text(6)} for n in range(30)]
    judged = [{"query": f"{WORDS[n]} dog", "passage": f"d{n}", "grade": 1 + n % 3} for n in range(12)]
    for name, rows in (("classed", classed), ("pairs", pairs), ("candidates", candidates), ("judged", judged)):
        write(folder / f"{name}.csv", rows)
    write(folder / "corpus.csv", corpus)
    splits = {"train": "train", "test": "test"}
    declared = {
        "bitext": {"file": "pairs.csv"},
        "clustering": {"file": "classed.csv", "splits": {"test": "test"}},
        "fewshot": {"file": "classed.csv", "splits": splits},
        "pair-classification": {"file": "pairs.csv"},
        "reranking": {"file": "candidates.csv"},
        "retrieval": {
            "file": "judged.csv",
            "corpus": {"file": str(folder / "corpus.csv")},
            "columns": {"label": "grade"},
            "metric": "ndcg@10",
        },
    }
    return {
        kind: Task(name=f"my-{kind}", kind=kind, **values | {"file": str(folder / values["file"])})
        for kind, values in declared.items()
    }
