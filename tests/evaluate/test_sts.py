"""Graded pairs: our figures are SciPy's and sentence-transformers' on the same pairs; what means nothing is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from layerwise.data import load_task
from layerwise.errors import InputError
from layerwise.evaluate import HostSubject, LayerSubject, Protocol, evaluate
from layerwise.evaluate.subject import check_finite, problem_of
from layerwise.evidence import draw_splits
from layerwise.kinds import score_sts
from layerwise.metrics import correlations
from layerwise.model import LayerModel
from support.kind_rows import rows_of


def cosines(left: np.ndarray, right: np.ndarray) -> list[float]:
    """One pair at a time, as in a textbook."""
    return [float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) for a, b in zip(left, right, strict=True)]


def some_pairs(seed: int, pairs: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    random = np.random.default_rng(seed)
    left, right = random.normal(size=(2, pairs, 5))
    gold = random.integers(0, 6, pairs).astype(float)  # many ties
    return left, right, gold, [("a", "b", "b", "c", "c", "c")[row % 6] for row in range(pairs)]


def score_splits(left, right, gold, seeds):
    """The outcome of these vectors by the protocol "lc"."""
    texts = [[f"{side} {row}" for row in range(len(gold))] for side in ("left", "right")]
    problem = problem_of(rows_of("sts", *texts, gold), Protocol("lc", seeds=seeds))
    return problem.score({"": np.concatenate([left, right])})


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(24, 80))
def test_every_figure_is_scipys_over_all_pairs_and_over_subsets(seed, pairs):
    left, right, gold, subsets = some_pairs(seed, pairs)
    found = score_sts(left, right, gold, subsets)
    similar, names = np.array(cosines(left, right)), np.array(subsets)
    for metric, function in (("spearman", spearmanr), ("pearson", pearsonr)):
        parts = {name: 100 * function(similar[names == name], gold[names == name])[0] for name in "abc"}
        sizes = [int((names == name).sum()) for name in "abc"]
        weighted = sum(part * size for part, size in zip(parts.values(), sizes, strict=True)) / pairs
        assert found.figures[metric] == pytest.approx(100 * function(similar, gold)[0], abs=1e-9, nan_ok=True)
        assert found.figures[f"{metric}_mean"] == pytest.approx(sum(parts.values()) / 3, abs=1e-9, nan_ok=True)
        assert found.figures[f"{metric}_wmean"] == pytest.approx(weighted, abs=1e-9, nan_ok=True)
        for name, size in zip("abc", sizes, strict=True):
            assert found.details["subsets"][name][metric] == pytest.approx(parts[name], abs=1e-9, nan_ok=True)
            assert found.details["subsets"][name]["rows"] == size
    assert np.allclose(found.items, similar)
    assert found.gold.tolist() == gold.tolist()


def test_without_subsets_all_averages_are_the_same():
    left, right, gold, _ = some_pairs(1)
    found = score_sts(left, right, gold)
    for metric in ("spearman", "pearson"):
        assert found.figures[metric] == found.figures[f"{metric}_mean"] == found.figures[f"{metric}_wmean"]
    assert found.details == {}


def test_ties_of_similarities_take_average_ranks():
    left = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1], [1, 1]])
    right = np.array([[2.0, 0], [3, 0], [0, 1], [0, 5], [1, 0]])  # cosines 1, 1, 0, 1, 0.71
    gold = np.array([5.0, 3, 0, 3, 1])
    # ranks of the cosines 4, 4, 1, 4, 2 and of the grades 5, 3.5, 1, 3.5, 2
    expected = np.corrcoef([4, 4, 1, 4, 2], [5, 3.5, 1, 3.5, 2])[0, 1]
    assert score_sts(left, right, gold).figures["spearman"] == pytest.approx(100 * expected)


def test_perfect_order_is_100_and_its_reverse_minus_100():
    angles = np.linspace(0, 1.5, 9)
    left, right = np.tile([1.0, 0.0], (9, 1)), np.stack([np.cos(angles), np.sin(angles)], 1)
    assert score_sts(left, right, -angles).figures["spearman"] == pytest.approx(100)
    assert score_sts(left, right, angles).figures["spearman"] == pytest.approx(-100)


def test_constant_similarities_are_nan_and_so_are_constant_subsets():
    same = np.ones((6, 3))
    gold = np.array([0.0, 1, 2, 3, 4, 5])
    assert all(np.isnan(value) for value in score_sts(same, same, gold).figures.values())
    left, right, gold, _ = some_pairs(3, 6)
    gold = np.array([1.0, 1, 1, 0, 2, 3])
    found = score_sts(left, right, gold, ["flat"] * 3 + ["steep"] * 3)
    assert np.isfinite(found.figures["spearman"])
    assert np.isnan(found.figures["spearman_mean"])
    assert np.isnan(found.figures["spearman_wmean"])
    assert np.isnan(found.details["subsets"]["flat"]["spearman"])
    assert np.isfinite(found.details["subsets"]["steep"]["spearman"])


def test_bad_pairs_are_refused_in_one_line():
    left, right, gold, _ = some_pairs(4, 6)
    with pytest.raises(InputError, match=r"^6 pairs, 1 different scores: a correlation needs 2$"):
        score_sts(left, right, np.full(6, 3.0))
    with pytest.raises(InputError, match=r"^1 pairs, 1 different scores: a correlation needs 2$"):
        score_sts(left[:1], right[:1], gold[:1])
    with pytest.raises(InputError, match=r"^6 and 5 embeddings for 6 scores: the lengths differ$"):
        score_sts(left, right[:5], gold)


class Broken:
    """An encoder that gives NaN for one text."""

    def encode(self, texts, show_progress_bar=False):
        return np.array([[np.nan if text == "bad\ntext " + "x" * 90 else len(text), 1.0] for text in texts])


def test_nan_embeddings_are_one_line_that_names_the_text(pairs_task):
    texts = ["good", "bad\ntext " + "x" * 90, "good too"]
    told = r"1 of 3 embeddings have NaN.*the first that of 'bad\\ntext x+\.\.\.'; .* float32$"
    with pytest.raises(InputError, match=told) as seen:
        check_finite(Broken().encode(texts), texts, "task, model by mix")
    assert len(str(seen.value).splitlines()) == 1

    class Hollow:
        def encode(self, texts, show_progress_bar=False):
            return np.full((len(texts), 3), np.inf)

    first = load_task(pairs_task).left[0]
    with pytest.raises(InputError, match=f"pairs, Hollow by as it encodes: .* embeddings have NaN .* '{first}'"):
        evaluate(HostSubject(Hollow()), [pairs_task])


def test_lc_protocol_is_the_mean_over_the_pairs_that_report():
    left, right, gold, _ = some_pairs(5, 400)
    found = score_splits(left, right, gold, (3, 4))
    similar, expected = np.array(cosines(left, right)), []
    for seed in (3, 4):
        for dev, test in draw_splits(400, 350, 5, seed):
            assert sorted([*dev, *test]) == list(range(400))
            expected.append(100 * spearmanr(similar[test], gold[test])[0])
    assert found.figures["spearman"] == pytest.approx(np.mean(expected))
    assert found.sd["spearman"] == pytest.approx(np.std(expected, ddof=1))
    assert found.details == {"splits": 10, "dev_pairs": 350}


def test_lc_protocol_says_when_there_are_too_few_pairs():
    left, right, gold, _ = some_pairs(5, 300)
    with pytest.raises(InputError, match="350"):
        score_splits(left, right, gold, (0,))


def test_correlations_of_rounding_noise_are_nan():
    assert np.isnan(correlations(1 + 1e-15 * np.arange(5), np.arange(5.0))["spearman"])


# Against sentence-transformers' own evaluator, with its own encoding


@pytest.mark.parametrize("mix", ["last", "1,3 @ cls", "2 @ max"])
@pytest.mark.parametrize("split", ["test", "dev"])
def test_sentence_transformers_evaluator_agrees(tmp_path, tiny_layers, pairs_task, mix, split):
    LayerModel(tiny_layers.encoder, mix).save(tmp_path / "model")
    rows = load_task(pairs_task)
    rows = rows.pick(rows.splits[split])
    theirs = EmbeddingSimilarityEvaluator(rows.left, rows.right, [label / 5 for label in rows.labels])
    expected = theirs(SentenceTransformer(str(tmp_path / "model"), device="cpu"))
    ours = evaluate(LayerSubject(tiny_layers, [mix]), [pairs_task], protocol=Protocol(split=split))
    figures = ours.runs[0].results["pairs"].figures
    assert figures["spearman"] / 100 == pytest.approx(expected["spearman_cosine"], abs=1e-4)
    assert figures["pearson"] / 100 == pytest.approx(expected["pearson_cosine"], abs=1e-4)
