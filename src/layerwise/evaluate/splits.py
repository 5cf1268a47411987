"""BERT-LC's protocol for graded pairs: random pairs choose, the others report; a fixed mix is scored on the others."""

from collections.abc import Mapping, Sequence

import numpy as np

from layerwise.encoder import Array
from layerwise.evaluate.outcomes import Outcome
from layerwise.evaluate.pairs import Vectors, cosine
from layerwise.evaluate.sts import correlations
from layerwise.mixes import parse_mix
from layerwise.search import LayerSearch, random_splits

DEV_PAIRS, SPLITS = 350, 5


def score_splits(left: Vectors, right: Vectors, gold: Vectors, *, seeds: Sequence[int]) -> Outcome:
    """A mix that was chosen beforehand, on the pairs that report in each split: mean and deviation over the splits."""
    similarities = cosine(left, right)
    scores = []
    for seed in seeds:
        for _, test in random_splits(len(gold), DEV_PAIRS, SPLITS, seed):
            scores.append(correlations(similarities[test], gold[test]))
    return _outcome(scores, similarities, gold, {})


def search_splits(
    left: Mapping[str, Array], right: Mapping[str, Array], gold: Vectors, *, seeds: Sequence[int]
) -> Outcome:
    """The best layers of each split's 350 pairs, on its others. Views by token pooling: (pairs, layers + 1, width)."""
    scores, chosen = [], []
    for seed in seeds:
        search = LayerSearch(dev=DEV_PAIRS, splits=SPLITS, seed=seed).fit(left, right, gold)
        for (_, test), split in zip(search.parts_, search.report_.splits, strict=True):
            mix = parse_mix(split.mix)
            similarities = cosine(mix(left[mix.pooling][test]), mix(right[mix.pooling][test]))
            scores.append(correlations(similarities, gold[test]))
            chosen.append(str(mix))
    return _outcome(scores, np.empty(0), gold, {"chosen": chosen})


def _outcome(scores: list[dict[str, float]], items: Vectors, gold: Vectors, details: dict[str, list[str]]) -> Outcome:
    values = {name: [score[name] for score in scores] for name in scores[0]}
    return Outcome(
        {name: float(np.mean(of_splits)) for name, of_splits in values.items()},
        items=items,
        gold=gold if len(items) else np.empty(0),
        sd={name: float(np.std(of_splits, ddof=1)) for name, of_splits in values.items()},
        details={"splits": len(scores), "dev_pairs": DEV_PAIRS, **details},
    )
