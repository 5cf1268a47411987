"""BERT-LC's transfer tasks: our batched regressions against scikit-learn's SAGA, and the paper's protocol on real data.

    python benchmarks/transfer.py --part speed --names cr            # the same folds by both, in one run
    python benchmarks/transfer.py --part search --device cuda        # the protocol: 1,092 sets x 100 folds a data set
    python benchmarks/transfer.py --part sizes --device cuda         # training rows cut to 1/256 (MR, SUBJ, TREC)
    python benchmarks/transfer.py ... --data FOLDER --model FOLDER --out FILE [--rows 1000]

Every data set is all its splits together, as the paper has it. scikit-learn runs a fold in each of as many processes
as there are cores; a time is that of one regression, and the ratio is of such times. SAGA is random: its accuracy with
another seed tells how much of a difference is noise. Results go to --out, or to benchmarks/results.
"""

import argparse
import json
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerwise.classify import logistic
from layerwise.evidence import Fold
from layerwise.mixes import Mean
from layerwise.search import ClassProtocol, ClassRows, ClassScorer, Search, Selection, Space, training_size_ablation
from measure import RESULTS, shared_folder

NAMES = {
    "speed": ("cr", "trec"),
    "search": ("mr", "cr", "subj", "trec", "mrpc"),
    "sizes": ("mr", "subj", "trec"),
}
SETS = (Mean.of(12), Mean.of(0), Mean.of(2, 5, 9, 12))  # compared fold by fold
GPU_SETS = 64  # solved together there, as the search does
Task = tuple[np.ndarray, np.ndarray | None, np.ndarray]  # views, views of second sentences, labels


def read_task(name: str, options: argparse.Namespace) -> Task:
    """A data set through all layers, mean of tokens."""
    import pyarrow.parquet as pq

    from layerwise import LayerEncoder

    folder = options.data or shared_folder() / "data" / "transfer"
    table = pq.read_table(folder / f"{name}.parquet")
    if options.rows and options.rows < len(table):
        table = table.take(np.random.default_rng(0).choice(len(table), options.rows, replace=False))
    columns = table.to_pydict()
    encoder = LayerEncoder(options.model or shared_folder() / "models" / "wiki-mlm-12x384", device=options.device)
    pairs = "sentence1" in columns
    texts = columns["sentence1"] + columns["sentence2"] if pairs else columns["text"]
    views = np.asarray(encoder.encode_layers(texts, cache=options.device == "cpu"))
    rows = len(table)
    return views[:rows], views[rows:] if pairs else None, np.array(columns["label"])


def seconds(call: Callable[[], Any], device: str) -> tuple[float, Any]:
    """How long a call takes, GPU work included, and what it gives."""
    began = time.perf_counter()
    result = call()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began, result


def saga_score(features: np.ndarray, labels: np.ndarray, fold: Fold, seed: int) -> float:
    """One regression as the paper has it."""
    import warnings

    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore")
    model = LogisticRegression(solver="saga", C=10, tol=0.01, max_iter=200, random_state=seed)
    return float(model.fit(features[fold[0]], labels[fold[0]]).score(features[fold[1]], labels[fold[1]]))


def by_scikit_learn(rows: ClassRows, folds: list, seed: int) -> np.ndarray:
    """Accuracies of the compared sets, a process for each core: (sets, folds)"""
    from joblib import Parallel, delayed

    features, labels = rows.features(SETS).cpu().numpy(), rows.labels.cpu().numpy()
    jobs = (delayed(saga_score)(own, labels, fold, seed) for own in features for fold in folds)
    return np.reshape(Parallel(n_jobs=os.cpu_count())(jobs), (len(SETS), len(folds)))


def by_us(solve: Callable[..., Any], rows: ClassRows, folds: list, sets: Sequence[Mean]) -> np.ndarray:
    """Accuracies of some sets by a batched solver, as the search gets them: (sets, folds)"""
    masks = np.zeros((2, len(folds), len(rows)), dtype=np.bool_)
    for number, fold in enumerate(folds):
        masks[0, number, fold.train] = masks[1, number, fold.dev] = True
    trained, scored = torch.as_tensor(masks, device=rows.labels.device)
    width = rows.features(sets[:1]).shape[-1]
    together = logistic.sets_at_once(len(rows.labels), width, len(folds), len(rows.classes), rows.labels.device)
    found = []
    for start in range(0, len(sets), together):
        features = rows.features(sets[start : start + together])
        fits = solve(features, rows.labels, trained)
        right = [((fits[i].predict(own) == rows.labels) & scored).sum(-1) for i, own in enumerate(features)]
        found.append((torch.stack(right) / scored.sum(-1)).cpu().numpy())
    return np.concatenate(found)


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Both solvers on the same folds."""
    found = {}
    for name in options.names:
        views, second, labels = read_task(name, options)
        rows = class_rows(views, second, labels, options)
        folds = [fold for folds in ClassProtocol().splits(len(labels)).folds for fold in folds]
        few = folds[:: len(folds) // options.folds][: options.folds]
        found[name] = compare(name, rows, folds if rows.labels.is_cuda else few, few, options)
    return found


def compare(name: str, rows: ClassRows, folds: list, few: list, options: argparse.Namespace) -> dict[str, Any]:
    """A few folds by scikit-learn and by us; the time of a GPU is that of many sets with all folds, as in a search."""
    together = GPU_SETS if rows.labels.is_cuda else len(SETS)
    many = [*SETS, *(Mean.of(b, a) for a in range(13) for b in range(a))][:together]
    by_scikit_learn(rows, few[:1], 0)  # start the processes
    ours = by_us(logistic.fit_like_saga, rows, few, SETS)
    times: dict[str, list[float]] = {"saga": [], "ours": []}
    runs = []
    for repeat in range(options.repeats):
        taken, saga = seconds(lambda repeat=repeat: by_scikit_learn(rows, few, repeat), "cpu")
        runs.append(saga)
        times["saga"].append(taken / saga.size)
        taken, every = seconds(lambda: by_us(logistic.fit_like_saga, rows, folds, many), options.device)
        times["ours"].append(taken / every.size)
        print(
            f"  {name} {repeat + 1}/{options.repeats}: {times['saga'][-1]:.3f} s, {times['ours'][-1]:.5f} s", flush=True
        )
    optimum_time, optimum = seconds(lambda: by_us(logistic.fit_optimum, rows, few, SETS), options.device)
    saga, again = runs[0], by_scikit_learn(rows, few, options.repeats)
    return {
        "rows": len(rows.labels),
        "folds_compared": len(few),
        "sets_compared": [mix.layers for mix in SETS],
        "ours_together": [len(many), len(folds)],
        "seconds_a_regression": times | {"optimum": optimum_time / optimum.size},
        "ratio": float(np.median(np.array(times["saga"]) / times["ours"])),
        "accuracy": {
            "saga": means(saga),
            "saga, other seed": means(again),
            "ours": means(ours),
            "optimum": means(optimum),
        },
        "points_above_saga": {
            "ours": points(ours, saga),
            "optimum": points(optimum, saga),
            "other seed": points(again, saga),
        },
        "points_apart_by_fold": {
            "ours": apart(ours, saga),
            "optimum": apart(optimum, saga),
            "other seed": apart(again, saga),
        },
    }


def means(scores: np.ndarray) -> list[float]:
    """Accuracy x 100 by set."""
    return [round(float(100 * value), 2) for value in scores.mean(1)]


def points(scores: np.ndarray, reference: np.ndarray) -> list[float]:
    """Mean difference of the folds, by set."""
    return [round(float(100 * value), 3) for value in (scores - reference).mean(1)]


def apart(scores: np.ndarray, reference: np.ndarray) -> float:
    """How far a fold's accuracies are apart in the mean."""
    return round(float(100 * abs(scores - reference).mean()), 3)


def class_rows(
    views: np.ndarray, second: np.ndarray | None, labels: np.ndarray, options: argparse.Namespace
) -> ClassRows:
    """The rows on the device that searches."""
    return ClassRows.of({"mean": views}, labels, None if second is None else {"mean": second}, options.device)


def selected(scorer: ClassScorer) -> Selection:
    """What a scorer chooses; it is computed here."""
    return Search().fit_scorer(scorer).selection_


def search(options: argparse.Namespace) -> dict[str, Any]:
    """The whole protocol."""
    found = {}
    for name in options.names:
        reading, task = seconds(lambda name=name: read_task(name, options), options.device)
        rows, protocol = class_rows(*task, options), ClassProtocol()
        space = Space(largest=options.largest)
        scorer = ClassScorer(rows, protocol.splits(len(rows)), protocol, space, progress=counter(name))
        taken, selection = seconds(lambda scorer=scorer: selected(scorer), options.device)
        found[name] = figures_of(selection, protocol) | {
            "views_seconds": reading,
            "search_seconds": taken,
            "all": len(rows),
            "layers": selection.chosen.layers,
            "sets": len(selection.table),
            "table": [{"layers": scored.layers, "dev": scored.dev} for scored in selection.table],
        }
        print(row(name, found[name], taken), flush=True)
    return found


def sizes(options: argparse.Namespace) -> dict[str, Any]:
    """The paper's figure 1."""
    found = {}
    for name in options.names:
        rows, protocol = class_rows(*read_task(name, options), options), ClassProtocol()
        scorers = training_size_ablation(rows, protocol=protocol, space=Space(largest=options.largest))
        for scorer in scorers.values():
            scorer.progress = counter(name)
        taken, selections = seconds(
            lambda scorers=scorers: {size: selected(scorer) for size, scorer in scorers.items()}, options.device
        )
        reports = {str(size): figures_of(selection, protocol) for size, selection in selections.items()}
        found[name] = {"seconds": taken, "sizes": reports}
        for report in reports.values():
            print(row(f"{name} {report['rows']}", report, taken), flush=True)
    return found


def figures_of(selection: Selection, protocol: ClassProtocol) -> dict[str, Any]:
    """Accuracies with their standard deviation over the splits, the gain, and what every split chose."""
    test = np.array([[one.best.test, one.last.test, one.best.test - one.last.test] for one in selection.choices])
    means, sds = test.mean(0), test.std(0, ddof=1) if len(test) > 1 else np.zeros(3)
    (mean, last, gain), (sd, last_sd, gain_sd) = means.tolist(), sds.tolist()
    chosen = Counter(layer for one in selection.choices for layer in one.best.layers)
    return {
        "mean": mean,
        "sd": sd,
        "last_mean": last,
        "last_sd": last_sd,
        "gain": gain,
        "gain_sd": gain_sd,
        "interval": vars(selection.gain),
        "error_reduction": gain / (1 - last) if last < 1 else 0.0,
        "times_chosen": dict(sorted(chosen.items())),
        "rows": selection.n_choosing,
        "splits": [
            {
                "layers": one.best.layers,
                "dev": one.best.dev,
                "test": one.best.test,
                "last_dev": one.last.dev,
                "last_test": one.last.test,
            }
            for one in selection.choices
        ],
        "protocol": vars(protocol),
    }


def counter(name: str) -> Callable[[int], None]:
    """Prints how far a search is, twice a minute."""
    state = {"done": 0, "said": time.monotonic()}

    def count(sets: int) -> None:
        state["done"] += sets
        if time.monotonic() - state["said"] > 30:
            state["said"] = time.monotonic()
            print(f"  {name}: {state['done']} sets", flush=True)

    return count


def row(name: str, report: dict[str, Any], taken: float) -> str:
    """A line of the table."""
    columns = (("last_mean", "last_sd"), ("mean", "sd"), ("gain", "gain_sd"))
    last, chosen, gain = (f"{100 * report[mean]:5.2f} ± {100 * report[sd]:4.2f}" for mean, sd in columns)
    fewer = f"{100 * report['error_reduction']:5.2f} % fewer errors"
    return f"{name:12} last {last}   LC {chosen}   gain {gain}   {fewer}   {taken:6.1f} s"


def summary(part: str, found: dict[str, Any]) -> str:
    """The table, last."""
    if part == "speed":
        return "\n".join(
            f"{name:6} ratio {one['ratio']:6.1f}, accuracy {one['accuracy']}, above SAGA {one['points_above_saga']}"
            for name, one in found.items()
        )
    names = ("mean", "last_mean", "gain", "error_reduction", "search_seconds")
    if part == "search":
        return "\n".join(
            f"{name:6}" + "".join(f" {key} {one[key]:.4f}" for key in names) for name, one in found.items()
        )
    return "\n".join(
        f"{name:6} 1/{round(1 / float(size)):<4} last {one['last_mean']:.4f}  LC {one['mean']:.4f}"
        for name, sizes in found.items()
        for size, one in sizes["sizes"].items()
    )


def as_json(result: dict[str, Any]) -> str:
    """Indented for people, but each long table of sets on one line."""
    text = json.dumps(result, indent=1) + "\n"
    return re.sub(r'(?<="table": )\[.*?\n   \]', lambda table: re.sub(r"\s+", "", table[0]), text, flags=re.DOTALL)


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=NAMES, required=True)
    parser.add_argument("--names", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, help="the folder of mr.parquet and the others")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=int, help="only so many random rows of a data set")
    parser.add_argument("--folds", type=int, default=20, help="that scikit-learn solves (speed)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--largest", type=int, default=4, help="the most layers in a set (search, sizes)")
    parser.add_argument("--tf32", action="store_true", help="let the GPU round factors to 10 bits")
    options = parser.parse_args()
    options.names = options.names or NAMES[options.part]
    torch.backends.cuda.matmul.allow_tf32 = options.tf32
    found = {"speed": speed, "search": search, "sizes": sizes}[options.part](options)
    result = {
        "what": (__doc__ or "").splitlines()[0],
        "part": options.part,
        "machine": {
            "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.machine(),
            "cores": os.cpu_count(),
            "tf32": options.tf32,
            **{name: version(name) for name in ("torch", "scikit-learn", "numpy")},
        },
        "rows_at_most": options.rows,
        "results": found,
    }
    out = options.out or RESULTS / f"transfer_{options.part}.json"
    out.write_text(as_json(result), encoding="utf-8")
    print(summary(options.part, found))


if __name__ == "__main__":
    main()
