"""What each word adds to the cosine of a pair, for the pairs that the explorer of the report shows first."""

import logging
from typing import Any

import numpy as np
from scipy.stats import rankdata

from layerwise.errors import LayerwiseError
from layerwise.explain import ExplainedText, explain_pairs
from layerwise.measures import PairSimilarities
from layerwise.model import LayerModel
from layerwise.report.page import WordTerms

log = logging.getLogger(__name__)
_MOST_PAIRS = 24  # so that the page stays small, and the report fast
_LONGEST = 400  # letters of a sentence


def word_terms(model: LayerModel, pairs: PairSimilarities) -> dict[int, tuple[WordTerms, WordTerms]]:
    """Both sentences' words by the number of the pair; none where the model's cosine is no sum over words.

    The pairs are those whose cosines and grades disagree most; without grades, those where mix and last layer do.
    """
    if pairs.grades is None:
        surprise = np.abs(pairs.mix_similarities - pairs.layers[:, -1])
    else:
        surprise = np.abs(rankdata(pairs.grades) - rankdata(pairs.mix_similarities))
    order = np.argsort(-surprise, kind="stable").tolist()
    short = [number for number in order if max(len(pairs.left[number]), len(pairs.right[number])) <= _LONGEST]
    chosen = short[:_MOST_PAIRS]
    try:
        explained = explain_pairs(model, [(pairs.left[number], pairs.right[number]) for number in chosen])
        return {
            number: (_terms(one.left, one.by_word.sum(1)), _terms(one.right, one.by_word.sum(0)))
            for number, one in zip(chosen, explained, strict=True)
        }
    except LayerwiseError as error:
        log.info("The report has no words of pairs: %s", error)
        return {}


def _terms(text: ExplainedText, sums: Any) -> WordTerms:
    return list(zip(text.words, sums.tolist(), strict=True))
