"""A small search over settings and combinations, by the dev split of STS-B alone: nothing here sees a test pair.

    python benchmarks/training_search.py [--jobs 14] [--out FOLDER]
    python benchmarks/training_search.py --collect FOLDER

Every trial is a row of the table (`training_rows.py`) with values put in, one seed. The best learning rate of each row
goes to FOLDER/chosen.json, which `training.py --chosen` takes.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measure import write_runs
from training import launch

RATES = {
    "simcse": ("3e-5", "1e-4", "2e-4"),
    "sscl-simcse": ("1e-4", "2e-4"),
    "lap-unsup": ("1e-4", "2e-4"),
    "sscl-bert-cls": ("1e-5", "3e-5"),
    "sscl-bert-avg": ("3e-5", "1e-4"),
    "sup": ("1e-4", "2e-4", "4e-4"),
    "sg": ("1e-4", "2e-4", "4e-4"),
    "sg-opt": ("1e-4", "2e-4", "4e-4"),
    "sg-simcse-equal": ("1e-4", "2e-4", "4e-4"),
    "stsb-simcse": ("1e-4", "2e-4", "4e-4"),
    "diffcse": ("3e-5", "1e-4", "2e-4"),
    "minilm-sg-opt": ("1e-5", "3e-5", "1e-4"),
}
LIKE = {  # rows that take another's rate: a method is not above its baseline by a finer search
    "sg-opt1": "sg",
    "sg-opt2": "sg",
    "sscl-progressive": "sscl-simcse",
    "simcse-mean": "simcse",
    "sscl-mean": "simcse",
    "sup-eq6": "sup",
    "lap-sup": "sup",
    "lap-sup-eq6": "sup",
    "sscl-sup": "sup",
    "lap-sscl-sup": "sup",
    "minilm-sg": "minilm-sg-opt",
    "diffcse-lap": "diffcse",
}
COMBINED = [  # weights of a combination, and others beside those that are rows of their own
    ("sg-simcse", "objective.sg.weight=0.3", "train.learning_rate=2e-4"),
    ("sg-simcse", "objective.sg.weight=0.1", "train.learning_rate=2e-4"),
    ("lap-unsup", 'objective.sscl.anchors="last"', "objective.sscl.weight=0.1", "train.learning_rate=1e-4"),
    ("sg-opt", 'model.pooler="attention(cls, mean, last=cls)"', "model.head=mlp", "model.keep_head=true",
     "train.learning_rate=2e-4"),
    ("sg-opt", "objective.sscl.weight=0.1", "train.learning_rate=2e-4"),
]  # fmt: skip


def trials() -> list[tuple[str, list[str]]]:
    """Rows and values put in; those that take longest come first."""
    rates = [(row, [f"train.learning_rate={rate}"]) for row, several in RATES.items() for rate in several]
    return rates + [(row, sets) for row, *sets in COMBINED]


def chosen(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Row -> the learning rate with the best dev score."""
    best: dict[str, Any] = {}
    for row in RATES:
        own = [run for run in runs if run["row"] == row and (row, *run["put_in"]) not in COMBINED]
        if own:
            best[row] = {"row": row, "sets": max(own, key=lambda run: float(run["training"]["dev"]["best"]))["put_in"]}
    return best | {row: {"row": row, "sets": best[like]["sets"]} for row, like in LIKE.items() if like in best}


def main() -> None:
    """Run the trials, or join their results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--out", type=Path, default=Path("training-search"))
    parser.add_argument("--collect", type=Path)
    options = parser.parse_args()
    if not options.collect:
        options.out.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(options.jobs) as pool:
            for line in pool.map(lambda trial: launch(trial[0], trial[0], 0, options.out, trial[1], True), trials()):
                print(line, flush=True)
    folder = options.collect or options.out
    runs = [json.loads(file.read_text()) for file in sorted(folder.glob("*_?_*.json"))]
    (folder / "chosen.json").write_text(json.dumps(chosen(runs), indent=1), encoding="utf-8")
    keys = ("row", "seed", "put_in", "machine")
    kept = [{**{key: run[key] for key in keys}, "dev": run["training"]["dev"]} for run in runs]
    write_runs("training_search", kept, chosen=chosen(runs))


if __name__ == "__main__":
    main()
