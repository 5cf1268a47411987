"""What each word adds to the cosine of a pair, for the pairs that the explorer of the report shows first."""

import logging
from typing import Any

import numpy as np
from scipy.stats import rankdata

from layerwise.errors import LayerwiseError
from layerwise.explain import ExplainedText, explain_pair
from layerwise.measures import PairSimilarities
from layerwise.model import LayerModel
from layerwise.report.page import WordTerms

log = logging.getLogger(__name__)
_MOST_PAIRS = 40  # so that the page stays small
_LONGEST = 400  # letters of a sentence


def word_terms(model: LayerModel, pairs: PairSimilarities) -> dict[int, tuple[WordTerms, WordTerms]]:
    """Both sentences' words by the number of the pair; none where the model's cosine is no sum over words.

    The pairs are those whose cosines and grades disagree most; without grades, those where mix and last layer do.
    """
    if pairs.gold is None:
        surprise = np.abs(pairs.mix_similarities - pairs.layers[:, -1])
    else:
        surprise = np.abs(rankdata(pairs.gold) - rankdata(pairs.mix_similarities))
    terms = {}
    for number in np.argsort(-surprise, kind="stable").tolist():
        left, right = pairs.left[number], pairs.right[number]
        if max(len(left), len(right)) > _LONGEST:
            continue
        try:
            result = explain_pair(model, left, right)
        except LayerwiseError as error:
            log.info("The report has no words of pairs: %s", error)
            return {}
        terms[number] = (_terms(result.left, result.by_word.sum(1)), _terms(result.right, result.by_word.sum(0)))
        if len(terms) == _MOST_PAIRS:
            break
    return terms


def _terms(text: ExplainedText, sums: Any) -> WordTerms:
    return list(zip(text.words, sums.tolist(), strict=True))
