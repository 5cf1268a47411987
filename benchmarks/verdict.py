"""Is the verdict of a search honest? Hundreds of draws of pairs, whose truth is known from all pairs.

    python benchmarks/verdict.py grams FOLDER MODEL...     # each model's Gram matrices of STS-B and SICK-R
    python benchmarks/verdict.py draws FOLDER [--splits 1,5] [--device cuda] [--out FILE]  # searches on draws of them

A set of thousands of pairs is the population; the true gain of a set of layers over the last layer is its gain on all
of them. 100, 300 or 1,000 pairs are drawn, each from the whole population (with replacement: a draw of an eighth
without it would lie nearer to the truth than a user's pairs do), and searched as `layerwise search` does. Counted are:
how often the 95 % interval covers the true gain of what was chosen, how often layers are recommended that are no
better in truth (false), how often truly better ones are not (missed), and the true gain of what is used, against that
of always using the best found. The same with shuffled grades, where nothing can be found. `--splits 5` is the paper's
protocol with halves; how often other values of `SPREAD` would cover the truth is counted beside it. Rows of the same
population, size and splits are replaced in the result, others stay; each is written when it is finished.
"""

import argparse
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import torch
from layerwise.search.choose import Choice
from layerwise.search.select import SPREAD, choose_by_splits, make_report, random_splits
from layerwise.search.verdict import Verdict

from layerwise.search.metrics import as_metric
from layerwise.search.problems import PairProblem
from layerwise.search.sources import PairGrams
from layerwise.search.spaces import Space

ROOT = Path(__file__).parents[1]
OUT = ROOT / "benchmarks" / "results" / "verdict.json"
TASKS = ("stsb", "sickr")
SIZES, DRAWS, RESAMPLES = (100, 300, 1000), 1000, 1000
SPREADS = (1.0, 1.05, 1.1, 1.15)


def main() -> None:
    """Make Gram matrices, or search on draws of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("grams", "draws"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--splits", default="5,1")
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    parser.add_argument("--tasks", default=",".join(TASKS), help="of the grams")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.part == "grams":
        for model in options.models:
            make_grams(model, options.folder, options.tasks.split(","))
        return
    files = sorted(options.folder.glob("*.npz"))
    jobs = [
        (str(file), size, shuffled, splits, options.draws, options.resamples, options.device)
        for size in sorted(map(int, options.sizes.split(",")), reverse=True)  # long ones first
        for file in files
        for shuffled in (False, True)
        for splits in map(int, options.splits.split(","))
    ]
    before = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.is_file() else []
    known = {_key(row): row for row in before}
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed(pool.submit(simulate, job) for job in jobs):
            row = done.result()
            known[_key(row)] = row
            result = {"metric": "spearman", "pooling": "mean", "rows": [known[key] for key in sorted(known)]}
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(*_key(row), row["coverage_of_others"], row["coverage_of_spreads"], flush=True)


def _key(row: dict) -> tuple:
    return tuple(row[name] for name in ("splits", "model", "task", "shuffled", "pairs"))


def make_grams(name: str, folder: Path, tasks: list[str]) -> None:
    """The Gram matrices of every pair's layers, mean of the tokens."""
    from layerwise import LayerModel
    from layerwise.data import find_tasks, load_task
    from layerwise.search import encode_sides

    model = LayerModel.load(name)
    for task in tasks:
        rows = load_task(find_tasks([task])[0])
        left, right = encode_sides(model.encoder, rows.left, rows.right, ["mean"], show_progress_bar=True)
        grams = PairGrams.of(left["mean"], right["mean"]).grams.numpy()
        label = Path(name).name if name != "default" else "all-MiniLM-L6-v2"
        np.savez(folder / f"{label}--{task}.npz", grams=grams.astype(np.float32), gold=np.asarray(rows.labels))


def simulate(job: tuple[str, int, bool, int, int, int, str]) -> dict:
    """One row: draws of so many pairs of a population, each searched."""
    torch.set_num_threads(1)
    file, size, shuffled, splits, draws, resamples, device = job
    saved = np.load(file)
    grams, gold = torch.from_numpy(saved["grams"]).double().to(device), saved["gold"].astype(np.float64)
    random = np.random.default_rng(0)
    gold = random.permutation(gold) if shuffled else gold
    whole = PairProblem(PairGrams(grams), gold, as_metric("spearman"))
    space, last = Space(), whole.layers - 1
    truths: dict[str, float] = {}

    def truth(choice: Choice, baseline: Choice) -> float:
        """The gain on the whole population."""
        for one in (choice, baseline):
            if str(one.mix) not in truths:
                truths[str(one.mix)] = one.on({"mean": whole})
        return truths[str(choice.mix)] - truths[str(baseline.mix)]

    covered, others, wrong, missed, recommended, used, found = [], [], [], [], [], [], []
    by_spread: dict[float, list[bool]] = {spread: [] for spread in SPREADS}
    for _ in range(draws):
        rows = random.choice(len(gold), size)
        problems = {"mean": whole.pick(rows)}
        parts = random_splits(size, 0.5, splits, int(random.integers(2**31)))
        choices, table = choose_by_splits(problems, space, "exhaustive", parts)
        report = make_report(problems, choices, seed=0, resamples=resamples)
        best, baseline = Choice(table.best.mix, np.nan), choices[0].last
        verdict = Verdict(best, baseline, report.gain, size)
        gain = truth(best, baseline)
        error = float(np.mean([truth(choice.best, baseline) for choice in choices])) - report.gain.mean
        below, above = report.gain.low - report.gain.mean, report.gain.high - report.gain.mean
        covered.append(below <= error <= above)
        for spread in SPREADS:
            by_spread[spread].append(below * spread / SPREAD <= error <= above * spread / SPREAD)
        others.append(any(choice.best.mix != baseline.mix for choice in choices))
        recommended.append(verdict.is_gain)
        wrong.append(verdict.is_gain and gain <= 0)
        missed.append(not verdict.is_gain and gain > 0)
        used.append(gain if verdict.is_gain else 0.0)
        found.append(gain)
    model, task = Path(file).stem.split("--")
    return {
        "model": model,
        "task": task,
        "layers": last + 1,
        "population": len(gold),
        "pairs": size,
        "shuffled": shuffled,
        "splits": splits,
        "draws": draws,
        "resamples": resamples,
        "jackknife": True,  # resamples vary no more than it says; false in rows of an earlier version
        "coverage": float(np.mean(covered)),
        "others": float(np.mean(others)),
        "coverage_of_others": _share(covered, others),
        "coverage_of_spreads": {str(spread): _share(hits, others) for spread, hits in by_spread.items()}
        if splits > 1
        else None,
        "recommended": float(np.mean(recommended)),
        "false": float(np.mean(wrong)),
        "missed": float(np.mean(missed)),
        "gain_used": 100 * float(np.mean(used)),
        "gain_best_found": 100 * float(np.mean(found)),
        "best_found_worse": float(np.mean(np.array(found) < 0)),
    }


def _share(hits: list[bool], among: list[bool]) -> float | None:
    return float(np.mean(np.array(hits)[among])) if any(among) else None


if __name__ == "__main__":
    main()
