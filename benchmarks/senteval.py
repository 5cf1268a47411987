"""SentEval's eight transfer tasks: our batched regressions against the plain scikit-learn loop, on the same vectors.

    python benchmarks/senteval.py                       # all tasks, both; scikit-learn takes an hour or more
    python benchmarks/senteval.py --names cr trec       # some; what the file already has is not measured again
    python benchmarks/senteval.py --ours                # only ours: minutes
    python benchmarks/senteval.py --outer 1             # scikit-learn on the first test fold only of tasks without
                                                        # splits (its time scaled up, accuracies compared on that fold)
    python benchmarks/senteval.py ... --data FOLDER --model FOLDER --out FILE

The vectors are the mean of the last layer's tokens, from the cache or encoded once, which is not in the times.
scikit-learn is `LogisticRegression(C=c, max_iter=1000)` with its own tolerance and all cores of the BLAS, a regression
after another, as SentEval's own loop is. Results are written task by task.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerwise import LayerEncoder
from layerwise.classify import GRIDS, ClassResult, evaluate_classes, pair_features
from layerwise.classify.plan import Plan, kfold_plan, split_plan
from layerwise.data import known_tasks, load_task
from layerwise.kinds import prepare
from measure import RESULTS, machine, shared_folder

NAMES = ("cr", "trec", "mrpc", "sst5", "subj", "mpqa", "mr", "sst2")
SEED = 1111
Task = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray] | None]  # features, labels, splits


def read_task(name: str, options: argparse.Namespace) -> Task:
    """A task's vectors."""
    rows = load_task(known_tasks()[name], options.data or shared_folder() / "data")
    encoder = LayerEncoder(options.model) if options.model else LayerEncoder()
    vectors = np.array(encoder.encode_layers(rows.texts, cache=True)[:, -1])
    left, right = prepare(rows).sides({"": vectors})
    features = left if right is None else pair_features(left, right)
    _, labels = np.unique(rows.labels, return_inverse=True)
    return features, labels, rows.splits if rows.task.splits else None


def plan_of(task: Task) -> Plan:
    """Which rows train, choose and test."""
    _, labels, splits = task
    if splits is None:
        return kfold_plan(labels, folds=10, inner=10, seed=SEED)
    return split_plan(labels, splits, inner=10, seed=SEED)


def fit(task: Task, train: np.ndarray, c: float) -> Any:
    """One regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c, max_iter=1000).fit(task[0][train], task[1][train])


def plain(task: Task, outer: int) -> tuple[list[float], list[float]]:
    """The loop: accuracy and C of the first test folds."""
    features, labels, _ = task
    plan, scores, chosen = plan_of(task), [], []
    for fold in plan.folds[:outer]:
        means = []
        for c in GRIDS["logistic"][plan.kind]:
            held = [fit(task, train, c).score(features[dev], labels[dev]) for train, dev in fold.inner]
            means.append(round(100 * np.mean(held), 2))
        chosen.append(GRIDS["logistic"][plan.kind][int(np.argmax(means))])
        scores.append(fit(task, fold.train, chosen[-1]).score(features[fold.test], labels[fold.test]))
        print(f"  fold {len(scores)}/{len(plan.folds)}: C {chosen[-1]}, {100 * scores[-1]:.2f}", flush=True)
    return scores, chosen


def all_fits(plan: Plan) -> Iterator[tuple[np.ndarray, float]]:
    """Rows and C of every regression that chooses."""
    for fold in plan.folds:
        for train, _ in fold.inner:
            for c in GRIDS["logistic"][plan.kind]:
                yield train, c


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """A task by both."""
    task = read_task(name, options)
    plan = plan_of(task)
    began = time.perf_counter()
    ours = evaluate_classes(task[0], task[1], splits=task[2])
    result = {"rows": plan.sizes, "regressions": len(list(all_fits(plan))) + len(plan.folds)}
    result |= {"ours": {"seconds": time.perf_counter() - began, **ours.as_dict()}}
    print(f"{name}: ours {100 * ours.accuracy:.2f} in {result['ours']['seconds']:.1f} s", flush=True)
    if not options.ours:
        result["scikit-learn"] = loop(task, ours, len(plan.folds), options.outer or len(plan.folds))
        result["ratio"] = result["scikit-learn"]["seconds"] / result["ours"]["seconds"]
    return result


def loop(task: Task, ours: ClassResult, folds: int, outer: int) -> dict[str, Any]:
    """scikit-learn's loop, on all test folds or some of them: its time is then scaled up."""
    began = time.perf_counter()
    scores, chosen = plain(task, outer)
    seconds = time.perf_counter() - began
    apart = 100 * (np.mean(ours.by_fold[: len(scores)]) - np.mean(scores))
    facts = {"seconds": seconds * folds / len(scores), "measured_seconds": seconds, "test_folds": len(scores)}
    facts |= {"accuracy": float(np.mean(scores)), "chosen": chosen, "points_apart": float(apart)}
    return facts | {"points_apart_at_the_optimum": 100 * (ours.by_fold[0] - at_optimum(task, ours.chosen[0]))}


def at_optimum(task: Task, c: float) -> float:
    """The first test fold by scikit-learn's Newton solver in float64: where its default solver halts too early."""
    from sklearn.linear_model import LogisticRegression

    features, labels, _ = task
    fold = plan_of(task).folds[0]
    exact = LogisticRegression(C=c, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    return float(
        exact.fit(features[fold.train].astype(float), labels[fold.train]).score(features[fold.test], labels[fold.test])
    )


def total(tasks: dict[str, Any]) -> dict[str, Any]:
    """Over the tasks that both did."""
    both = [task for task in tasks.values() if "scikit-learn" in task]
    seconds = {who: sum(task[who]["seconds"] for task in both) for who in ("ours", "scikit-learn")}
    return {"tasks": len(both), "seconds": seconds, "ratio": seconds["scikit-learn"] / (seconds["ours"] or 1)}


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--ours", action="store_true", help="leave scikit-learn out")
    parser.add_argument("--outer", type=int, help="only so many of scikit-learn's test folds")
    parser.add_argument("--data", type=Path, help="the data folder, that of transfer/mr.parquet")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "senteval_speed.json")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*failed to converge.*")
    found = json.loads(options.out.read_text())["tasks"] if options.out.exists() else {}
    for name in options.names:
        if name not in found or not (options.ours or "scikit-learn" in found[name]):
            found[name] = measure(name, options)
            versions = {**machine(), "scikit-learn": version("scikit-learn")}
            what = (__doc__ or "").splitlines()[0]
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
            threads = {"cores_allowed": cores, "threads": torch.get_num_threads()}
            result = {"what": what, "machine": versions | threads, "total": total(found), "tasks": found}
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(total(found)))


if __name__ == "__main__":
    main()
