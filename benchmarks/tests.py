"""What a run of the tests takes, how many pass, and what they cover, before a change of them and after.

A run is pytest's output, and its coverage is what `coverage json` writes of branches and lines:

    pytest -n 2 --dist loadfile --cov=layerwise --cov-branch --cov-report=json:after.json | tee after.log
    python benchmarks/tests.py --before before.log before.json --after after.log after.json
"""

import argparse
import json
import re
from pathlib import Path

from measure import machine

RESULTS = Path(__file__).parent / "results" / "tests.json"
PARTS = ("search/", "encoder/taps.py", "files.py", "serve/service.py")
COUNTS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def run_of(log: Path) -> dict[str, float]:
    """Seconds and the numbers of tests by outcome, from the last line of pytest's output."""
    lines = [
        line for line in log.read_text(encoding="utf-8").splitlines() if re.search(r"\d+ passed.* in [\d.]+s", line)
    ]
    if not lines:
        raise SystemExit(f"{log}: no line says how many tests passed; give the output of a pytest that ended")
    outcomes = {name: int(count) for count, name in re.findall(r"(\d+) ([a-z]+)", lines[-1].rpartition(" in ")[0])}
    (seconds,) = re.findall(r" in ([\d.]+)s", lines[-1])
    return {"seconds": float(seconds), **outcomes}


def coverage_of(report: Path) -> dict[str, dict[str, float]]:
    """Lines and branches covered: in all, and of the parts named above."""
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    found = {}
    for part in ("", *PARTS):
        summaries = [of["summary"] for name, of in files.items() if f"layerwise/{part}" in name.replace("\\", "/")]
        total = {count: sum(summary[count] for summary in summaries) for count in COUNTS}
        covered = total["covered_lines"] + total["covered_branches"]
        of_all = total["num_statements"] + total["num_branches"]
        found[part or "all"] = {**total, "percent": round(100 * covered / of_all, 2) if of_all else 100.0}
    return found


def main() -> None:
    """Read two runs and write what they took and covered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--before", "--after"):
        parser.add_argument(name, nargs=2, type=Path, required=True, metavar=("LOG", "COVERAGE"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    runs = {
        name: {**run_of(log), "coverage": coverage_of(report)}
        for name, (log, report) in (("before", options.before), ("after", options.after))
    }
    options.out.write_text(json.dumps({"machine": machine(), **runs}, indent=2) + "\n", encoding="utf-8")
    for name, run in runs.items():
        shares = ", ".join(f"{part} {of['percent']} %" for part, of in run["coverage"].items())
        print(f"{name}: {run['passed']} passed in {run['seconds']:.0f} s; covered: {shares}")


if __name__ == "__main__":
    main()
