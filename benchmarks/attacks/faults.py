"""Faults: signals, full disks, lost folders, flipped bits, two runs at once, changed inputs, a clock that goes back.

LAYERWISE_ATTACK_TRIES multiplies how often the random ones are tried.
"""

import json
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from attack import Attack, Tally
from calls import Ended, call, call_json, make_files, own_cache

from support.forks import Forks

MORE = int(os.environ.get("LAYERWISE_ATTACK_TRIES", "1"))
STEPS = ("--set", "train.steps=12", "--set", "train.batch_size=8", "--set", "data.max_length=16")
DEV = ("--dev", "none", "--no-test", "--set", "dev.every=3")


def commands(files: dict[str, Path], out: Path) -> dict[str, list[Any]]:
    """Commands that write to `out`, which are run again after a fault."""
    model, trainings = files["model"], ["--model", files["model"], "--device", "cpu", "-o", out / "run"]
    return {
        "train": ["train", "small-simcse", "--data", files["text"], *DEV, *STEPS, *trainings],
        "multitask": ["multitask", files["recipe"], "--set", "train.steps=12", *trainings],
        "evaluate": ["evaluate", model, "--tasks", files["task"], "--every-layer", "-o", out / "result.json"],
        "search": ["search", model, files["pairs"], "--pooling", "mean,cls,max", "--table", out / "table.csv"],
        "embed": ["embed", model, files["text"], "-o", out / "shards", "--shard-rows", "5"],
    } | (
        {"predict": ["predict", files["predictor"], files["text"], "-o", out / "predictions.csv", "--overwrite"]}
        if "predictor" in files
        else {}
    )


def result_of(name: str, out: Path) -> Any:
    """What a command wrote, without times and places."""
    if name in ("train", "multitask"):
        facts = json.loads((out / "run" / "result.json").read_text())
        weights = (out / "run" / "model" / "model.safetensors").read_bytes()
        lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
        return {key: value for key, value in facts.items() if key != "seconds"}, weights, lines
    if name == "evaluate":
        return json.loads((out / "result.json").read_text())["results"]
    if name == "embed":
        return pq.read_table(out / "shards").to_pydict()
    return next(out.glob("*.csv")).read_text()


def prepare(folder: Path, random: np.random.Generator, *, predictor: bool = False) -> dict[str, Path]:
    """Files, and a model with a task head if asked."""
    (folder / "files").mkdir()
    files = make_files(folder / "files", random)
    if not predictor:
        return files
    call_json("multitask", files["recipe"], "--model", files["model"], "--device", "cpu", "-o", folder / "trained")
    return files | {"predictor": folder / "trained" / "model"}


def signals(random: np.random.Generator, folder: Path) -> Tally:
    """Stop every command by a signal at a random moment, run it again, and compare with a run that was not stopped."""
    tally = Tally()
    with own_cache(folder / "cache"), Forks(folder) as forks:
        files = prepare(folder, random, predictor=True)
        for place, name in enumerate(commands(files, folder)):
            os.environ["LAYERWISE_CACHE"] = str(folder / f"cache-{name}")
            whole = folder / f"{name}-whole"
            whole.mkdir()
            began = time.perf_counter()
            done = forks.run("layerwise", *commands(files, whole)[name])
            took = time.perf_counter() - began
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr[-500:]}")
            for number in range(2 * MORE):
                out = folder / f"{name}-{number}"
                out.mkdir()
                os.environ["LAYERWISE_CACHE"] = str(folder / f"cache-{name}-{number}")
                sent = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[(place + number) % 3]
                words = commands(files, out)[name]
                process = forks.start("layerwise", *words)
                time.sleep(random.uniform(0.2, 0.95) * took)
                if process.poll() is None:
                    os.kill(process.pid, sent)
                code = process.wait()
                lines = process.stderr.splitlines()
                tally.check("Traceback" not in process.stderr, f"{name}, {sent.name}: a traceback: {lines[-1:]}")
                if sent != signal.SIGKILL:
                    left = [path for path in out.rglob(".*") if path.name != ".lock"]
                    tally.check(not left, f"{name}, {sent.name}, code {code}: left {left}")
                resume = ["--resume"] if name in ("train", "multitask") and any(out.iterdir()) else []
                again = forks.run("layerwise", *words, *resume)
                same = again.returncode == 0 and result_of(name, out) == result_of(name, whole)
                tally.check(same, f"{name}, {sent.name}: run again: {again.returncode} {again.stderr[-200:]}")
    return tally


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file may become longer than so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def one_line(ended: Ended) -> bool:
    """Whether a command ended as an error does."""
    lines = [line for line in ended.error.splitlines() if line.startswith("error: ")]
    return ended.code == 2 and len(lines) == 1 and not ended.crash and "Traceback" not in ended.error


def full_disk(random: np.random.Generator, folder: Path) -> Tally:
    """Let files of two lengths be too long for the disk."""
    tally = Tally()
    with own_cache(folder / "cache"):
        files = prepare(folder, random, predictor=True)
        model, pairs = files["model"], files["pairs"]
        call_json("search", model, pairs)  # its views are cached already
        call_json("report", model, "--pairs", pairs, "-o", folder / "report.html")
        for most in (10, 30_000):
            out = folder / f"out-{most}"
            out.mkdir()
            wanted = commands(files, out) | {
                "search --save": ["search", model, pairs, "--save", out / "best"],
                "fit": ["fit", model, files["text"], "-o", out / "fitted"],
                "report": ["report", model, "--pairs", pairs, "-o", out / "report.html"],
                "analyze": ["analyze", model, "--pairs", pairs, "--measure", "toksim", "-o", out / "figure.png"],
                "demo": ["demo", model, "-o", out / "demo"],
            }
            for name, words in wanted.items():
                os.environ["LAYERWISE_CACHE"] = str(folder / "cache")
                with small_files(most):
                    ended = call(*words)
                trained = name in ("train", "multitask")  # keeps its steps so far
                left = [] if trained else [path.name for path in out.rglob("*") if path.is_file()]
                fine = ended.code == 0 or (one_line(ended) and not left)
                what = ended.crash or ended.error[-200:]
                tally.check(fine, f"{name}, at most {most} bytes: {ended.code} {what}, left {left}")
                shutil.rmtree(out)
                out.mkdir()
    return tally


def flip(path: Path, random: np.random.Generator) -> str:
    """Change one bit of a file; says which."""
    data = bytearray(path.read_bytes())
    bit = int(random.integers(8 * len(data)))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return f"{path.name}, bit {bit}"


def bit_flips(random: np.random.Generator, folder: Path) -> Tally:
    """Flip single bits in copies of caches, stored results, shards, saved models and checkpoints; read them."""
    tally = Tally()
    with own_cache(folder / "cache"):
        files = prepare(folder, random)
        out = folder / "out"
        out.mkdir()
        saved, keep = folder / "saved", commands(files, out)
        call_json("search", files["model"], files["pairs"], "--save", saved)
        call_json("evaluate", files["model"], "--tasks", files["task"])
        call_json(*keep["embed"])
        call_json(*keep["embed"][:4], out / "arrays", "--format", "npy", "--shard-rows", "20")
        call_json(*keep["train"], "--keep-checkpoints")
        for name in ("result.json", "results.json"):
            (out / "run" / name).unlink()
        shutil.rmtree(out / "run" / "model")
        cache = Path(os.environ["LAYERWISE_CACHE"])
        kinds: dict[str, tuple[Path, str, int, Callable[[Path], Any]]] = {
            "views": (cache / "views", "*/*", 50, lambda place: _search(files, place.parent)),
            "results": (cache / "results", "**/*.json", 40, lambda place: _evaluate(files, place.parent)),
            "shards": (out / "shards", "*", 40, lambda place: _embed(files, place, "parquet")),
            "arrays": (out / "arrays", "*", 20, lambda place: _embed(files, place, "npy")),
            "model": (saved, "**/*", 40, lambda place: _encode(place, files)),
            "checkpoints": (out / "run", "checkpoint-*/*", 10, lambda place: _resume(files, place)),
        }
        for kind, (place, pattern, count, read) in kinds.items():
            told, whole = _copied(place, read)
            if told:
                raise RuntimeError(f"{kind}: something is said of what is not damaged")
            for _ in range(count * MORE):
                flipped: list[str] = []

                def damage(copy: Path, pattern: str = pattern, flipped: list[str] = flipped) -> None:
                    paths = [path for path in sorted(copy.glob(pattern)) if path.is_file() and path.stat().st_size]
                    flipped.append(flip(paths[int(random.integers(len(paths)))], random))

                noticed, value = _copied(place, read, damage)
                tally.check(noticed or value == whole, f"{kind}, {flipped[0]}: another result, and not a word")
    return tally


def _copied(place: Path, read: Callable[[Path], Any], damage: Callable[[Path], object] = lambda _: None) -> Any:
    """Read a copy of a folder, perhaps damaged: whether something was said, and the result."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(place, Path(folder) / "cache" / place.name)
        damage(copy)
        return read(copy)


def _said(ended: Ended) -> bool:
    if ended.crash:
        raise RuntimeError(ended.crash)
    return one_line(ended) or "WARNING" in ended.error


def _search(files: dict[str, Path], cache: Path) -> tuple[bool, Any]:
    os.environ["LAYERWISE_CACHE"] = str(cache)
    ended = call("search", files["model"], files["pairs"], "--json")
    facts = {} if ended.code else json.loads(ended.out)
    return _said(ended), {key: value for key, value in facts.items() if key not in ("seconds", "saved")}


def _evaluate(files: dict[str, Path], cache: Path) -> tuple[bool, Any]:
    os.environ["LAYERWISE_CACHE"] = str(cache)
    ended = call("evaluate", files["model"], "--tasks", files["task"], "--json")
    return _said(ended), ended.out


def _embed(files: dict[str, Path], shards: Path, kind: str) -> tuple[bool, Any]:
    rows = "5" if kind == "parquet" else "20"
    ended = call("embed", files["model"], files["text"], "-o", shards, "--format", kind, "--shard-rows", rows)
    if ended.code:
        return _said(ended), None
    paths = sorted(shards.glob(f"part-*.{kind}"))
    return _said(ended), [pq.read_table(path).to_pydict() if kind == "parquet" else path.read_bytes() for path in paths]


def _encode(model: Path, files: dict[str, Path]) -> tuple[bool, Any]:
    with tempfile.TemporaryDirectory() as folder:
        ended = call("embed", model, files["text"], "-o", Path(folder) / "out.npy")
        return _said(ended), None if ended.code else (Path(folder) / "out.npy").read_bytes()


def _resume(files: dict[str, Path], run: Path) -> tuple[bool, Any]:
    out = run.parent
    run.rename(out / "run")
    ended = call(*commands(files, out)["train"], "--resume")
    return _said(ended), None if ended.code else result_of("train", out)[1:]


def _near(out: Path, whole: Path) -> bool:
    """Whether two runs embedded the same rows alike; a forked process rounds in other places."""
    one, other = result_of("embed", out), result_of("embed", whole)
    return one["row"] == other["row"] and np.allclose(one["embedding"], other["embedding"], atol=1e-5)


def two_at_once(random: np.random.Generator, folder: Path) -> Tally:
    """Start two runs on one output, and two on one cache."""
    tally = Tally()
    with own_cache(folder / "cache"), Forks(folder) as forks:
        files = prepare(folder, random)
        whole, out = folder / "whole", folder / "out"
        for place in (whole, out):
            place.mkdir()
        call_json(*commands(files, whole)["embed"])
        for number in range(MORE):
            words = commands(files, out / str(number))["embed"]
            both = [forks.start("layerwise", *words) for _ in range(2)]
            codes = sorted(process.wait() for process in both)
            said = f"{both[0].stderr} {both[1].stderr}"
            tally.check(codes in ([0, 0], [0, 2]), f"embed twice: exit codes {codes}: {said}")
            tally.check(_near(out / str(number), whole), "embed twice: other rows than one run has")
            os.environ["LAYERWISE_CACHE"] = str(folder / f"cache-{number}")
            both = [forks.start("layerwise", "search", files["model"], files["pairs"], "--json") for _ in range(2)]
            codes = sorted(process.wait() for process in both)
            tally.check(codes == [0, 0], f"search twice: exit codes {codes}: {both[0].stderr} {both[1].stderr}")
            results = [json.loads(process.stdout) if not process.returncode else {} for process in both]
            tally.check(results[0].get("best") == results[1].get("best"), "search twice: other results")
    return tally


def changed_inputs(random: np.random.Generator, folder: Path) -> Tally:
    """Change the input of a run that is resumed: other rows are refused or scored anew, never mixed."""
    tally = Tally()
    with own_cache(folder / "cache"):
        files = prepare(folder, random)
        out = folder / "out"
        out.mkdir()
        words = commands(files, out)
        for name in ("embed", "train", "multitask"):
            call_json(*words[name], *([] if name == "embed" else ["--keep-checkpoints"]))
            if name != "embed":
                (out / "run" / "result.json").unlink()
            changed = files["moods" if name == "multitask" else "text"]
            before = changed.read_text()
            changed.write_text(before.replace("e", "i"))
            ended = call(*words[name], *([] if name == "embed" else ["--resume"]))
            tally.check(one_line(ended), f"{name}: {ended.code} {ended.error[-200:]} {ended.crash}")
            changed.write_text(before)
            shutil.rmtree(out / "run", ignore_errors=True)
        first = call_json("evaluate", files["model"], "--tasks", files["task"])
        files["pairs"].write_text(files["pairs"].read_text().replace(",5\n", ",0\n"))
        second = call_json("evaluate", files["model"], "--tasks", files["task"])
        tally.check(first["average"] != second["average"], "evaluate: the stored score of other rows")
    return tally


def lost_folders(random: np.random.Generator, folder: Path) -> Tally:
    """Take the folder of an output or a cache away, or the right to write to it, while it is used."""
    from layerwise.data import RowSource
    from layerwise.embed import EmbedJob, ModelChoice, run_embed
    from layerwise.encoder import LayerEncoder, ViewCache
    from layerwise.errors import LayerwiseError

    tally = Tally()
    with own_cache(folder / "cache"):
        files = prepare(folder, random)

        def refused(what: str, run: Callable[[], object]) -> None:
            try:
                run()
            except LayerwiseError as error:
                tally.check("\n" not in str(error), f"{what}: {error}")
            except Exception as error:  # noqa: BLE001 - what must not come through
                tally.check(False, f"{what}: {type(error).__name__}: {error}")
            else:
                tally.check(True, what)

        job = EmbedJob(RowSource.of(str(files["text"]), ("text",)), shard_rows=5)
        for number in range(3):
            out, calls = folder / f"out-{number}", []

            def take_away(_rows: int, out: Path = out, calls: list = calls, number: int = number) -> None:
                calls.append(1)
                if len(calls) == 2 + number:
                    out.rename(out.with_name(f"{out.name}-gone"))  # at once: `rmtree` races with the writer

            choice = ModelChoice(str(files["model"]), options={"device": "cpu"})
            refused("embed", lambda out=out, seen=take_away, choice=choice: run_embed(job, choice, out, progress=seen))
        cache = ViewCache(folder / "views")
        encoder = LayerEncoder(files["model"], device="cpu")
        fill = encoder._fill

        def lose(*arguments: Any) -> None:
            fill(*arguments)
            shutil.rmtree(folder / "views")

        encoder._fill = lose
        refused("cache", lambda: encoder.encode_layers(["a river", "a door"], cache=cache))
        for name, words in commands(files, Path("/proc/nowhere")).items():
            ended = call(*words)
            tally.check(one_line(ended), f"{name}, nothing can be written: {ended.code} {ended.error} {ended.crash}")
        os.environ["LAYERWISE_CACHE"] = "/proc/nowhere"
        for name in ("search", "evaluate"):
            ended = call(*commands(files, folder / "fine")[name])
            tally.check(one_line(ended), f"{name} without a cache: {ended.code} {ended.error[-200:]} {ended.crash}")
    return tally


def clock_back(random: np.random.Generator, folder: Path) -> Tally:
    """Let the clock go back an hour at every look, and files be of tomorrow."""
    tally, now, looks = Tally(), time.time, []
    with own_cache(folder / "cache"):
        files = prepare(folder, random)
        results = {}
        for when in ("before", "after"):
            if when == "after":
                os.environ["LAYERWISE_CACHE"] = str(folder / "other-cache")
                time.time = lambda: (looks.append(1), now() - 3600 * len(looks))[1]
            try:
                for name in commands(files, folder):
                    out = folder / when / name
                    out.mkdir(parents=True)
                    ended = call(*commands(files, out)[name])
                    tally.check(not ended.code, f"{name}: {ended.error[-200:]} {ended.crash}")
                    results[when, name] = result_of(name, out)
            finally:
                time.time = now
        for name in commands(files, folder):
            tally.check(results["before", name] == results["after", name], f"{name}: another result")
        for path in (folder / "before").rglob("*"):
            os.utime(path, (now() + 86_400, now() + 86_400))
        for name in ("embed", "train"):
            ended = call(*commands(files, folder / "before" / name)[name], *(["--resume"] if name == "train" else []))
            tally.check(not ended.code, f"{name} with files of tomorrow: {ended.error[-200:]} {ended.crash}")
    return tally


ATTACKS = [
    Attack(
        name="signals",
        tries="KILL, TERM and INT at random moments in train, multitask, evaluate, search, predict and embed",
        promise="no traceback; TERM and INT leave nothing half-written; run again, the result is that of one run",
        run=signals,
        mended="SIGTERM left files behind or was lost in a `__del__`, workers of `embed` lived on after a kill, and a "
        "resumed training needed the folder it was begun in",
        test="tests/train/test_resume.py, tests/cli/test_app.py",
    ),
    Attack(
        name="full-disk",
        tries="files that may be no longer than 10 and 30,000 bytes, for every command that writes",
        promise="one line and exit code 2, and nothing is left behind",
        run=full_disk,
        mended="tracebacks where a folder or figure was written",
        test="tests/cli/test_app.py, tests/model/test_model.py",
    ),
    Attack(
        name="bit-flips",
        tries="single bits flipped in cached views, stored results, shards, saved models and checkpoints",
        promise="noticed or harmless: never another number without a word",
        run=bit_flips,
        mended="stored results, saved models and checkpoints had no checksums, and the names of a shard's columns and "
        "its number of rows could change unnoticed",
        test="tests/model/test_model.py, tests/train/test_resume.py, tests/evaluate/test_store.py",
    ),
    Attack(
        name="two-at-once",
        tries="two runs on one output, and two on one cache",
        promise="one is refused or both have the result of one run",
        run=two_at_once,
        mended="`cache clear` removed what a running process was building",
        test="tests/embed/test_embed.py, tests/encoder/test_cache.py",
    ),
    Attack(
        name="changed-inputs",
        tries="rows that change between a run and its continuation",
        promise="refused or scored anew, never mixed",
        run=changed_inputs,
        mended="",
        test="tests/embed/test_embed.py, tests/cli/test_train.py",
    ),
    Attack(
        name="lost-folders",
        tries="outputs and caches that vanish during a run, or that cannot be written",
        promise="one line that names the folder",
        run=lost_folders,
        mended="a folder that vanished while an unfinished file in it was removed, or before the end of `embed`, could "
        "give a traceback",
        test="tests/embed/test_embed.py, tests/test_files.py",
    ),
    Attack(
        name="clock-back",
        tries="a clock that goes back an hour at every look, and files of tomorrow",
        promise="the same results",
        run=clock_back,
        mended="",
        test="tests/embed/test_embed.py, tests/train/test_resume.py",
    ),
]
