"""How long a new user waits: `make demo` from a fresh clone, twice, against a bare `pip install torch`.

Everything is done in a temporary folder, with an empty cache of views and models. CPU seconds are those of all child
processes; seconds depend on the download. Raw result: benchmarks/results/setup.json.

    python benchmarks/setup.py
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "setup.json"
TORCH = "{python} -m venv bare && bare/bin/python -m pip install --quiet --constraint constraints.txt torch"
STEPS = {"torch": TORCH, "setup": "make .venv/.decoder", "demo": "make demo", "again": "make demo"}
_WORDS = {
    "torch": "`python -m venv` and `pip install torch`, nothing else",
    "setup": "set-up of `make demo` (torch included)",
    "demo": "`make demo` after it",
    "again": "`make demo` again",
}


def measured(command: str, folder: Path) -> dict[str, float]:
    """Seconds, and CPU seconds of the processes of a command."""
    kept = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "MAKEFLAGS", "MAKELEVEL"}
    environment = {name: value for name, value in os.environ.items() if name not in kept}
    environment["LAYERWISE_CACHE"] = str(folder / "cache")
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["bash", "-c", command], cwd=folder, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.perf_counter() - start, 1), "cpu_seconds": round(cpu, 1)}


def setup_table() -> str:
    """Each step in seconds, and as a ratio to the bare installation of torch."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    steps = result["steps"]
    lines = ["| step | seconds | CPU seconds | ratio to torch |", "|---|---|---|---|"]
    for name, step in steps.items():
        ratio = step["seconds"] / steps["torch"]["seconds"]
        lines.append(f"| {_WORDS[name]} | {step['seconds']:.0f} | {step['cpu_seconds']:.0f} | {ratio:.1f} |")
    return "\n".join(lines) + f"\n\n{result['machine']['cores']} cores. (`benchmarks/setup.py`)\n"


def main() -> None:
    """Measure all steps in a fresh clone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        steps = {name: measured(command.format(python=python), folder) for name, command in STEPS.items()}
    machine = {"python": platform.python_version(), "platform": platform.platform(), "cores": os.cpu_count()}
    result = {"machine": machine | {"load": os.getloadavg()[1]}, "steps": steps}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
