"""`layerwise embed --engine ray`: equal to the local engine, kills at random points, and what Ray costs.

    python benchmarks/embed_ray.py --part workers|drivers|nodes|speed|reading [--kills 10] [--rows 8000] [--repeats 3]

workers and drivers: a run with two Ray workers on this machine, which are killed with SIGKILL one after the other, and
a run whose command is killed and started again; nodes: two nodes of a cluster, of which the second is killed. All
outputs are compared row for row with that of the local engine. speed: the same rows by the local engine, two processes
and two Ray workers, with the start of each apart from its rate per row. reading: what the process that reads, hands out
and checks can do, which bounds a cluster's size.
"""

import argparse
import itertools
import json
import os
import pickle
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from embed_million import compare, write_texts
from measure import RESULTS, machine, write_result

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
SHARD_ROWS = 32  # of `speed`
RAY = ["--engine", "ray", "--processes", "2"]


def command(source: Path, out: Path, *options: str, mix: str = "0", shard_rows: int = 50) -> list[str]:
    """The job: the default encoder, by default its lowest layer, in small shards."""
    return [sys.executable, "-m", "layerwise", "embed", "default", str(source), "-o", str(out), "--mix", mix,
            "--shard-rows", str(shard_rows), "--device", "cpu", *options]  # fmt: skip


def start(arguments: list[str], **variables: str) -> subprocess.Popen:
    """A command in the background; its errors are shown."""
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, env=ENVIRONMENT | variables)


def shards(out: Path) -> int:
    """How many are written."""
    return len(list(out.glob("part-*")))


def wait_for(process: subprocess.Popen, out: Path, count: int) -> None:
    """Until so many shards are there, and a random moment more."""
    while shards(out) < count:
        if process.poll() is not None:
            sys.exit(f"the run ended with {process.returncode} before {count} shards were there")
        time.sleep(0.005)
    time.sleep(random.uniform(0, 0.3))


def workers_of(process: subprocess.Popen) -> list[psutil.Process]:
    """The Ray workers of a run that has started its own cluster."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if child.is_running() and _title(child).startswith("ray::RayWorker")]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill_workers(source: Path, out: Path, kills: int) -> dict:
    """One run; a random worker is killed at random numbers of shards."""
    total = sum(1 for _ in source.open(encoding="utf-8")) // 50
    story = []
    process = start(command(source, out, *RAY))
    for count in sorted(random.sample(range(1, int(0.9 * total)), kills)):
        wait_for(process, out, count)
        while not (alive := workers_of(process)):
            time.sleep(0.01)
        victim = random.choice(alive)
        victim.send_signal(signal.SIGKILL)
        victim.wait(timeout=30)
        story.append({"shards_at_kill": shards(out), "workers_alive": len(alive)})
        print(" ", story[-1], flush=True)
    return {"kills": story, "returncode": process.wait()}


def kill_drivers(source: Path, out: Path, kills: int) -> dict:
    """The command is killed at random moments and started again, then finishes."""
    story, others = [], []
    for _ in range(kills):
        process = start(command(source, out, *RAY))
        wait_for(process, out, shards(out) + random.randint(1, 8))
        workers = workers_of(process)
        others += psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        at_kill, began = shards(out), time.perf_counter()
        _, alive = psutil.wait_procs(workers, timeout=30)
        seconds = round(time.perf_counter() - began, 2)
        story.append({"shards_after_kill": at_kill, "workers_left": len(alive), "seconds_until_workers_ended": seconds})
        print(" ", story[-1], flush=True)
    code = start(command(source, out, *RAY)).wait()
    began = time.perf_counter()
    _, alive = psutil.wait_procs(others, timeout=120)
    ended = {"processes_left": len(alive), "seconds_until_the_last_ended": time.perf_counter() - began}
    return {"kills": story, "returncode": code} | ended


def kill_nodes(source: Path, out: Path, kills: int) -> dict:
    """A cluster of two nodes with one CPU each: the second is killed, with its worker, and another one joins."""
    story, names = [], {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with tempfile.TemporaryDirectory(prefix="lw-ray-") as temp:
        ray = [sys.executable, "-m", "ray.scripts.scripts"]
        common = ["--num-cpus", "1", "--object-store-memory", str(128 << 20), "--disable-usage-stats"]
        head = [*ray, "start", "--head", "--port", "0", "--include-dashboard=false", "--temp-dir", temp, *common]
        quiet = {"env": ENVIRONMENT | names, "stdout": subprocess.DEVNULL, "check": True}
        subprocess.run(head, **quiet)
        address = (Path(temp) / "ray_current_cluster").read_text().strip()
        first = {process.pid for process in raylets(temp)}
        try:
            subprocess.run([*ray, "start", "--address", address, *common], **quiet)
            process = start(command(source, out, *RAY, "--address", address), **names)
            for _ in range(kills):
                wait_for(process, out, shards(out) + random.randint(5, 20))
                [second] = [raylet for raylet in raylets(temp) if raylet.pid not in first]
                second.send_signal(signal.SIGKILL)
                second.wait(timeout=30)
                story.append({"shards_at_kill": shards(out)})
                print(" ", story[-1], flush=True)
                subprocess.run([*ray, "start", "--address", address, *common], **quiet)
            return {"kills": story, "returncode": process.wait()}
        finally:
            for left in [one for one in psutil.process_iter() if temp in _title(one) and one.pid != os.getpid()]:
                left.kill()


def raylets(temp: str) -> list[psutil.Process]:
    """The processes that are the nodes of the cluster in this folder."""
    return [one for one in psutil.process_iter() if "/raylet/raylet " in _title(one) and temp in _title(one)]


def broken(part: Callable[[Path, Path, int], dict], rows: int, kills: int) -> dict:
    """A disturbed run against the local engine."""
    random.seed(time.time_ns())
    with tempfile.TemporaryDirectory() as scratch:
        source, whole, out = (Path(scratch) / name for name in ("texts.txt", "whole", "broken"))
        write_texts(rows, source)
        subprocess.run(command(source, whole), check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        result = part(source, out, kills)
        left = sorted(path.name for path in out.iterdir() if path.name.startswith(".") and path.name != ".lock")
        verified = subprocess.run(
            [sys.executable, "-m", "layerwise", "embed", "--verify", str(out), "--device", "cpu", "--json"],
            stdout=subprocess.PIPE, env=ENVIRONMENT, check=False, text=True,
        )  # fmt: skip
        manifest = json.loads((out / "_embed.json").read_text(encoding="utf-8"))
        return result | {
            "compared": compare(whole, out),
            "rows_in_manifest": manifest["rows"],
            "faults": json.loads(verified.stdout)["faults"],
            "unfinished_files_left": left,
        }


def speed(rows: int, repeats: int) -> dict:
    """What each engine takes in all, until its first shard, for a row in between, and after the last; in turn."""
    engines = {"local": [], "two processes": ["--processes", "2"], "two Ray workers": RAY}
    runs: dict[str, list[dict]] = {name: [] for name in engines}
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "texts.txt"
        count = write_texts(rows, source)
        for repeat, (name, options) in itertools.product(range(repeats), engines.items()):
            out = Path(scratch) / f"{name}-{repeat}"
            one_thread = {} if name == "local" else {"OMP_NUM_THREADS": "1"}
            environment = {key: value for key, value in ENVIRONMENT.items() if key != "OMP_NUM_THREADS"} | one_thread
            arguments = command(source, out, *options, mix="6", shard_rows=SHARD_ROWS)
            began = time.time()  # on the clock of the files
            subprocess.run(arguments, check=True, env=environment, stdout=subprocess.DEVNULL)
            runs[name].append(phases(began, time.time(), [path.stat().st_mtime for path in out.glob("part-*")]))
            print(" ", name, {key: round(value, 2) for key, value in runs[name][-1].items()}, flush=True)
    return {
        "what": f"all-MiniLM-L6-v2, {count:,} wiki1m sentences, shards of {SHARD_ROWS} rows, two cores",
        "runs": runs,
    }


def phases(began: float, ended: float, written: list[float]) -> dict[str, float]:
    """A run from when each shard was written: its start, its rate in the middle, where all workers run, and its end."""
    written = sorted(written)
    first, last = len(written) // 10, 9 * (len(written) - 1) // 10
    if last <= first:
        sys.exit(f"{len(written)} shards are too few to tell the start from the rate; give more --rows")
    return {
        "seconds": ended - began,
        "seconds_until_first_shard": written[0] - began,
        "rows_per_second": SHARD_ROWS * (last - first) / (written[last] - written[first]),
        "seconds_after_last_shard": ended - written[-1],
    }


def reading(rows: int) -> dict:
    """What the driver does for every row and every shard, in seconds of CPU: read and pickle, check, and hash."""
    import numpy as np

    from layerwise.data import RowSource
    from layerwise.digests import file_sha256
    from layerwise.embed import EmbedJob
    from layerwise.embed.job import chunks
    from layerwise.embed.shards import ShardFolder

    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "texts.txt"
        count = write_texts(rows, source)
        job = EmbedJob(RowSource.of(str(source), ("text",)), number_type="float16")
        began = time.process_time()
        sizes = [len(pickle.dumps(chunk)) for chunk in chunks(job)]
        read_seconds = time.process_time() - began
        folder, vectors = ShardFolder(Path(scratch), job), np.random.default_rng(0).standard_normal((8192, 768))
        some = list(itertools.islice(chunks(job), 8))
        for chunk in some:
            folder.write(chunk, vectors[: len(chunk.rows)].astype(np.float32))
        size = sum(folder.path(chunk.number).stat().st_size for chunk in some)
        assert folder.has(some[0]), "what is imported at the first call is not counted"
        began = time.process_time()
        for chunk in some:
            assert folder.has(chunk)
        check_seconds = time.process_time() - began
        began = time.process_time()
        for chunk in some:
            file_sha256(folder.path(chunk.number))
        hash_seconds = time.process_time() - began
    return {
        "rows": count,
        "rows_per_cpu_second_read_and_pickled": count / read_seconds,
        "bytes_per_row_of_chunks": sum(sizes) / count,
        "bytes_per_row_of_shards": size / sum(len(chunk.rows) for chunk in some),
        "bytes_per_cpu_second_checked_on_resuming": size / check_seconds,
        "bytes_per_cpu_second_hashed_at_the_end": size / hash_seconds,
    }


def main() -> None:
    """Measure one part, and keep the others of the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", required=True, choices=["workers", "drivers", "nodes", "speed", "reading"])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    parts = {"workers": kill_workers, "drivers": kill_drivers, "nodes": kill_nodes}
    if options.part in parts:
        result = broken(parts[options.part], options.rows, options.kills)
        print(result["compared"], result["faults"])
    else:
        result = speed(options.rows, options.repeats) if options.part == "speed" else reading(options.rows)
    path = RESULTS / "embed_ray.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    here = {"load_average_at_its_end": os.getloadavg()[0], "machine": machine()}
    write_result("embed_ray", {"machine": machine()} | before | {options.part: result | here})


if __name__ == "__main__":
    main()
