"""Equality with mteb 2.26 on real rows: what it returned for a toy encoder, figure by figure."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, precision_recall_curve
from sklearn.metrics.pairwise import paired_cosine_distances

from layerwise.data import find_tasks, load_task
from layerwise.evaluate import HostSubject, Protocol, score_sts
from layerwise.kinds import Outcome, prepare
from support.kind_rows import ToyEncoder, score
from support.slow_cases import most_slow

pytestmark = pytest.mark.shared

ROUNDED = 5  # digits that mteb leaves of NDCG, MAP, recall and precision of rankings
RANKED = {
    "ndcg@10": "ndcg_at_10",
    "map@1000": "map_at_1000",
    "mrr@10": "mrr_at_10",
    "recall@100": "recall_at_100",
    "precision@10": "precision_at_10",
}
CLASSES = {"accuracy": "accuracy", "f1_macro": "f1", "f1_weighted": "f1_weighted"}
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan", "max")
PAIRS = {f"{name}_ap": f"{name}_ap" for name in SIMILARITIES} | {
    "cosine_accuracy": "cosine_accuracy",
    "cosine_f1": "cosine_f1",
}
TIED = ("cosine_", "max_")  # cosines of counts of words are often equal, and rounding parts them, by the processor
BITEXT = {"f1": "f1", "accuracy": "accuracy", "precision": "precision"}
V_MEASURE = {"v_measure": "v_measure"}
CASES = {  # our task -> mteb's entry, and our figures -> mteb's
    "scifact": ("retrieval scifact", RANKED),
    "cranfield": ("retrieval cranfield", RANKED),
    "cisi": ("retrieval cisi", RANKED),
    "cacm": ("retrieval cacm", RANKED),
    "wikiqa": ("wikiqa test (clean)", {"map": "map_at_1000", "mrr": "mrr_at_1000", "ndcg@10": "ndcg_at_10"}),
    "twitter-url": ("twitter_url", PAIRS),
    "stackoverflow": ("stackoverflow/legacy", V_MEASURE),
    "arxiv-titles": ("arxiv_titles/legacy", V_MEASURE),
    "banking77-clusters": ("banking77 test/legacy", V_MEASURE),
    "agnews-clusters": ("agnews_test/legacy", V_MEASURE),
    "tatoeba-deu-eng": ("tatoeba/deu-eng", BITEXT),
    "tatoeba-spa-eng": ("tatoeba/spa-eng", BITEXT),
    "tatoeba-cmn-eng": ("tatoeba/cmn-eng", BITEXT),
    "banking77": ("banking77", CLASSES),
    "amazon-counterfactual": ("amazon_counterfactual_en/test", CLASSES | {"ap": "ap"}),
    "tweeteval-emotion": ("tweeteval_emotion", CLASSES),
    "clinc150": ("clinc150 (with oos)", CLASSES),
}
ONE_OF_EACH = {"cranfield", "wikiqa", "twitter-url", "arxiv-titles", "tatoeba-deu-eng", "amazon-counterfactual"}
ONE_OF_EACH |= {"tweeteval-emotion"}  # of more than two classes


@pytest.fixture(scope="module")
def reference(shared) -> dict[str, dict[str, float]]:
    path = shared / "data" / "mteb_types" / "mteb_reference_scores.json"
    return json.loads(path.read_text(encoding="utf-8"))


def toy_outcome(name: str, shared) -> Outcome:
    (task,) = find_tasks([name])
    subject = HostSubject(ToyEncoder())
    return next(iter(subject.outcomes(load_task(task, shared / "data"), Protocol(), subject.variants)))


@pytest.mark.parametrize("name", most_slow(CASES, now=ONE_OF_EACH))
def test_figures_are_mtebs(name, shared, reference):
    entry, figures = CASES[name]
    ours = toy_outcome(name, shared).figures
    for figure, theirs in figures.items():
        expected, value = reference[entry][theirs], ours[figure] / 100
        if "_at_" in theirs and not theirs.startswith("mrr"):
            value = round(value, ROUNDED)
        tolerance = 1e-3 if theirs.startswith(TIED) else 1e-6
        assert value == pytest.approx(expected, abs=tolerance), figure


def test_cosines_that_are_not_tied_give_scikit_learns_figures_on_every_processor(shared):
    """What mteb computes them with, on the pairs of Twitter; noise leaves no two cosines equal."""
    (task,) = find_tasks(["twitter-url"])
    rows = load_task(task, shared / "data").of_role("test")
    texts = list(dict.fromkeys(rows.texts))
    toy = ToyEncoder().encode(texts)
    noisy = (toy + np.random.default_rng(0).normal(scale=0.01, size=toy.shape)).astype(np.float32)
    vectors = dict(zip(texts, noisy, strict=True))
    figures = score(prepare(rows), vectors).figures
    left, right = (np.stack([vectors[text] for text in side]) for side in (rows.left, rows.right))
    cosines, labels = 1 - paired_cosine_distances(left, right), np.array(rows.labels, dtype=float)
    precision, recall, _ = precision_recall_curve(labels, cosines)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    assert figures["cosine_ap"] / 100 == pytest.approx(average_precision_score(labels, cosines), abs=1e-6)
    assert figures["cosine_f1"] / 100 == pytest.approx(f1.max(), abs=1e-6)
    right_above = np.cumsum(labels[np.argsort(-cosines)])
    accuracy = (2 * right_above - np.arange(1, len(labels) + 1) + len(labels) - labels.sum()).max() / len(labels)
    assert figures["cosine_accuracy"] / 100 == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("arxiv-titles", "arxiv_titles/v2"),
        ("banking77-clusters", "banking77 test/v2"),
        ("agnews-clusters", "agnews_test/v2"),
        ("stackoverflow", "stackoverflow/v2"),
    ],
)
def test_the_sampled_protocol_is_mtebs_newer_one(name, entry, shared, reference):
    (task,) = find_tasks([name])
    rows = load_task(task, shared / "data")
    problem = prepare(replace(rows, task=task.replaced(metric="v_measure_sampled")))
    outcome = problem.score({"": ToyEncoder().encode(problem.texts[""])})
    assert outcome.figures["v_measure_sampled"] / 100 == pytest.approx(reference[entry]["v_measure"], abs=1e-6)
    deviation = outcome.sd["v_measure_sampled"] / 100 * np.sqrt(0.9)  # mteb divides by ten, not by nine
    assert deviation == pytest.approx(reference[entry]["v_measure_std"], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "entry"), [("semrel-eng", "semrel2024/eng"), ("semrel-amh", "semrel2024/amh"), ("biosses", "biosses")]
)
def test_relatedness_is_mtebs_but_for_its_rounding(name, entry, shared, reference):
    """Counts of words make many equal cosines. mteb rounds them to float32 before it ranks them, which parts ties, and
    on each kind of processor in another way.
    """
    (task,) = find_tasks([name])
    rows = load_task(task, shared / "data").of_role("test")
    left, right = (ToyEncoder().encode(side) for side in (rows.left, rows.right))
    rounded = spearmanr(1 - paired_cosine_distances(left, right), rows.gold).statistic
    assert rounded == pytest.approx(reference[entry]["cosine_spearman"], abs=1e-3)
    ours = toy_outcome(name, shared).figures
    assert ours["pearson"] / 100 == pytest.approx(reference[entry]["cosine_pearson"], abs=1e-6)
    assert ours["spearman"] / 100 == pytest.approx(rounded, abs=1e-3)
    noise = np.random.default_rng(0).normal(scale=0.01, size=left.shape)  # which leaves no two cosines equal
    apart, other = (left + noise).astype(np.float32), right.astype(np.float32)
    expected = spearmanr(1 - paired_cosine_distances(apart, other), rows.gold).statistic
    assert score_sts(apart, other, rows.gold).figures["spearman"] / 100 == pytest.approx(expected, abs=1e-6)
