"""Measuring on a noisy machine: calls interleaved, medians, and what the numbers were measured with."""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def interleaved(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every call, `repeats` times each, in turn, so that a slow minute slows all of them."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - began)
            print(f"  {repeat + 1}/{repeats} {name}: {taken[name][-1]:.2f} s", flush=True)
    return taken


def medians(taken: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each call's seconds."""
    return {name: statistics.median(values) for name, values in taken.items()}


def paired_ratio(taken: Mapping[str, list[float]], one: str, other: str) -> float:
    """The median over repeats of `one`'s time divided by `other`'s in the same repeat."""
    return statistics.median(a / b for a, b in zip(taken[one], taken[other], strict=True))


def machine() -> dict[str, Any]:
    """What the numbers were measured with; no name or path of the machine. A GPU is named where torch is in use."""
    packages = ("torch", "transformers", "sentence-transformers", "tokenizers", "onnxruntime", "numpy", "scipy")
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):  # the GPU machine has few
            found[name] = version(name)
    torch = sys.modules.get("torch")
    device = {"device": torch.cuda.get_device_name()} if torch and torch.cuda.is_available() else {}
    return {
        "processor": platform.machine(), "cores": os.cpu_count(), "python": sys.version.split()[0], **found, **device,
    }  # fmt: skip


def write_result(name: str, result: Mapping[str, Any]) -> None:
    """Put raw results where the tables are made from; a result that knows its machine keeps it."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine()} | dict(result), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.name}")


def write_runs(name: str, runs: list[dict[str, Any]], **facts: Any) -> None:
    """Runs that were made elsewhere as one result, with the machine that made them, which each run has recorded."""
    machines = [run.pop("machine") for run in runs]
    if any(one != machines[0] for one in machines):
        sys.exit("these runs were made on different machines; collect those of each by themselves")
    write_result(name, {"machine": machines[0], "runs": runs, **facts})


def shared_folder() -> Path:
    """The folder of real data and models."""
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("LAYERWISE_SHARED", default))
    if not (folder / "data").is_dir():
        sys.exit("set LAYERWISE_SHARED to the folder with data/ and models/")
    return folder


def model_folder(name: str) -> Path:
    """A model that docs/benchmarks/run.md says how to get."""
    root = Path(os.environ.get("LAYERWISE_MODELS", Path.home() / ".cache" / "layerwise-models"))
    if not (root / name).is_dir():
        sys.exit(f"{root / name}: no such folder; set LAYERWISE_MODELS (docs/benchmarks/run.md says how to get it)")
    return root / name
