"""Trains the rows of the table, several seeds each, and scores them on the seven STS sets.

    python benchmarks/training.py [ROW …] [--seeds 0,1,2] [--jobs 8] [--out FOLDER] [--chosen FILE] [--dev-only]

Every row and seed is a process of its own; several share a GPU, so seconds of single runs are no measure of speed
(`training_speed.py` is). Checkpoints are picked on the dev split of STS-B; test sets are scored once, by the picked
weights. With --dev-only nothing is scored on test data: that is how settings are tried out. One JSON file a run goes
to FOLDER; `python benchmarks/training.py --collect FOLDER` joins them into results/training.json.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measure import machine, model_folder, shared_folder, write_runs
from training_rows import ROWS, SEEDS

DEV = "eval_stsb_spearman"


def encoder_folder(name: str) -> str:
    """A model of the shared folder, or one that get-models built."""
    shared = shared_folder() / "models" / name
    return str(shared if shared.is_dir() else model_folder(name))


def run_one(name: str, seed: int, sets: list[str], *, dev_only: bool) -> dict[str, Any]:
    """Train one row with one seed; scores × 100."""
    from layerwise.train import ContrastiveJob, load_recipe, train

    row = ROWS[name]
    recipe = load_recipe(row.recipe, [*row.sets, *sets])
    data = str(shared_folder() / "data")
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as folder:
        trained = train(ContrastiveJob(recipe, encoder=encoder_folder(row.encoder), data=data), folder, seed=seed)
    result: dict[str, Any] = {
        "row": name,
        "label": row.label,
        "encoder": row.encoder,
        "seed": seed,
        "sets": [*row.sets, *sets],
        "put_in": sets,
        "machine": machine(),
        "training": trained.facts,
        "curve": [
            [line["step"], line["eval_stsb_spearman"]] for line in trained.history if "eval_stsb_spearman" in line
        ],
    }
    if dev_only:
        return result
    result["test"] = scores(trained.model, data)
    if row.also:
        result["train_only"] = scores(trained.model.replaced(mix=row.also, heads=()), data)
    result["smoothing"] = smoothing(trained.model.encoder, data)
    return result


def scores(model: Any, data: str) -> dict[str, dict[str, float]]:
    """Spearman × 100 on the seven sets, "all" and the weighted mean over subsets, which LayerAttPooler reports."""
    from layerwise.data import find_tasks
    from layerwise.evaluate import LayerSubject, evaluate

    run = evaluate(LayerSubject(model, cache=False), find_tasks(suites=["sts"]), data=data).runs[0]
    kinds = {"all": "spearman", "wmean": "spearman_wmean"}
    by_kind = {kind: {name: one.figures[key] for name, one in run.results.items()} for kind, key in kinds.items()}
    return {kind: scores | {"average": sum(scores.values()) / len(scores)} for kind, scores in by_kind.items()}


def smoothing(encoder: Any, data: str) -> dict[str, list[float]]:
    """TokSim of every layer and SetSim of every pair of neighbours ([CLS] and mean), on the sentences of STS-B test."""
    import torch

    from layerwise.data import find_tasks, load_task
    from layerwise.measures import layer_similarity, token_similarities

    rows = load_task(find_tasks(["stsb"])[0], data)
    texts = rows.pick(rows.splits["test"]).texts
    views = encoder.encode_layers(texts, ("cls", "mean"))
    sims = {name: layer_similarity(torch.from_numpy(of)).mean(dim=0).tolist() for name, of in views.items()}
    return {
        "toksim": token_similarities(encoder, texts).nanmean(dim=0).tolist(),
        "setsim_cls": sims["cls"],
        "setsim_mean": sims["mean"],
    }


def launch(label: str, name: str, seed: int, out: Path, sets: list[str], dev_only: bool) -> str:
    """One run of the row `name` in a process of its own; says how it went."""
    began = time.perf_counter()
    marks = re.sub(r"[^\w.-]+", "-", "_".join(sets))
    file = out / f"{label}_{seed}{'_' + marks if marks else ''}.json"
    command = [sys.executable, __file__, name, "--seeds", str(seed), "--one", str(file), "--label", label]
    command += ["--dev-only"] * dev_only
    command += [part for text in sets for part in ("--set", text)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{file.stem}: FAILED {done.stderr.strip().splitlines()[-1] if done.stderr else ''}"
    result = json.loads(file.read_text())
    dev = result["training"].get("dev", {})
    test = f"test {result['test']['all']['average']:.2f}" if "test" in result else ""
    only = f"train only {result['train_only']['all']['average']:.2f}" if "train_only" in result else ""
    seconds = time.perf_counter() - began
    return f"{file.stem}: dev {dev.get('best', 0):.2f} @ {dev.get('at_step')} {test} {only} ({seconds:.0f} s)"


def collect(folder: Path) -> None:
    """All runs of a folder as one result; values put in that the row's recipe has by now are left out."""
    from layerwise.train import load_recipe

    runs = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    for run in runs:
        row = ROWS[run["row"]]
        if load_recipe(row.recipe, [*row.sets, *run["put_in"]]) == load_recipe(row.recipe, list(row.sets)):
            run["put_in"] = []
    write_runs("training", [run for run in runs if "test" in run])


def main() -> None:
    """Parse, run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("training-runs"))
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--dev-only", action="store_true")
    parser.add_argument("--chosen", type=Path)
    parser.add_argument("--label", default="")
    parser.add_argument("--one", type=Path)
    parser.add_argument("--collect", type=Path)
    options = parser.parse_args()
    if options.collect:
        collect(options.collect)
        return
    seeds = [int(seed) for seed in options.seeds.split(",")]
    if options.one:
        result = run_one(options.rows[0], seeds[0], options.sets, dev_only=options.dev_only)
        result["row"] = options.label or result["row"]
        options.one.write_text(json.dumps(result), encoding="utf-8")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    best = json.loads(options.chosen.read_text()) if options.chosen else {}
    rows = {row: best.get(row, {"row": row, "sets": []}) for row in options.rows}
    jobs = [(label, one["row"], seed, one["sets"]) for seed in seeds for label, one in rows.items()]
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(launch, *job[:3], options.out, [*job[3], *options.sets], options.dev_only) for job in jobs]
        for run in runs:
            print(run.result(), flush=True)


if __name__ == "__main__":
    main()
