"""Today's commands against those of an older commit, in turns: the same results, and times as ratios.

    python benchmarks/unchanged_speed.py a47edf2^                  # the commit before views; minutes on two idle cores
    python benchmarks/unchanged_speed.py a47edf2^ --repeats 1 --rows 300 --out trial.json

The source of the commit is unpacked into a temporary folder, and every run is a process of its own with an empty cache.
Commands are timed as a whole, with loading; the search of 25 layers, on made-up views, from views to verdict. Compared
are chosen layers, their scores and embeddings; intervals are not, whose computation has been improved on purpose.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from measure import machine, write_result
from unchanged import TOLERANCE, Numbers, Version, flattened, gap_of, make_inputs, wiki_mlm, write, write_csv

ROOT = Path(__file__).resolve().parents[1]
_SEARCH_25 = """
import json, time
import numpy as np
import layerwise

random = np.random.default_rng(0)
shared = random.normal(size=(350, 1, 64))
left, right = (shared + random.normal(size=(350, 25, 64)) * np.linspace(2, 1, 25)[:, None] for _ in range(2))
gold = random.random(350)
right[:, 12] = left[:, 12] * gold[:, None] + right[:, 12] * (1 - gold[:, None])
began = time.perf_counter()
if hasattr(layerwise, "Search"):
    found = layerwise.Search(space="up to 6").fit_views(left, right, gold).selection_
    best, last, table, verdict = found.chosen, found.last, found.table, found.verdict
else:  # before the one estimator
    found = layerwise.LayerSearch(space="up to 6").fit(left, right, gold)
    best, last, table, verdict = found.best_, found.last_, found.table_, found.verdict_
str(verdict)
seconds = time.perf_counter() - began
choices = {name: [*choice.layers, choice.dev, choice.test] for name, choice in
           (("best", best), ("last", last))}
print(json.dumps({"seconds": seconds, "sets": len(table), **choices}))
"""
Part = Callable[[Version, int], tuple[float, Numbers]]


def search_13_layers(version: Version, _rows: int) -> tuple[float, Numbers]:
    """`layerwise search` of 300 pairs by a model of 12 blocks: all sets of its layers."""
    pairs = version.folder("pairs.csv")
    pairs_apart(version.home / "inputs" / "pairs.csv", pairs)
    began = time.perf_counter()
    result = version.json("search", wiki_mlm(), str(pairs))
    seconds = time.perf_counter() - began
    best = result["chosen"] if "chosen" in result else result["best"]
    choices = {"best": best, "last": result["last"]}
    scores = {name: {key: of[key] for key in ("mix", "dev", "test")} for name, of in choices.items()}
    return seconds, flattened(scores, "search")


def search_25_layers(version: Version, _rows: int) -> tuple[float, Numbers]:
    """A search of made-up views of 350 pairs: all sets of up to six of 25 layers."""
    command = [sys.executable, "-c", _SEARCH_25]
    printed = subprocess.run(command, env=version.environment, text=True, capture_output=True, check=True).stdout
    result = json.loads(printed.splitlines()[-1])
    return result.pop("seconds"), flattened(result, "search")


def embed(version: Version, rows: int) -> tuple[float, Numbers]:
    """`layerwise embed` of made-up sentences by all-MiniLM-L6-v2."""
    texts, out = version.folder("texts.txt"), version.folder("vectors.npy")
    lines = (version.home / "inputs" / "rows.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    texts.write_text("".join(lines[:rows]), encoding="utf-8")
    began = time.perf_counter()
    version.run("embed", "default", str(texts), "-o", str(out))
    seconds = time.perf_counter() - began
    vectors = np.load(out).astype(np.float64)
    return seconds, {"embeddings": vectors.mean(0).tolist(), "lengths": np.linalg.norm(vectors, axis=1).tolist()}


def evaluate(version: Version, _rows: int) -> tuple[float, Numbers]:
    """`layerwise evaluate` of all-MiniLM-L6-v2 on the test pairs of STS-B, by two mixes."""
    began = time.perf_counter()
    runs = version.json("evaluate", "default", "--tasks", "stsb", "--layers", "last", "--layers", "0,6")["runs"]
    return time.perf_counter() - began, flattened([run["tasks"] for run in runs], "evaluate")


PARTS: dict[str, Part] = {
    "`search`, 13 layers": search_13_layers,
    "search of views, 25 layers": search_25_layers,
    "`embed`": embed,
    "`evaluate`": evaluate,
}


def pairs_apart(source: Path, out: Path) -> None:
    """The pairs that share no sentence with another: older versions split the others in another way."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = Counter(row[side] for row in rows for side in ("sentence1", "sentence2"))
    write_csv(out, [row for row in rows if counts[row["sentence1"]] == counts[row["sentence2"]] == 1])


def unpack(commit: str, folder: Path) -> Path:
    """The source folder of a commit."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


def check_source(version: Version) -> None:
    """Refuse a run in which another copy of the package would be imported."""
    command = [sys.executable, "-c", "import layerwise; print(layerwise.__file__)"]
    printed = subprocess.run(command, env=version.environment, text=True, capture_output=True, check=True).stdout
    if version.src not in Path(printed.strip()).parents:
        sys.exit(f"layerwise was imported from {printed.strip()}, not from {version.src}")


def gap_between(before: Numbers, now: Numbers) -> float | str:
    """The largest difference of two results, relative to numbers above 1, or a word where there is none."""
    gaps = [gap_of(before.get(name), now.get(name)) for name in {*before, *now}]
    words = [gap for gap in gaps if isinstance(gap, str)]
    return words[0] if words else max(float(gap) for gap in gaps)


def main() -> None:
    """Run every part by both versions in turns, and write times, ratios and differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the older version, such as a47edf2^")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=6000, help="that are embedded")
    parser.add_argument("--only", default=";".join(PARTS), help="of the parts, with semicolons")
    parser.add_argument("--out", type=Path, help="another file than the one of benchmarks/results")
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    load, parts = os.getloadavg()[0], {}
    described = ["git", "log", "-1", "--format=%h", given.commit]
    commit = subprocess.run(described, cwd=ROOT, text=True, capture_output=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="layerwise-unchanged-") as name:
        folder = Path(name)
        sources = {"before": unpack(given.commit, folder / "older"), "now": ROOT / "src"}
        make_inputs(folder / "inputs")
        for src in sources.values():
            check_source(Version(src, folder, folder / "none"))
        for part, run in [(part, PARTS[part]) for part in given.only.split(";")]:
            taken: dict[str, list[float]] = {label: [] for label in sources}
            numbers: dict[str, Numbers] = {}
            for repeat in range(given.repeats):
                for label, src in sources.items():
                    with tempfile.TemporaryDirectory(dir=folder) as scratch:
                        seconds, numbers[label] = run(Version(src, folder, Path(scratch)), given.rows)
                    taken[label].append(seconds)
                    print(f"{repeat + 1}/{given.repeats} {part}, {label}: {seconds:.2f} s", flush=True)
            ratio = statistics.median(now / before for before, now in zip(*taken.values(), strict=True))
            gap = gap_between(numbers["before"], numbers["now"])
            parts[part] = {"seconds": taken, "ratio": ratio, "difference": gap}
            print(f"{part}: {ratio:.2f} x the time before, difference {gap}", flush=True)
    result = {"commit": commit, "load_before": load, "rows": given.rows, "tolerance": TOLERANCE, "parts": parts}
    if given.out is not None:
        write(given.out, {"machine": machine(), **result})
    else:
        write_result("unchanged_speed", result)
    if any(isinstance(part["difference"], str) or part["difference"] > TOLERANCE for part in parts.values()):
        sys.exit("results differ")


if __name__ == "__main__":
    main()
