"""Run the attacks: python benchmarks/attacks [NAME ...] [--seed N]

Every attack is seeded and bounded; all of them take minutes on two cores. With names only these are run, and their
results replace those of the last run.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

import numpy as np
from attack import Attack, Tally

RESULTS = Path(__file__).parents[1] / "results" / "attacks.json"
LISTS = {
    "models": "Model folders from strangers",
    "data": "Data from strangers",
    "faults": "Faults",
    "shortages": "Faults",
    "numerics": "Numbers and shapes",  # a module named numbers would hide Python's own
    "mistakes": "A person's mistakes",
    "serving": "A server among strangers",
}


def main() -> None:
    """Run, print a line for each attack, write the results; exit 1 where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    attacks = {
        attack.name: (title, attack)
        for module, title in LISTS.items()
        if (Path(__file__).parent / f"{module}.py").is_file()
        for attack in import_module(module).ATTACKS
    }
    unknown = [name for name in options.names if name not in attacks]
    if unknown:
        sys.exit(f"unknown attack {unknown[0]!r}; known: {', '.join(attacks)}")
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    broken = 0
    for name, (title, attack) in attacks.items():
        if options.names and name not in options.names:
            continue
        began = time.perf_counter()
        tally = _run(attack, options.seed)
        if tally.skipped:  # the result of the last run stays
            print(f"{name:28} skipped: {tally.skipped}", flush=True)
            continue
        seconds = time.perf_counter() - began
        broken += len(tally.broken)
        results[name] = {
            "list": title,
            "tries": attack.tries,
            "promise": attack.promise,
            "tried": tally.tried,
            "held": tally.held,
            **({"unanswered": tally.unanswered} if tally.unanswered else {}),
            "broken": tally.broken[:20],
            "mended": attack.mended,
            "test": attack.test,
            "seed": options.seed,
            "seconds": round(seconds, 1),
        }
        silent = f", {tally.unanswered} without an answer" if tally.unanswered else ""
        print(f"{name:28} {tally.held:5} of {tally.tried:5} held{silent}, {seconds:.0f} s", flush=True)
        for line in tally.broken[:5]:
            print(f"    {line}", flush=True)
        RESULTS.write_text(json.dumps(_sorted(results, attacks), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(1 if broken else 0)


def _run(attack: Attack, seed: int) -> Tally:
    with tempfile.TemporaryDirectory(prefix="layerwise-attack-") as folder:
        try:
            return attack.run(np.random.default_rng(seed), Path(folder))
        except Exception:  # noqa: BLE001 - an attack that itself fails must not pass for one that held
            return Tally(1, [f"the attack itself failed: {traceback.format_exc(limit=3)}"])


def _sorted(results: dict, attacks: dict) -> dict:
    return {name: results[name] for name in attacks if name in results}


if __name__ == "__main__":
    main()
