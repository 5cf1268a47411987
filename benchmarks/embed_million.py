"""A million sentences through `layerwise embed`: memory over time, and kills at random points.

    python benchmarks/embed_million.py [--rows 1000000] [--kills 5] [--mix 0]

The command runs once undisturbed while its memory is sampled, and once more while it is killed with SIGKILL at random
moments and started again until it is done. Both outputs are compared row for row.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq

from measure import shared_folder, write_result


def write_texts(rows: int, path: Path) -> int:
    """The first rows of wiki1m as a text file."""
    texts = pq.read_table(shared_folder() / "data" / "train" / "wiki1m.parquet", columns=["text"])["text"]
    lines = [" ".join(text.split()) for text in texts[:rows].to_pylist()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)


def command(source: Path, out: Path, mix: str) -> list[str]:
    """The job: the default encoder's low layers."""
    return [sys.executable, "-m", "layerwise", "embed", "default", str(source), "-o", str(out), "--mix", mix,
            "--number-type", "float16"]  # fmt: skip


def watched(arguments: list[str], out: Path) -> tuple[float, list[tuple[float, int, int]]]:
    """Run to the end; seconds, and (seconds, resident bytes, shards) every two seconds."""
    began = time.perf_counter()
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    watch = psutil.Process(process.pid)
    samples = []
    while process.poll() is None:
        shards = len(list(out.glob("part-*"))) if out.is_dir() else 0
        samples.append((round(time.perf_counter() - began, 1), watch.memory_info().rss, shards))
        time.sleep(2)
    if process.returncode:
        sys.exit(f"the command failed with {process.returncode}")
    return time.perf_counter() - began, samples


def killed(arguments: list[str], out: Path, kills: int, usual: float) -> list[dict]:
    """Kill the command at random moments, then let it finish."""
    random.seed(1)
    story = []
    for _ in range(kills):
        process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(random.uniform(6, 6 + usual / kills))
        process.send_signal(signal.SIGKILL)
        process.wait()
        story.append({"shards_after_kill": len(list(out.glob("part-*"))), "returncode": process.returncode})
        print(" ", story[-1], flush=True)
    subprocess.run(arguments, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return story


def compare(one: Path, other: Path) -> dict:
    """Row for row: the same shards, numbers and rows."""
    names = sorted(path.name for path in one.glob("part-*"))
    assert names == sorted(path.name for path in other.glob("part-*")), "the shards differ"
    rows, largest, next_row = 0, 0.0, 0
    for name in names:
        a, b = pq.read_table(one / name), pq.read_table(other / name)
        assert a["row"].to_pylist() == b["row"].to_pylist() == list(range(next_row, next_row + len(a)))
        vectors = [np.stack(table["embedding"].to_numpy()).astype(np.float32) for table in (a, b)]
        largest = max(largest, float(np.abs(vectors[0] - vectors[1]).max()))
        rows, next_row = rows + len(a), next_row + len(a)
    return {"rows": rows, "shards": len(names), "largest_difference": largest}


def main() -> None:
    """Run both and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--mix", default="0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source, whole, broken = (Path(scratch) / name for name in ("texts.txt", "whole", "broken"))
        rows = write_texts(options.rows, source)
        seconds, samples = watched(command(source, whole, options.mix), whole)
        print(f"{rows:,} rows in {seconds:.0f} s", flush=True)
        story = killed(command(source, broken, options.mix), broken, options.kills, seconds)
        result = compare(whole, broken)
    begun = [bytes_ for _, bytes_, shards in samples if shards >= 2]
    quarter = max(1, len(begun) // 4)
    early, late = (float(np.median(part)) for part in (begun[:quarter], begun[-quarter:]))
    write_result(
        "embed_million",
        {
            "what": f"layerwise embed, all-MiniLM-L6-v2, mix {options.mix}, wiki1m sentences",
            "seconds": seconds,
            "kills": story,
            "compared": result,
            "memory_samples": samples,
            "memory_late_over_early": late / early,
            "peak_bytes": max(begun),
        },
    )
    print(result, f"memory late/early {late / early:.3f}, peak {max(begun) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
