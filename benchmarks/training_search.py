"""A small search over settings and combinations, by the dev split of STS-B alone: nothing here sees a test pair.

    python benchmarks/training_search.py [--jobs 14] [--out FOLDER]
    python benchmarks/training_search.py --collect FOLDER

Every trial is a row of the table (`training_rows.py`) with values put in, one seed. The best learning rate of each row
and the best combinations of objectives go to FOLDER/chosen.json, which `training.py --chosen` takes.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measure import write_result
from training import launch

RATES = {
    "simcse": ("3e-5", "1e-4", "2e-4"),
    "sscl-simcse": ("3e-5", "1e-4"),
    "sscl-bert-cls": ("1e-5", "3e-5"),
    "sscl-bert-avg": ("1e-5", "3e-5"),
    "lap-unsup": ("3e-5", "1e-4"),
    "sg": ("1e-4", "2e-4", "4e-4"),
    "sg-opt": ("1e-4", "2e-4", "4e-4", "8e-4"),
    "sup": ("1e-4", "2e-4", "4e-4"),
    "lap-sup": ("1e-4", "2e-4", "4e-4"),
    "minilm-sg-opt": ("1e-5", "5e-5"),
}
LIKE = {  # rows that take another's rate
    "sg-opt1": "sg",
    "sg-opt2": "sg",
    "sscl-progressive": "sscl-simcse",
    "sup-eq6": "sup",
    "lap-sup-eq6": "lap-sup",
    "minilm-sg": "minilm-sg-opt",
}
LAP = 'model.pooler="attention(cls, mean, last=cls)"'
COMBINED = [
    ("simcse", "objective.sg.weight=0.1", "model.head=none", "train.learning_rate=1e-4"),
    ("simcse", "objective.sg.weight=1.0", "model.head=none", "train.learning_rate=1e-4"),
    ("sscl-simcse", "objective.sg.weight=0.1", "model.head=none", "train.learning_rate=1e-4"),
    ("sg-opt", LAP, "model.head=mlp", "model.keep_head=true", "train.learning_rate=2e-4"),
    ("sg-opt", "objective.info-nce.weight=1.0", "train.learning_rate=2e-4"),
    ("sg-opt", "objective.sscl.weight=0.1", "train.learning_rate=2e-4"),
    ("lap-unsup", 'objective.sscl.anchors="last"', "objective.sscl.weight=0.1", "train.learning_rate=1e-4"),
    ("lap-sup", 'objective.sscl.anchors="last"', "objective.sscl.weight=0.1", "train.learning_rate=2e-4"),
]
KEPT = 3  # combinations that go into the table


def trials() -> list[tuple[str, list[str]]]:
    """Rows and values put in; combinations first, for they take longest."""
    rates = [(row, [f"train.learning_rate={rate}"]) for row, several in RATES.items() for rate in several]
    return [(row, sets) for row, *sets in COMBINED] + rates


def chosen(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Row -> the values with the best dev score; combinations under their own names."""

    def dev(run: dict[str, Any]) -> float:
        return float(run["training"]["dev"]["best"])

    combined = {(row, *sets) for row, *sets in COMBINED}
    best: dict[str, Any] = {}
    for row in RATES:
        own = [run for run in runs if run["row"] == row and (row, *run["sets"]) not in combined]
        if own:
            best[row] = {"row": row, "sets": max(own, key=dev)["sets"]}
    best |= {row: {"row": row, "sets": best[like]["sets"]} for row, like in LIKE.items() if like in best}
    joint = sorted((run for run in runs if (run["row"], *run["sets"]) in combined), key=dev, reverse=True)
    return best | {f"combined-{n}": {"row": r["row"], "sets": r["sets"]} for n, r in enumerate(joint[:KEPT], 1)}


def main() -> None:
    """Run the trials, or join their results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--out", type=Path, default=Path("training-search"))
    parser.add_argument("--collect", type=Path)
    given = parser.parse_args()
    if not given.collect:
        given.out.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(given.jobs) as pool:
            for line in pool.map(lambda trial: launch(trial[0], trial[0], 0, given.out, trial[1], True), trials()):
                print(line, flush=True)
    folder = given.collect or given.out
    runs = [json.loads(file.read_text()) for file in sorted(folder.glob("*_0*.json"))]
    (folder / "chosen.json").write_text(json.dumps(chosen(runs), indent=1), encoding="utf-8")
    kept = [{**{key: run[key] for key in ("row", "seed", "sets")}, "dev": run["training"]["dev"]} for run in runs]
    write_result("training_search", {"runs": kept, "chosen": chosen(runs)})


if __name__ == "__main__":
    main()
