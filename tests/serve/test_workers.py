"""`layerwise serve --workers 2`: processes that share a socket, are replaced when they die, end with their parent."""

import os
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.serve import ServeSettings
from support.commands import COMMAND, assert_one_line, run_main
from support.serving import answers_around, assert_answered, vectors_of
from support.tiny import SENTENCES

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@dataclass
class Parent:
    """A server of two workers."""

    process: subprocess.Popen
    folder: Path  # of temporary files, and of what it logged
    url: str = ""

    @property
    def log(self):
        return (self.folder / "log").read_text()

    @property
    def workers(self):
        """Its children that serve; another one watches over what multiprocessing shares."""
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]

    def embed(self, texts=SENTENCES):
        answer = httpx.post(f"{self.url}/v1/embeddings", json={"input": texts}, timeout=60)
        assert answer.status_code == 200, answer.text
        return vectors_of(answer.json())

    def metrics(self):
        """Samples by name."""
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        embeddings = [s for s in samples if s.labels.get("path", "/v1/embeddings") == "/v1/embeddings"]
        return {sample.name: sample.value for sample in embeddings if "le" not in sample.labels}

    def texts_of(self, worker):
        """How many texts one worker has embedded."""
        files = list(self.folder.glob(f"layerwise-metrics-*/counter_{worker.pid}.db"))
        samples = [sample for metric in MultiProcessCollector.merge(files) for sample in metric.samples]
        return sum(sample.value for sample in samples if sample.name == "layerwise_texts_total")


@contextmanager
def two_workers(folder, *words):
    """`layerwise serve WORDS --workers 2` in a session of its own, until it has said its address."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*COMMAND, "serve", *map(str, words), "--workers", "2", "--port", "0", "--backend", "torch"],
            env=os.environ | ENVIRONMENT | {"TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    parent = Parent(process, folder)
    try:
        parent.url = process.stdout.readline().partition(" ")[0]
        assert parent.url.startswith("http"), parent.log
        yield parent
    finally:
        process.kill()
        process.communicate()


def until(condition):
    while not condition():
        time.sleep(0.02)


@pytest.fixture(scope="module")
def parent(tiny_bert, tmp_path_factory):
    with two_workers(tmp_path_factory.mktemp("workers"), tiny_bert, "--drain", "60") as made:
        yield made


@pytest.fixture(scope="module")
def expected(tiny_bert):
    return LayerModel.load(tiny_bert, device="cpu").encode(SENTENCES)


def test_all_workers_answer_as_one_process_does_and_the_parent_has_no_torch(parent, expected):
    assert len(parent.workers) == 2
    assert "torch" not in Path(f"/proc/{parent.process.pid}/maps").read_text()
    asked = 0
    with ThreadPoolExecutor(8) as clients:
        while not all(map(parent.texts_of, parent.workers)):
            for vectors in clients.map(lambda _: parent.embed(), range(16)):
                np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
                asked += 1
    until(lambda: parent.metrics()["layerwise_requests_total"] == asked)
    metrics = parent.metrics()
    assert metrics["layerwise_texts_total"] == asked * len(SENTENCES) == sum(map(parent.texts_of, parent.workers))
    assert metrics["layerwise_request_seconds_count"] == asked
    assert metrics["layerwise_waiting_tokens"] == 0
    assert metrics["layerwise_requests_in_flight"] == 1  # the one that asks


@pytest.mark.slow  # it starts another worker
def test_a_killed_worker_is_replaced_while_the_other_answers(parent, expected):
    before = parent.metrics()["layerwise_texts_total"]
    killed, other = parent.workers
    answered, broken, is_over = [], [], False

    def ask():
        while not is_over:
            try:
                answered.append(parent.embed())
            except httpx.TransportError as error:  # of a connection to the one that is killed
                broken.append(error)

    with ThreadPoolExecutor(4) as clients:
        asking = [clients.submit(ask) for _ in range(4)]
        until(lambda: len(answered) > 10)
        killed.kill()
        until(lambda: f"Worker {killed.pid} ended by signal 9; another one takes its place" in parent.log)
        count = len(answered)
        until(lambda: len(answered) > count + 10)
        until(lambda: "is ready" in parent.log)
        (new,) = set(parent.workers) - {killed, other}
        until(lambda: parent.texts_of(new))
        is_over = True
        for client in asking:
            client.result()
    for vectors in answered:
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    texts = (parent.metrics()["layerwise_texts_total"] - before) / len(SENTENCES)
    assert len(answered) <= texts <= len(answered) + len(broken)
    assert parent.metrics()["layerwise_requests_in_flight"] == 1


def test_sigterm_to_all_processes_answers_what_was_accepted_and_exits_0(parent, expected):
    """As systemd sends it: the workers get it twice."""
    workers = parent.workers
    answers = answers_around(parent.url, SENTENCES * 8, lambda: os.killpg(parent.process.pid, signal.SIGTERM))
    assert parent.process.wait() == 0
    assert_answered(answers, np.tile(expected, (8, 1)))
    assert not any(worker.is_running() for worker in workers)
    assert not list(parent.folder.glob("layerwise-metrics-*"))


@pytest.mark.slow  # two processes import torch
def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path):
    words = [*COMMAND, "serve", tmp_path, "--workers", "2", "--port", "0"]
    done = subprocess.run(words, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)
    assert_one_line(done.returncode, done.stdout, done.stderr, str(tmp_path))


def test_a_port_in_use_is_one_line(monkeypatch, capfd, tiny_bert):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, output, error = run_main(monkeypatch, capfd, "serve", tiny_bert, "--workers", "2", "--port", port)
    assert_one_line(code, output, error, "give another --port")


@pytest.mark.slow  # it starts a server of its own
def test_workers_end_with_a_parent_that_was_killed(tiny_bert, tmp_path):
    with two_workers(tmp_path, tiny_bert) as parent:
        workers = parent.workers
        parent.process.kill()
        _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


@pytest.mark.slow  # it starts workers again and again
def test_workers_that_die_again_and_again_end_the_server_with_1(tiny_bert, tmp_path):
    model = shutil.copytree(tiny_bert, tmp_path / "model")
    with two_workers(tmp_path, model) as parent:
        shutil.rmtree(model)
        killed, other = parent.workers
        killed.kill()
        assert parent.process.wait() == 1
        assert parent.log.count("cannot start: ") in (4, 5)  # the one that was killed may count
        last = "ERROR: Workers end as soon as they are started, the last one with code 1; giving up"
        assert parent.log.splitlines()[-1] == last
        assert not other.is_running()


@pytest.mark.slow  # it starts a server of its own
def test_a_second_signal_ends_workers_at_once(tiny_bert, tmp_path):
    with two_workers(tmp_path, tiny_bert, "--drain", "600", "--deadline", "600") as parent:
        port = int(parent.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            until(lambda: parent.metrics()["layerwise_requests_in_flight"] == 2)
            parent.process.send_signal(signal.SIGTERM)
            until(lambda: "1 requests in flight" in parent.log)
            parent.process.send_signal(signal.SIGTERM)
            assert parent.process.wait() == 0
        assert "workers that have not ended are killed" in parent.log


def test_workers_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert [ServeSettings(workers=count).cores_of_worker for count in (1, 3, 8, 16, 20)] == [16, 5, 2, 1, 1]
    monkeypatch.delattr(os, "sched_getaffinity")  # which macOS does not have
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert ServeSettings(workers=2).cores_of_worker == 5
    with pytest.raises(InputError, match="workers is 0"):
        ServeSettings(workers=0)
