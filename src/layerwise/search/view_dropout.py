"""Similar pairs by dropout for a search of views: the same text in two passes, each with its own dropout.

Dropout hardly changes some views, which then separate well whatever they encode. So the metric only admits sets that
are no worse than the last layer by alignment and uniformity.
"""

from collections.abc import Sequence

import numpy as np
import torch

from layerwise.encoder import Array, by_prompt
from layerwise.errors import InputError
from layerwise.mixes import Mean
from layerwise.search.alike import negative_rows
from layerwise.search.graded_pairs import GradedPairs
from layerwise.search.metrics import FEWEST_PAIRS, METRICS, Metric, check_seed
from layerwise.search.unlabelled import guarded_separation
from layerwise.search.view_run import TimedViews
from layerwise.texts import unique_texts

_PASSES = {"first": 1, "second": 2}  # the name of a pass and its seed
_TOLERANCE = 1e-6  # of the guard, for rounding errors in single precision


def two_passes(texts: Sequence[str], *, seed: int = 0) -> tuple[list[str], list[str], list[float]]:
    """Each text as the input of both passes, then two different texts, with labels 1 and 0; for `DropoutViews`."""
    check_seed(seed)
    unique, _ = unique_texts(texts)
    if len(unique) < FEWEST_PAIRS:
        raise InputError(
            f"{len(unique)} sentences are too few to choose views by dropout; give at least {FEWEST_PAIRS}"
        )
    first, second = negative_rows(len(unique), np.random.default_rng(seed))
    left, right = ([f"{name} {text}" for text in unique] for name in _PASSES)
    labels = [1.0] * len(unique) + [0.0] * len(first)
    return left + [left[n] for n in first], right + [right[n] for n in second], labels


class DropoutViews(TimedViews):
    """Encodes the texts of `two_passes` with the dropout of their pass, without the cache.

    A call with the same texts gives the same views, whatever other prompts are encoded with them.
    """

    def _encode(self, texts: list[str], poolings: list[str]) -> dict[str, Array]:
        named = [text.split(" ", 1) for text in texts]
        shape = (len(texts), self.encoder.depth + 1, self.encoder.width)
        views = {pooling: np.empty(shape, dtype=np.float32) for pooling in poolings}
        for names in by_prompt(poolings).values():
            for of_pass, seed in _PASSES.items():
                rows = [row for row, (name, _) in enumerate(named) if name == of_pass]
                if not rows:
                    continue
                encoded = self.encoder.encode_layers(
                    [self.prompt + named[row][1] for row in rows],
                    names,
                    dropout_seed=seed,
                    show_progress_bar=self.show_progress_bar,
                )
                for name in names:
                    views[name][rows] = encoded[name]
        return views


def dropout_metric(
    pairs: tuple[list[str], list[str], list[float]], encode: DropoutViews, last: Mean, device: str | torch.device
) -> Metric:
    """The separation of sets that are no worse than the last layer by alignment and uniformity; NaN for others."""
    guard = GradedPairs.of(*pairs, metric=METRICS["align-uniform"], encode=encode, device=device)
    return guarded_separation(guard.score(last, np.arange(len(guard))) - _TOLERANCE)
