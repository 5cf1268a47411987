"""Equality with the installed mteb, which scores the same rows and vectors here, for every kind that it has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics.pairwise import paired_cosine_distances

from layerwise.data import TaskRows, find_tasks, load_task
from layerwise.kinds import Protocol, prepare
from support.kind_rows import ToyEncoder, rows_of, score
from support.mteb_tasks import as_mteb, import_mteb, mteb_scores, mteb_task
from support.slow_cases import most_slow, some_slow

pytest.importorskip("datasets")

LEFT, RIGHT = [f"left {n}" for n in range(120)], [f"right {n}" for n in range(120)]
QUERIES = [f"query {n // 10}" for n in range(120)]
IDS = [f"d{n}" for n in range(120)]
LEARNED = {"train": range(30), "test": range(30, 45)}
SLOW = {"few-shot", "clustering, sampled"}


def turns(classes: str, count: int) -> list[str]:
    return [classes[n % len(classes)] for n in range(count)]


CASES = {
    "sts": rows_of("sts", LEFT, RIGHT, np.random.default_rng(1).random(120).tolist()),
    "pair-classification": rows_of("pair-classification", LEFT, RIGHT, [float(n % 3 == 0) for n in range(120)]),
    "bitext": rows_of("bitext", LEFT, RIGHT),
    "clustering": rows_of("clustering", LEFT, labels=turns("abc", 120)),
    "clustering, two sets": rows_of("clustering", LEFT, labels=turns("abc", 120), subsets=turns("xy", 120)),
    "clustering, sampled": rows_of("clustering", LEFT + RIGHT, labels=turns("abc", 240), metric="v_measure_sampled"),
    "few-shot": rows_of("fewshot", LEFT[:45], labels=turns("abc", 45), splits=LEARNED),
    "few-shot, two classes": rows_of("fewshot", LEFT[:45], labels=turns("ab", 45), splits=LEARNED),
    "reranking": rows_of("reranking", QUERIES, RIGHT, [float(n % 5 == 0) for n in range(120)]),
    "retrieval": rows_of(
        "retrieval",
        QUERIES,
        RIGHT,
        [float(n % 3) for n in range(120)],
        right_ids=IDS,
        corpus=dict(zip(IDS, RIGHT, strict=True)),
        columns={"label": "grade"},
        metric="ndcg@10",
    ),
}


def related_vectors(rows: TaskRows) -> dict[str, np.ndarray]:
    """The two texts of a pair are near each other, as are the texts of a class."""
    random, shared = np.random.default_rng(0), rows.right or rows.labels
    apart = 2 if rows.right else 0.5  # classes overlap
    centres = {name: random.normal(scale=apart, size=6) for name in dict.fromkeys(shared)}
    texts = [*zip(rows.left, shared, strict=True), *zip(rows.right, rows.right, strict=True)]
    return {text: (centres[name] + random.normal(size=6)).astype(np.float32) for text, name in texts}


def fixed_encoder(vectors: Mapping[str, np.ndarray], similarity: str = "cosine") -> Any:
    """mteb's encoder of texts whose vectors are known; its similarities are computed by mteb."""
    import_mteb()
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction

    class Fixed(AbsEncoder):
        mteb_model_meta = ModelMeta.create_empty(
            overwrites={"name": "fixed/vectors", "revision": "1", "similarity_fn_name": ScoringFunction(similarity)}
        )

        def encode(self, inputs: Any, **_: Any) -> np.ndarray:
            return np.stack([vectors[text] for batch in inputs for text in batch["text"]])

    return Fixed()


def both(
    rows: TaskRows, vectors: Mapping[str, np.ndarray], *, similarity: str = "cosine"
) -> tuple[dict[str, float], dict[str, float]]:
    """Our figures by mteb's names, and mteb's."""
    ours = as_mteb(rows.task.kind, score(prepare(rows, Protocol()), vectors).figures)
    theirs = mteb_scores(fixed_encoder(vectors, similarity), mteb_task(rows))[rows.task.name]
    return ours, {name: theirs[name] for name in ours}


@pytest.mark.parametrize("name", some_slow(CASES, slow=SLOW))
def test_every_figure_is_mtebs(name):
    """On vectors of which no two similarities are equal; of rankings, after mteb's rounding."""
    ours, theirs = both(CASES[name], related_vectors(CASES[name]))
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_pairs_of_equal_similarity_have_mtebs_figures():
    """Whole numbers make many equal similarities, and cosines that only rounding parts; mteb and we round alike.

    `max_…` is also over the model's own similarity in mteb, which is the dot product here: a cosine by torch would part
    equal cosines in yet another way.
    """
    rows, random = CASES["pair-classification"], np.random.default_rng(2)
    vectors = {text: random.integers(-1, 3, size=4).astype(np.float32) for text in [*rows.left, *rows.right]}
    dots = [vectors[a] @ vectors[b] for a, b in zip(rows.left, rows.right, strict=True)]
    assert len(set(dots)) < 30
    ours, theirs = both(rows, vectors, similarity="dot")
    assert len(ours) == 15
    assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.slow
@pytest.mark.shared
def test_real_pairs_have_mtebs_figures(shared):
    """All 9,334 of Twitter's by counts of words, which are often equally similar, too."""
    rows = shared_rows("twitter-url", shared)
    ours, theirs = both(rows, toy_vectors(rows), similarity="dot")
    assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.shared
@pytest.mark.parametrize("name", most_slow(["semrel-eng", "semrel-amh", "biosses"], now={"semrel-amh", "biosses"}))
def test_real_relatedness_is_mtebs_where_no_cosines_are_equal(name, shared):
    """Without noise, mteb's Spearman is that of cosines rounded to float32, which parts equal ones; ours is not."""
    rows = shared_rows(name, shared)
    vectors = toy_vectors(rows)
    left, right = (np.stack([vectors[text] for text in side]) for side in (rows.left, rows.right))
    rounded = spearmanr(1 - paired_cosine_distances(left, right), rows.gold).statistic
    ours, theirs = both(rows, vectors)
    assert theirs["cosine_spearman"] == pytest.approx(rounded, abs=1e-6)
    assert ours["cosine_pearson"] == pytest.approx(theirs["cosine_pearson"], abs=1e-6)
    random = np.random.default_rng(0)
    noisy = {
        text: (vector + random.normal(scale=0.01, size=len(vector))).astype(np.float32)
        for text, vector in vectors.items()
    }
    ours, theirs = both(rows, noisy)
    assert ours == pytest.approx(theirs, abs=1e-6)


def shared_rows(name: str, shared: Path) -> TaskRows:
    (task,) = find_tasks([name])
    return load_task(task, shared / "data").of_role("test")


def toy_vectors(rows: TaskRows) -> dict[str, np.ndarray]:
    texts = list(dict.fromkeys([*rows.left, *rows.right]))
    return dict(zip(texts, ToyEncoder().encode(texts), strict=True))
