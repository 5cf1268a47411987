"""The contributions of words and layers to the cosine, for the pairs shown first in the report's explorer."""

from typing import Any

import numpy as np
from scipy.stats import rankdata

from layerwise.errors import LayerwiseError
from layerwise.explain import MOST_VIEWS, ExplainedText, Explanation, explain_pairs
from layerwise.measures import PairSimilarities
from layerwise.model import LayerModel
from layerwise.report.page import Column, ExplainedPairs, PairTerms, Table, WordTerms, rounded_cosines

_MOST_PAIRS = 24  # so that the page stays small, and the report fast
_MOST_TERMS = 6  # of a table; all others are one row
_LONGEST = 400  # letters of a sentence


def explained_pairs(model: LayerModel, pairs: PairSimilarities) -> ExplainedPairs:
    """The terms of some pairs; none, with the reason, if the model's cosine is not a sum over words.

    The pairs are those whose cosines and grades disagree most; without grades, those where mix and last layer do.
    """
    cosines = rounded_cosines(pairs.mix_similarities)
    if pairs.grades is None:
        surprise = np.abs(np.subtract(cosines, rounded_cosines(pairs.layers[:, -1])))
    else:
        surprise = np.abs(rankdata(pairs.grades) - rankdata(cosines))
    order = np.argsort(-surprise, kind="stable").tolist()
    short = [number for number in order if max(len(pairs.left[number]), len(pairs.right[number])) <= _LONGEST]
    chosen = short[:_MOST_PAIRS]
    if not chosen:
        return ExplainedPairs(reason=f"Every pair has a sentence of more than {_LONGEST} letters")
    try:
        explained = explain_pairs(model, [(pairs.left[number], pairs.right[number]) for number in chosen])
        return ExplainedPairs({number: _pair_terms(item) for number, item in zip(chosen, explained, strict=True)})
    except LayerwiseError as error:
        return ExplainedPairs(reason=str(error))


def _pair_terms(explanation: Explanation) -> PairTerms:
    sums = explanation.by_word
    return PairTerms(
        left=_word_terms(explanation.left, sums.sum(1)),
        right=_word_terms(explanation.right, sums.sum(0)),
        by_word=_largest("word", explanation.largest_by_word(_MOST_TERMS)),
        by_layer=_by_layer(explanation),
        cosine=explanation.cosine,
        total=explanation.total,
        residual=explanation.residual,
    )


def _word_terms(text: ExplainedText, sums: Any) -> WordTerms:
    return list(zip(text.words, sums.tolist(), strict=True))


def _by_layer(explanation: Explanation) -> Table | None:
    """Return terms by pairs of layers, or the largest of many; None for a single layer, whose term is the cosine."""
    views = explanation.views
    if len(views) == 1:
        return None
    if len(views) > MOST_VIEWS:
        return _largest("layer", explanation.largest_by_view(_MOST_TERMS))
    columns = (Column("layer of A, of B:", "text"), *(Column(name, digits=4) for name in views))
    rows = zip(views, explanation.by_view.tolist(), strict=True)
    return Table(columns, tuple((name, *terms) for name, terms in rows))


def _largest(kind: str, rows: list[tuple[str, str, float]]) -> Table:
    columns = (Column(f"{kind} of A", "text"), Column(f"{kind} of B", "text"), Column("adds", digits=4))
    return Table(columns, tuple(rows))
