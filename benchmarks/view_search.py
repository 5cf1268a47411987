"""A search over hundreds of views: ours against a plain greedy search that embeds and correlates each set anew.

    python benchmarks/view_search.py [--repeats 3]      # 350 views (14 poolings x 25 layers) x 350 pairs, made up

Both take up to 8 views one by one and must choose the same; "the whole search" is what `layerwise search --prompts`
does on them: a beam of 8, then 30 resamples that choose again.
"""

import argparse

import numpy as np
import torch
from scipy.stats import spearmanr

from measure import interleaved, medians, paired_ratio, write_result

POOLINGS, LAYERS, PAIRS, WIDTH, MOST = 14, 25, 350, 576, 8


def made_up_views() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of length 1, (pairs, views, width) of either side, each pair the more alike the higher its noisy score."""
    random = np.random.default_rng(0)
    gold = random.uniform(0, 5, PAIRS)
    meaning = random.standard_normal((PAIRS, WIDTH))
    apart = (1.2 - gold / 5)[:, None]
    other = meaning + apart * random.standard_normal((PAIRS, WIDTH))
    sides = []
    for side in (meaning, other):
        noise = random.standard_normal((PAIRS, POOLINGS * LAYERS, WIDTH), dtype=np.float32)
        views = side[:, None].astype(np.float32) + 2 * noise
        sides.append(views / np.linalg.norm(views, axis=2, keepdims=True))
    return sides[0], sides[1], gold


def plain_greedy(left: np.ndarray, right: np.ndarray, gold: np.ndarray) -> tuple[int, ...]:
    """Add the view that helps most, as long as one does: every set is summed and correlated anew."""
    chosen: list[int] = []
    best = -1.0
    total = [np.zeros((PAIRS, WIDTH), dtype=np.float32) for _ in range(2)]
    while len(chosen) < MOST:
        scores = {}
        for view in set(range(left.shape[1])) - set(chosen):
            a, b = total[0] + left[:, view], total[1] + right[:, view]
            cosine = (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
            scores[view] = spearmanr(cosine, gold).statistic
        view = max(scores, key=scores.__getitem__)
        if scores[view] <= best:
            break
        best = scores[view]
        chosen.append(view)
        total = [total[0] + left[:, view], total[1] + right[:, view]]
    return tuple(sorted(chosen))


def our_greedy(left: np.ndarray, right: np.ndarray, gold: np.ndarray) -> tuple[int, ...]:
    """The same by matrix products."""
    from layerwise.search import as_metric
    from layerwise.search.pair_views import PairViews
    from layerwise.search.view_beam import beam_search_views

    views = PairViews(torch.from_numpy(left), torch.from_numpy(right))
    results = beam_search_views(views, as_metric("spearman")(gold, torch.device("cpu")), max_views=MOST, width=1)
    return max(results, key=lambda views: (results[views], -len(views)))


def whole_search(left: np.ndarray, right: np.ndarray, gold: np.ndarray) -> object:
    """A search of views with all that it does; every pair chooses."""
    from layerwise.encoder import parse_pooling
    from layerwise.search import Prices, Search, ViewScorer, as_metric
    from layerwise.search.graded_pairs import GradedPairs
    from layerwise.search.unlabelled import no_splits
    from layerwise.search.views import ViewOptions

    texts = [*(f"a{n}" for n in range(PAIRS)), *(f"b{n}" for n in range(PAIRS))]
    place = {text: number for number, text in enumerate(texts)}
    names = [str(parse_pooling(f'mean in "{"x" * n} {{text}}"')) for n in range(1, POOLINGS + 1)]
    known = [*names, "mean"]  # the last layer that it is compared with
    views = np.concatenate([left, right]).reshape(2 * PAIRS, POOLINGS, LAYERS, WIDTH)
    views = np.concatenate([views, views[:, :1]], axis=1)

    def encode(some: list[str], poolings: list[str]) -> dict[str, np.ndarray]:
        rows = [place[text] for text in some]
        return {name: views[rows, known.index(name)] for name in poolings}

    pairs = GradedPairs.of(texts[:PAIRS], texts[PAIRS:], gold, metric=as_metric("spearman"), encode=encode)
    scorer = ViewScorer(pairs, no_splits(PAIRS), ViewOptions(tuple(names)), Prices(LAYERS - 1))
    return Search().fit_scorer(scorer).selection_


def main() -> None:
    """Measure in turn, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    data = made_up_views()
    plain, ours = plain_greedy(*data), our_greedy(*data)
    if plain != ours:
        raise SystemExit(f"the searches differ: {plain} and {ours}")
    calls = {
        "plain greedy": lambda: plain_greedy(*data),
        "our greedy": lambda: our_greedy(*data),
        "the whole search": lambda: whole_search(*data),
    }
    taken = interleaved(calls, options.repeats)
    write_result(
        "view_search",
        {
            "what": f"{POOLINGS * LAYERS} views x {PAIRS} pairs x {WIDTH}, up to {MOST} views, made up",
            "chosen": len(ours),
            "seconds": taken,
            "medians": medians(taken),
            "times_faster": paired_ratio(taken, "plain greedy", "our greedy"),
            "whole_search_to_plain_greedy": paired_ratio(taken, "the whole search", "plain greedy"),
        },
    )


if __name__ == "__main__":
    main()
