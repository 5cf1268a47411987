"""Ray workers give what this process gives; any of them, or the command itself, may be killed at any moment."""

import json
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from layerwise.data import RowSource
from layerwise.embed import EmbedJob, ModelChoice, VectorFiles, run_embed, verify_vectors
from layerwise.embed.engine import Embedded, Flush, Ready, WorkerJob, Written
from layerwise.embed.engines import choose_engine
from layerwise.embed.job import chunks
from layerwise.embed.ray_cluster import _scratch_folder
from layerwise.embed.ray_engine import RayWorker, Share, share_out
from layerwise.embed.shards import ShardFolder
from layerwise.errors import InputError, MissingExtraError, ModelError
from layerwise.stores import place_of
from support.commands import COMMAND, assert_one_line, call_json, run_main
from support.s3 import s3_server
from support.tiny import WORDS

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'layerwise[ray]'")
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=1 + i % 13)) for i in range(90)]
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(autouse=True)
def no_cluster_of_others(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def job(tmp_path) -> EmbedJob:
    (tmp_path / "rows.txt").write_text("".join(text + "\n" for text in TEXTS), encoding="utf-8")
    return EmbedJob(RowSource.of(str(tmp_path / "rows.txt"), ("text", "text")), shard_rows=10)


@pytest.fixture
def choice(tiny_bert) -> ModelChoice:
    return ModelChoice(str(tiny_bert), options={"device": "cpu"})


def vectors(folder: Path) -> np.ndarray:
    table = pq.read_table(folder)
    assert table["row"].to_pylist() == list(range(len(TEXTS)))
    assert table["text"].to_pylist() == TEXTS
    return table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(TEXTS), -1)


def words(folder: Path, choice: ModelChoice, *options: str) -> list[str]:
    """The command that does what `job` does, on Ray."""
    files = ["embed", choice.name, folder / "rows.txt", "-o", folder / "out", "--keep", "text", "--shard-rows", 10]
    return [*map(str, files), "--device", "cpu", "--engine", "ray", *options]


@pytest.fixture
def short_folder():
    """For Ray's files: the paths of sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="lw", dir="/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made)


def ray_workers(pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it ends just now
            found += [process] if "ray::RayWorker" in " ".join(process.cmdline()) else []
    return found


# Two workers on this machine


@pytest.mark.slow  # 20 s of CPU: each worker imports torch
def test_two_workers_give_what_this_process_gives(tmp_path, job, choice, short_folder):
    alone, listening = run_embed(job, choice, tmp_path / "alone"), set()
    command = [*COMMAND, *words(tmp_path, choice, "--processes", "2", "--json")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=ONE_THREAD | {"TMPDIR": str(short_folder)}, **pipes)
    while process.poll() is None:
        with suppress(psutil.Error):  # of processes that end just now
            for child in psutil.Process(process.pid).children(recursive=True):
                connections = child.net_connections("tcp")
                listening |= {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
        time.sleep(0.5)
    output, error = process.communicate()
    assert process.returncode == 0, error
    assert {line for line in error.splitlines() if not line.startswith("WARNING: Waiting")} == set()
    result = json.loads(output)
    assert [result[key] for key in ("rows", "resumed", "shards", "tokens")] == [90, 0, 9, alone.tokens]
    assert np.abs(vectors(tmp_path / "out") - vectors(tmp_path / "alone")).max() < 1e-5
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}, "nobody else is let in"
    assert list(short_folder.glob("layerwise-ray-*")) == []
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {".lock", "_embed.json", *(f"part-00000{n}.parquet" for n in range(9))}
    manifests = [json.loads((tmp_path / name / "_embed.json").read_text()) for name in ("out", "alone")]
    assert [one.pop("checksums").keys() for one in manifests] == [{f"part-00000{n}.parquet" for n in range(9)}] * 2
    assert len({one.pop("loading")["name"] for one in manifests}) == 1  # the command names options that are defaults
    assert manifests[0] == manifests[1]


def test_a_finished_run_needs_no_cluster(tmp_path, job, choice):
    run_embed(job, choice, tmp_path / "out")
    began = dict(os.environ)
    result = run_embed(job, choice, tmp_path / "out", engine="ray")
    assert (result.rows, result.resumed) == (0, 90)
    assert dict(os.environ) == began
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()


@dataclass(frozen=True)
class SlowChoice(ModelChoice):
    """A model that takes a moment for each batch of rows, in workers."""

    def load(self, device=None):
        model = super().load(device)
        forward = model.forward
        model.forward = lambda *batch: (time.sleep(0.05), forward(*batch))[1]
        return model


@dataclass(frozen=True)
class DeadlyChoice(ModelChoice):
    """A model whose loading ends the process, unless it is this one."""

    here: int = 0

    def load(self, device=None):
        if os.getpid() != self.here:
            os._exit(1)
        return super().load(device)


@pytest.fixture
def sent_whole():
    """Classes of this file go to the workers as they are, who cannot import it."""
    import ray

    module = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(module)
    yield
    ray.cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_rows_are_counted_once(tmp_path, job, choice, tiny_bert, sent_whole):
    run_embed(job, choice, tmp_path / "alone")
    slow, counted, killed = SlowChoice(str(tiny_bert), options={"device": "cpu"}), [], []

    def progress(rows: int) -> None:
        counted.append(rows)
        if len(killed) < 2:
            victim = next(worker for worker in ray_workers(os.getpid()) if worker.pid not in killed)
            victim.kill()
            killed.append(victim.pid)

    result = run_embed(job, slow, tmp_path / "out", engine="ray", processes=2, progress=progress)
    assert len(killed) == 2
    assert (result.rows, result.shards, sum(counted)) == (90, 9, 90)
    assert np.abs(vectors(tmp_path / "out") - vectors(tmp_path / "alone")).max() < 1e-5


@pytest.mark.slow
def test_workers_that_die_again_and_again_end_the_run_with_one_line(tmp_path, job, tiny_bert, sent_whole):
    deadly = DeadlyChoice(str(tiny_bert), options={"device": "cpu"}, here=os.getpid())
    with pytest.raises(ModelError, match=r"a Ray worker died 4 times at the same work: .*; run the same command again"):
        run_embed(job, deadly, tmp_path / "out", engine="ray", processes=1)
    assert not (tmp_path / "out").exists(), "nothing was written"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_command_is_stopped_leaves_no_worker_and_is_resumed(tmp_path, job, choice, number, short_folder):
    run_embed(job, choice, tmp_path / "alone")
    command = [*COMMAND, *words(tmp_path, choice, "--processes", "2")]
    environment = ONE_THREAD | {"TMPDIR": str(short_folder)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list((tmp_path / "out").glob("part-*")) and process.poll() is None:
        time.sleep(0.002)
    workers = ray_workers(process.pid)
    assert len(workers) >= 1
    os.kill(process.pid, signal.SIGKILL) if number == signal.SIGKILL else os.killpg(process.pid, number)
    error = process.communicate(timeout=60)[1]
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []
    kept = len(list((tmp_path / "out").glob("part-*")))
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert error.splitlines()[-1].startswith("error: interrupted; the shards written before are kept")
    if number != signal.SIGKILL:
        assert list(short_folder.glob("layerwise-ray-*")) == []
        assert "Traceback" not in error
    result = run_embed(job, choice, tmp_path / "out", engine="ray", processes=2)
    assert result.resumed >= 10 * kept
    assert np.abs(vectors(tmp_path / "out") - vectors(tmp_path / "alone")).max() < 1e-5


@pytest.fixture
def bucket(tmp_path):
    """A URL on a real S3 server, with the rows of `job` below it."""
    with s3_server(tmp_path / "s3"):
        place_of("s3://vectors/ray/rows.txt").write_bytes("".join(text + "\n" for text in TEXTS).encode())
        yield "s3://vectors/ray"


@pytest.mark.slow
def test_a_worker_writes_to_a_store_what_this_process_writes_locally(tmp_path, job, choice, bucket):
    run_embed(job, choice, tmp_path / "alone")
    options = ["--keep", "text", "--shard-rows", "10", "--device", "cpu", "--engine", "ray", "--processes", "1"]
    result = call_json("embed", choice.name, f"{bucket}/rows.txt", "-o", f"{bucket}/out", *options)
    assert [result[key] for key in ("rows", "resumed", "shards", "out")] == [90, 0, 9, f"{bucket}/out"]
    stored, local = VectorFiles.of(f"{bucket}/out"), VectorFiles.of(tmp_path / "alone")
    (numbers, table), (expected, columns) = stored.read(), local.read()
    assert table.equals(columns), "rows and texts, in order"
    assert np.abs(numbers - expected).max() < 1e-5
    assert [stored.settings[key] for key in ("rows", "shards", "model", "finished")] == [
        local.settings[key] for key in ("rows", "shards", "model", "finished")
    ]
    assert verify_vectors(f"{bucket}/out", model=choice.name).faults == ()
    left = sorted(path.name for path in place_of(f"{bucket}/out").iterdir() if path.name.startswith("."))
    assert left == [], "neither lock, mark nor unfinished objects"
    again = run_embed(
        replace(job, source=RowSource.of(f"{bucket}/rows.txt", ("text", "text"))), choice, f"{bucket}/out"
    )
    assert (again.rows, again.resumed) == (0, 90), "the local engine finds all shards"


@pytest.mark.slow
def test_a_cluster_that_is_running_is_joined_and_left_running(tmp_path, job, choice, monkeypatch):
    for name, value in {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "b" * 64}.items():
        monkeypatch.setenv(name, value)
    run_embed(job, choice, tmp_path / "alone")
    with tempfile.TemporaryDirectory(prefix="lw-ray-", dir="/tmp") as temp:
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--port", "0", "--num-cpus", "2"]
        options = ["--include-dashboard=false", "--temp-dir", temp, "--disable-usage-stats"]
        subprocess.run([*start, *options], check=True, stdout=subprocess.DEVNULL)
        address = (Path(temp) / "ray_current_cluster").read_text().strip()
        try:
            for _ in range(2):
                command = [*COMMAND, *words(tmp_path, choice, "--processes", "2", "--address", address, "--overwrite")]
                subprocess.run(command, env=ONE_THREAD | dict(os.environ), check=True)
                assert np.abs(vectors(tmp_path / "out") - vectors(tmp_path / "alone")).max() < 1e-5
        finally:
            for process in psutil.process_iter():
                with suppress(psutil.Error):
                    if process.pid != os.getpid() and any(temp in word for word in process.cmdline()):
                        process.kill()


# How workers are shared out


@pytest.mark.parametrize(
    ("nodes", "processes", "device", "expected"),
    [
        ([{"CPU": 2.0}], None, None, Share(1, 2, 0, "cpu")),
        ([{"CPU": 2.0}], 2, None, Share(2, 1, 0, "cpu")),
        ([{"CPU": 8.0}, {"CPU": 4.0}, {"memory": 9.0}], None, None, Share(2, 4, 0, "cpu")),
        ([{"CPU": 8.0}, {"CPU": 4.0}], 3, None, Share(3, 2, 0, "cpu")),
        ([{"CPU": 8.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}], None, None, Share(6, 1, 1, "cuda")),
        ([{"CPU": 8.0, "GPU": 4.0}], 2, "cuda", Share(2, 1, 1, "cuda")),
        ([{"CPU": 8.0, "GPU": 4.0}], None, "cpu", Share(1, 8, 0, "cpu")),
    ],
)
def test_workers_are_shared_out_by_gpus_or_machines(nodes, processes, device, expected):
    assert share_out(nodes, processes=processes, device=device) == expected


@pytest.mark.parametrize(
    ("nodes", "processes", "device", "message"),
    [
        ([{"CPU": 2.0}], None, "cuda", "1 workers need a GPU each and the cluster has 0; give fewer --processes, or"),
        ([{"CPU": 8.0, "GPU": 4.0}], 5, None, "5 workers need a GPU each and the cluster has 4"),
        ([{"CPU": 2.0}], 3, None, "3 workers need a CPU each and the cluster has 2; give fewer --processes"),
        ([{"memory": 1.0}], None, None, "0 workers need a CPU each and the cluster has 0"),
    ],
)
def test_workers_for_which_there_is_no_room_are_refused(nodes, processes, device, message):
    with pytest.raises(InputError, match=re.escape(message)):
        share_out(nodes, processes=processes, device=device)


# What cannot be used


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "spark"}, "Unknown engine 'spark'. Known: local, ray"),
        ({"name": "local", "address": "auto"}, "the address 'auto' is that of a Ray cluster; pass --engine ray too"),
        ({"name": "ray", "processes": 0}, "processes must be 1 or more, not 0"),
        ({"name": "ray", "devices": ["cuda:0", "cuda:1"]}, "pass --device cuda or cpu, not cuda:0,cuda:1"),
        (
            {"name": "ray", "address": "ray://head:10001"},
            "'ray://head:10001' is no address of a Ray cluster; give auto",
        ),
        ({"name": "ray", "address": "127.0.0.1:99999"}, "no Ray cluster can be reached at 127.0.0.1:99999: "),
    ],
)
def test_bad_choices_are_refused(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        choose_engine(**options)


def test_a_cluster_that_cannot_be_reached_is_one_line(tmp_path, tiny_bert, job, monkeypatch, capfd):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"  # nobody listens
        words = ["embed", tiny_bert, tmp_path / "rows.txt", "-o", tmp_path / "out", "--engine", "ray"]
        said = run_main(monkeypatch, capfd, *words, "--address", address)
    assert_one_line(*said, f"no Ray cluster can be reached at {address}: Connection refused; check the address")
    assert not (tmp_path / "out").exists()


def test_without_ray_the_line_that_installs_it_is_told(monkeypatch):
    monkeypatch.setattr("layerwise.extras.find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=re.escape("`--engine ray` needs ray: pip install 'layerwise[ray]'")):
        choose_engine("ray")


# What a worker does


def test_a_worker_writes_at_a_flush_and_goes_on(tmp_path, job, choice):
    (tmp_path / "out").mkdir()
    first, second, third = list(chunks(job))[:3]
    tasks, reports = queue.Queue(), []
    for task in (Flush(), first, second, Flush(), Flush(), third, None):
        tasks.put(task)
    WorkerJob(choice, job, ShardFolder(tmp_path / "out", job), None, 1).run(tasks, reports.append)
    assert isinstance(reports[0], Ready)
    assert [one.number for one in reports if isinstance(one, Written)] == [0, 1, 2]
    before_third = reports[: reports.index(next(one for one in reports if getattr(one, "number", None) == 1))]
    assert sum(one.rows for one in before_third if isinstance(one, Embedded)) == 20, "written before the third is read"
    counts = choice.load().encoder.token_counts(TEXTS[:30])
    assert [one.tokens for one in reports if isinstance(one, Written)] == [sum(counts[n : n + 10]) for n in (0, 10, 20)]


def test_a_worker_with_another_model_is_refused(tmp_path, job, choice, tiny_folders):
    settings = job.settings(choice.load())
    other = ModelChoice(str(tiny_folders["electra"]), options={"device": "cpu"})
    reports = []
    WorkerJob(other, job, ShardFolder(tmp_path, job), None, 1, settings).run(queue.Queue(), reports.append)
    assert len(reports) == 1
    assert "electra: a worker's model differs from that of this process; put the same model" in str(reports[0])


def test_what_a_worker_did_not_expect_is_reported(job, tmp_path):
    worker = RayWorker(WorkerJob(None, job, ShardFolder(tmp_path, job), None, 1))
    [report] = worker.take()
    assert str(report).startswith("a worker failed: AttributeError: ")


# Whose folder it is


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_a_worker_that_outlives_its_run_writes_nothing_into_the_next(tmp_path, job, format):
    job = EmbedJob(RowSource.of(job.source.path, ("text",)), shard_rows=10, format=format)
    chunk, numbers = next(chunks(job)), np.ones((10, 4), dtype=np.float32)
    folder = ShardFolder(tmp_path / "out", job)
    with folder.opened({}, overwrite=False):
        with folder.claimed() as old:
            old.write(chunk, numbers)
            (tmp_path / "out" / f".part-000003.4711.{format}").write_bytes(b"of a worker that was killed")
            assert folder.path(0).is_file()
            folder.path(0).unlink()
        with pytest.raises(InputError, match="out: a worker does not find the folder of this run there; give a folder"):
            old.write(chunk, numbers)
        with folder.claimed() as new:
            with pytest.raises(InputError, match="a worker does not find the folder of this run there"):
                old.write(chunk, numbers)
            assert not folder.path(0).exists()
            new.write(chunk, numbers)
        assert folder.path(0).is_file()
    assert not list((tmp_path / "out").glob(".*part*"))
    assert not (tmp_path / "out" / ".run").exists()


def test_a_new_run_takes_the_folder_from_a_killed_one(tmp_path, job):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".run").write_text("killed")
    with ShardFolder(tmp_path / "out", job).opened({}, overwrite=False):
        with pytest.raises(InputError, match="a worker does not find the folder of this run"):
            ShardFolder(tmp_path / "out", job, run="killed").check_run()


def test_folders_of_killed_runs_are_removed_and_those_in_use_are_not(tmp_path, monkeypatch):
    base = Path(tempfile.mkdtemp(prefix="lw", dir="/tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(base))
    (base / "layerwise-ray-killed" / "session").mkdir(parents=True)
    (base / "layerwise-ray-new").mkdir()
    (base / "other").mkdir()
    with _scratch_folder() as used:
        long_ago = time.time() - 3600
        for name in ("layerwise-ray-killed", used.name):
            os.utime(base / name, (long_ago, long_ago))
        with _scratch_folder() as second:
            assert {path.name for path in base.iterdir()} == {"layerwise-ray-new", "other", used.name, second.name}
    (base / "layerwise-ray-new").rmdir()
    (base / "other").rmdir()
    base.rmdir()
