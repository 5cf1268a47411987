"""Is the verdict of a search honest? Hundreds of draws of a population, whose truth is known from the rest of it.

    python benchmarks/verdict.py views FOLDER [--models default]               # encode each population, once
    python benchmarks/verdict.py draws FOLDER [--only stsb,sst2] [--draws 200]  # searches of draws of them

A population is thousands of pairs, queries or rows of one of the kinds in `POPULATIONS`. Some are drawn and searched as
`layerwise search` does; sentences that repeat go together, as they do there. The true gain of what a split chose is its
gain over the last layer on all units that were not drawn; a classifier of classes is trained on the rows that chose in
the split. Counted are: how often the 95 % interval covers the true gain, how often layers are recommended that are no
better in truth (false), how often truly better ones are not (missed), and the true gain of what is used, against that
of always using the best found. How often other values of `SPREAD` would cover the truth of several splits is counted
beside it. Rows of the same population, size and splits are replaced in the result, others stay; each is written when
it is finished. `rows` of the result are of an earlier protocol (drawn with replacement, and all units are the truth),
with more models.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from layerwise.evidence import connected_groups, draw_splits
from layerwise.evidence.gain import SPREAD
from layerwise.mixes import Mix
from layerwise.search import (
    ClassProtocol,
    ClassRows,
    ClassScorer,
    RetrievalMetric,
    Search,
    Selection,
    SetScorer,
    Space,
    as_metric,
)
from layerwise.search.problems import PairProblem, SetProblem
from layerwise.search.retrieval import RetrievalProblem
from layerwise.search.sets import weights_of
from layerwise.search.sources import PairGrams
from layerwise.search.spaces import membership
from measure import RESULTS, shared_folder

DRAWS, RESAMPLES = 200, 1000
SPREADS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5)
WIDTH = 96  # first numbers of the views of rows of classes: hundreds of searches by regressions in minutes
LARGEST_GROUP = 12  # pairs that share sentences, of the populations of whole groups
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Of:
    """What a population is made of: the kind, a file below data/, the metric, the sizes and splits of its draws."""

    kind: str
    file: str
    metric: str
    sizes: tuple[int, ...]
    splits: tuple[int, ...] = (1, 5)
    most: int = 10_000


POPULATIONS = {
    "stsb": Of("pairs", "sts/stsb", "spearman", (100, 300), most=3000),
    "sick groups": Of("groups", "sts/sick", "spearman", (100, 300)),
    "sst2": Of("classes", "transfer/sst2_sentences", "accuracy", (200,), most=2500),
    "quora paraphrases": Of("queries", "train/quora_paraphrase_pairs", "ndcg@10", (100, 300), most=1500),
}


# --- populations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sets:
    """Pairs or queries, scored by sets of layers; `groups` are drawn as a whole."""

    problem: SetProblem
    of: Of
    texts: list[tuple[str, ...]]
    groups: Rows | None

    def __len__(self) -> int:
        return len(self.problem)

    def draw(self, random: np.random.Generator, size: int) -> Rows:
        """About `size` units without replacement: whole groups until there are that many."""
        if self.groups is None:
            return random.permutation(len(self))[:size]
        order = np.argsort(random.permutation(self.groups.max() + 1)[self.groups], kind="stable")
        ends = np.flatnonzero(np.diff(self.groups[order], append=-1)) + 1
        return order[: ends[np.searchsorted(ends, size)]]

    def search(self, rows: Rows, splits: int, seed: int, resamples: int) -> Selection:
        """Search the drawn units."""
        texts = [self.texts[row] for row in rows]
        unit = "queries" if self.of.kind == "queries" else "pairs"
        parts = draw_splits(len(rows), 0.5, splits, seed, texts=texts, unit=unit)
        scorer = SetScorer({"mean": self.problem.pick(rows)}, parts, self.of.metric, unit)
        return Search(n_resamples=resamples).fit_scorer(scorer).selection_

    def truth(self, rows: Rows, trained: Rows, mixes: list[Mix]) -> NDArray[np.float64]:  # noqa: ARG002 - as Classes
        """Scores of mixes on the units that were not drawn."""
        rest = self.problem.pick(np.setdiff1d(np.arange(len(self)), rows))
        return rest.scores(np.concatenate([weights_of(mix, rest.layers) for mix in mixes]))


@dataclass(frozen=True, eq=False)
class Classes:
    """Rows with classes, scored by logistic regressions."""

    views: NDArray[np.float32]
    labels: Rows

    def __len__(self) -> int:
        return len(self.labels)

    def draw(self, random: np.random.Generator, size: int) -> Rows:
        """Rows without replacement."""
        return random.permutation(len(self))[:size]

    def search(self, rows: Rows, splits: int, seed: int, resamples: int) -> Selection:
        """Search the drawn rows by nested folds, three a split, for the best of a few sets."""
        drawn = ClassRows.of({"mean": self.views[rows]}, self.labels[rows], device="cpu")
        protocol = ClassProtocol(outer=splits, inner=3, seed=seed)
        scorer = ClassScorer(drawn, protocol.splits(len(drawn)), protocol, Space.parse("up to 2; 4-6"))
        return Search(n_resamples=resamples).fit_scorer(scorer).selection_

    def truth(self, rows: Rows, trained: Rows, mixes: list[Mix]) -> NDArray[np.float64]:
        """Accuracies on the rows that were not drawn, of regressions on some of the drawn rows."""
        from sklearn.linear_model import LogisticRegression

        rest, scores = np.setdiff1d(np.arange(len(self)), rows), {}
        for mix in dict.fromkeys(mixes):
            features = self.views[:, list(mix.layers)].mean(1)
            model = LogisticRegression(solver="saga", C=10.0, tol=0.01, max_iter=200, random_state=0)
            model.fit(features[rows[trained]], self.labels[rows[trained]])
            scores[mix] = model.score(features[rest], self.labels[rest])
        return np.array([scores[mix] for mix in mixes])


@dataclass(frozen=True, eq=False)
class Tabled:
    """A problem whose score is a mean over units, from a table of every set's score on every unit: (sets, units)"""

    scans_fast: ClassVar[bool] = True
    starts: ClassVar[int] = 1
    is_mean: ClassVar[bool] = True

    layers: int
    scored: NDArray[np.float64]

    def __len__(self) -> int:
        return self.scored.shape[1]

    def scan(self, space: Space, **_: Any) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """Score every set of a space."""
        masks = np.concatenate(list(space.masks(self.layers, 4096)))
        return masks, self.scores(membership(masks, self.layers))

    def scores(self, weights: NDArray[np.floating]) -> NDArray[np.float64]:
        """Scores of sets: (rows, layers) -> (rows,)"""
        return self._of(weights).mean(1)

    def pick(self, rows: Rows) -> "Tabled":
        """The problem on a subset of the units."""
        return replace(self, scored=self.scored[:, rows])

    def check(self) -> None:
        """Do nothing."""

    def redrawn(self, weights: NDArray[np.floating], draws: list[Rows]) -> NDArray[np.float64]:
        """Scores on resamples of the units."""
        scored = self._of(weights)
        return np.stack([scored[:, draw].mean(1) if len(draw) else np.full(len(scored), np.nan) for draw in draws])

    def _of(self, weights: NDArray[np.floating]) -> NDArray[np.float64]:
        return self.scored[(weights > 0) @ (1 << np.arange(self.layers)) - 1]


def make_views(name: str, folder: Path) -> None:
    """Encode every population with a model: Gram matrices of pairs, scores of queries, views of rows of classes."""
    from layerwise import LayerEncoder
    from layerwise.search import CachedViews

    encoder = LayerEncoder(name)
    encode = CachedViews(encoder)
    label = Path(name).name if name != "default" else "all-MiniLM-L6-v2"
    for task, of in POPULATIONS.items():
        path = folder / f"{label}--{task}.npz"
        if path.is_file():
            continue
        if of.kind == "queries":
            saved = encoded_queries(encode, of)
        elif of.kind == "classes":
            rows = read(of)
            saved = {"views": encode(rows["text"], ["mean"])["mean"], "labels": rows["label"]}
        else:
            rows = read(of)
            lefts, rights = rows["sentence1"], rows["sentence2"]
            left, right = encode.sides(lefts, rights, ["mean"])
            grams = PairGrams.of(left["mean"], right["mean"]).grams.numpy()
            gold = rows["score" if "score" in rows else "label"]
            saved = {"grams": grams.astype(np.float32), "gold": gold, "lefts": lefts, "rights": rights}
        np.savez(path, **saved)
        print(f"{path.name}: {encode.seconds:.0f} s", flush=True)


def read(of: Of) -> dict[str, list[Any]]:
    """The columns of a population's file; of groups, those of a few pairs, and of the others at most `of.most` rows."""
    table = pq.read_table(shared_folder() / "data" / f"{of.file}.parquet")
    rows = np.random.default_rng(0).permutation(table.num_rows)
    if of.kind == "groups":
        both = [table[name].to_pylist() for name in ("sentence1", "sentence2")]
        groups = connected_groups(table.num_rows, list(zip(*both, strict=True)))
        sizes = np.bincount(groups)[groups]
        rows = np.flatnonzero((sizes > 1) & (sizes <= LARGEST_GROUP))
    return table.take(np.sort(rows[: of.most])).to_pydict()


def encoded_queries(encode: Any, of: Of) -> dict[str, Any]:
    """The score of every set of layers on every query, whose passage is to be found among those of all."""
    rows = read(of)
    views = encode.sides(rows["anchor"], rows["positive"], ["mean"])
    metric = RetrievalMetric.parse(of.metric)
    problem = RetrievalProblem.of(*(side["mean"] for side in views), list(range(len(views[0]["mean"]))), metric)
    sets = membership(np.arange(1, 2**problem.layers, dtype=np.uint64), problem.layers)
    singles = [np.array([row]) for row in range(len(problem))]
    texts = {"lefts": rows["anchor"], "rights": rows["positive"]}
    return {"layers": problem.layers, "scored": problem.redrawn(sets, singles).T, **texts}


def load(path: Path, of: Of, shuffled: bool) -> Sets | Classes:
    """A population from what `make_views` wrote."""
    saved = np.load(path)
    if of.kind == "classes":
        return Classes(saved["views"][:, :, :WIDTH], saved["labels"])
    texts = list(zip(saved["lefts"].tolist(), saved["rights"].tolist(), strict=True))
    if of.kind == "queries":
        return Sets(Tabled(int(saved["layers"]), saved["scored"]), of, texts, None)
    gold = saved["gold"].astype(np.float64)
    gold = np.random.default_rng(0).permutation(gold) if shuffled else gold
    problem = PairProblem(PairGrams(torch.from_numpy(saved["grams"]).double()), gold, as_metric(of.metric))
    return Sets(problem, of, texts, connected_groups(len(gold), texts) if of.kind == "groups" else None)


# --- draws ------------------------------------------------------------------------------------------------------------


def simulate(population: Sets | Classes, size: int, splits: int, draws: int, resamples: int) -> dict[str, Any]:
    """One row: draws of so many units of a population, each searched."""
    random = np.random.default_rng(0)
    counts: dict[str, list[float]] = {name: [] for name in ("covered", "others", "recommended", "false", "missed")}
    used, found = [], []
    by_spread: dict[float, list[bool]] = {spread: [] for spread in SPREADS}
    for _ in range(draws):
        rows = population.draw(random, size)
        selection = population.search(rows, splits, int(random.integers(2**31)), resamples)
        gain, chosen, last = selection.gain, selection.chosen.mix, selection.last.mix
        truths = [
            float(-np.diff(population.truth(rows, choice.split.dev, [choice.best.mix, last]))[0])
            for choice in selection.choices
        ]
        true = float(-np.diff(population.truth(rows, np.arange(len(rows)), [chosen, last]))[0])
        error = float(np.mean(truths)) - gain.mean
        below, above = gain.low - gain.mean, gain.high - gain.mean
        for spread in SPREADS:
            by_spread[spread].append(below * spread / SPREAD <= error <= above * spread / SPREAD)
        is_used = selection.verdict.is_gain
        counts["covered"].append(below <= error <= above)
        counts["others"].append(any(choice.best.mix != last for choice in selection.choices))
        counts["recommended"].append(is_used)
        counts["false"].append(is_used and true <= 0)
        counts["missed"].append(not is_used and true > 0)
        used.append(true if is_used else 0.0)
        found.append(true)
    others = np.array(counts["others"], dtype=bool)
    shares = {name: float(np.mean(values)) for name, values in counts.items()}
    return {
        "population": len(population),
        "draws": draws,
        "resamples": resamples,
        "coverage": shares.pop("covered"),
        "coverage_of_others": _share(counts["covered"], others),
        "coverage_of_spreads": {str(spread): _share(hits, others) for spread, hits in by_spread.items()}
        if splits > 1
        else None,
        **shares,
        "gain_used": 100 * float(np.mean(used)),
        "gain_best_found": 100 * float(np.mean(found)),
        "best_found_worse": float(np.mean(np.array(found) < 0)),
    }


def _share(hits: list[Any], among: NDArray[np.bool_]) -> float | None:
    return float(np.mean(np.array(hits)[among])) if among.any() else None


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("kind", "model", "task", "shuffled", "size", "splits"))


def main() -> None:
    """Encode populations, or search draws of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("views", "draws"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*", default=["default"])
    parser.add_argument("--out", type=Path, default=RESULTS / "verdict.json")
    parser.add_argument("--only", default=",".join(POPULATIONS))
    parser.add_argument("--splits", help="such as 5, of those of each population; all without it")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    parser.add_argument("--shuffled", action="store_true", help="with the pairs' scores shuffled: nothing to be found")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.part == "views":
        for model in options.models:
            make_views(model, options.folder)
        return
    for path in sorted(options.folder.glob("*.npz")):
        model, task = path.stem.split("--")
        of = POPULATIONS[task]
        if task not in options.only.split(",") or (options.shuffled and of.kind not in ("pairs", "groups")):
            continue
        population = load(path, of, options.shuffled)
        wanted = set(map(int, options.splits.split(","))) if options.splits else set(of.splits)
        for size, splits in [(size, splits) for size in of.sizes for splits in of.splits if splits in wanted]:
            about = {"kind": of.kind, "model": model, "task": task, "metric": of.metric, "size": size}
            about |= {"shuffled": options.shuffled, "splits": splits}
            row = about | simulate(population, size, splits, options.draws, options.resamples)
            result = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
            known = {_key(one): one for one in result.get("kinds", [])} | {_key(row): row}
            result["kinds"] = [known[key] for key in sorted(known)]
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(*_key(row), {key: value for key, value in row.items() if key not in about}, flush=True)


if __name__ == "__main__":
    main()
