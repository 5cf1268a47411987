"""How long `layerwise report` takes on 1,000 pairs of STS-B, and how large its page is.

    python benchmarks/report.py [REPEATS]

The command runs as a user runs it, in a process of its own, imports included; views are in a cache that a first run
has filled. Each run is set against one plain encoding pass of the same sentences without a cache, in the same repeat.
Seconds on the clock and of the processor (user and system, all threads): on a machine that others share, the second.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from layers import encoders
from layerwise import LayerModel
from layerwise.data import load_pairs
from layerwise.measures import ModelOnPairs
from measure import shared_folder, write_result

PAIRS = 1000
ENCODERS = ("wiki-mlm-12x384", "all-MiniLM-L6-v2")


def taken(call: Callable[[], object], who: int) -> tuple[float, float]:
    """Seconds on the clock and of the processor, of this process or of its children."""
    began, before = time.perf_counter(), resource.getrusage(who)
    call()
    after = resource.getrusage(who)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return time.perf_counter() - began, used


def measure(name: str, folder: Path, repeats: int) -> dict[str, Any]:
    """One encoder."""
    model, data, out = encoders()[name], str(shared_folder() / "data"), folder / f"{name}.html"
    command = [sys.executable, "-m", "layerwise", "report", str(model), "--pairs", "stsb", "--data", data]
    command += ["--limit", str(PAIRS), "-o", str(out)]
    loaded = LayerModel.load(model)
    texts = ModelOnPairs(loaded, load_pairs("stsb", data=data).limited(PAIRS)).texts

    def report() -> None:
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LAYERWISE_CACHE": str(folder)})

    first = taken(report, resource.RUSAGE_CHILDREN)
    runs = []
    for repeat in range(repeats):
        seconds, processor = taken(report, resource.RUSAGE_CHILDREN)
        plain, plain_processor = taken(lambda: loaded.encode(texts), resource.RUSAGE_SELF)
        runs.append((seconds, processor, plain, plain_processor))
        print(f"{name} {repeat + 1}/{repeats}: report {seconds:.1f} s ({processor:.1f} s of processor), encoding "
              f"{plain:.1f} s ({plain_processor:.1f} s)", flush=True)  # fmt: skip
    columns = [statistics.median(column) for column in zip(*runs, strict=True)]
    names = ("seconds", "processor_seconds", "encoding_seconds", "encoding_processor_seconds")
    return {
        **dict(zip(names, columns, strict=True)),
        "ratio": statistics.median(run[0] / run[2] for run in runs),
        "processor_ratio": statistics.median(run[1] / run[3] for run in runs),
        "first_seconds": first[0],
        "html_bytes": out.stat().st_size,
        "layers": loaded.encoder.depth + 1,
        "pairs": PAIRS,
        "sentences": len(texts),
        "repeats": repeats,
    }


def main() -> None:
    """Measure both encoders."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with TemporaryDirectory() as folder:
        found = {name: measure(name, Path(folder), repeats) for name in ENCODERS}
    write_result("report", {"what": "layerwise report, cached views, against one encoding pass", "encoders": found})


if __name__ == "__main__":
    main()
