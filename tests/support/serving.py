"""A server in a thread of this process, on a free port."""

import base64
import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import numpy as np
import pyarrow as pa
import uvicorn

from layerwise.index import ExactIndex
from layerwise.predict import Predictor, task_head
from layerwise.serve import ServedModel, ServeSettings, create_app
from layerwise.serve.load import Served, served_index
from layerwise.serve.server import server_config
from support.multitasking import save_tasks, task
from support.tiny import SENTENCES

KEY = "0123456789abcdef"
CLASSES = {"mood": ("bad", "good"), "near": ()}  # of texts, and a number of pairs


@dataclass
class Running:
    url: str
    app: object
    client: httpx.Client

    @property
    def service(self):
        return self.app.state.service

    def post(self, path, **body):
        return self.client.post(path, json=body)

    def embed(self, **body):
        """The vectors of a request that must succeed."""
        answer = self.post("/v1/embeddings", **body)
        assert answer.status_code == 200, answer.text
        return vectors_of(answer.json())


def vectors_of(answer):
    return np.array([numbers(item["embedding"]) for item in answer["data"]], dtype=np.float32)


def numbers(embedding):
    return np.frombuffer(base64.b64decode(embedding), "<f4") if isinstance(embedding, str) else embedding


def with_heads(layers, folder, names=tuple(CLASSES)):
    """A predictor whose heads have random weights."""
    setups = [task(name, save_tasks(folder)) for name in names]
    heads = {one.task.name: task_head(one, layers.width, len(CLASSES[one.task.name]) or 1, seed=1) for one in setups}
    return Predictor(layers, heads, {name: CLASSES[name] for name in names})


def with_index(model):
    """What is served as `tiny`, and an index `mine` of the sentences."""
    served = ServedModel("tiny", model)
    table = pa.table({"row": range(len(SENTENCES)), "text": SENTENCES})
    index = ExactIndex(served.model.encode(SENTENCES), table=table)
    return Served({"tiny": served}, {"mine": served_index("mine", index, [served], "mine")})


@contextmanager
def behind_a_key(served, folder, **settings):
    """Serve with a key, which the client has."""
    (folder / "keys").write_text(KEY)
    headers = {"Authorization": f"Bearer {KEY}"}
    with running(served, headers, keys=str(folder / "keys"), **settings) as server:
        yield server


@contextmanager
def running(models, headers=None, **settings):
    """Serve models until the end of the block."""
    given = ServeSettings(**{"port": 0} | settings)
    app = create_app(models, given)
    config = server_config(app, given)
    config.port = 0
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not start")
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, headers=headers) as client:
            yield Running(f"http://127.0.0.1:{port}", app, client)
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def _no_signals():
    yield


def refused(answer, status, *parts, param=None):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    for part in parts:
        assert part in error["message"]
    if param is not None:
        assert error["param"] == param
    assert len(error["message"].splitlines()) == 1
    return error


class Gate:
    """Holds every pass of an encoder until it is opened, and notes the layers that each pass read.

    `held` counts the passes that have come to it. A test that fails leaves it closed while its server ends, which waits
    for its passes: so no pass is held for ever.
    """

    longest = 100  # seconds

    def __init__(self, monkeypatch, encoder):
        self.opened, self.reached, self.passes = threading.Event(), threading.Event(), []
        self.held = 0
        self._read = encoder.read
        monkeypatch.setattr(encoder, "read", self.read)

    def read(self, tokens, mask, layers, poolings, places=None):
        self.held += 1
        self.reached.set()
        assert self.opened.wait(self.longest), "nobody opened the gate"
        self.passes.append((len(tokens), list(layers), list(poolings)))
        return self._read(tokens, mask, layers, poolings, places)


def answers_around(url, texts, send_signal):
    """Eight clients ask until a signal is sent, which happens when they are at it: every status and answer.

    A request is sent whole before the signal or after it; one that was sent before must be answered.
    """
    body = json.dumps({"input": texts})
    answers, broken, sending, under_load = [], [], threading.Lock(), threading.Event()
    signalled = False

    def ask():
        while not signalled:
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
            try:
                with sending:
                    after = signalled
                    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answers.append((answer.status, json.loads(answer.read())))
            except OSError as error:
                broken.append((after, error))
            finally:
                connection.close()
            if len(answers) > 20:
                under_load.set()

    with ThreadPoolExecutor(8) as clients:
        asking = [clients.submit(ask) for _ in range(8)]
        under_load.wait()
        with sending:
            signalled = True
            send_signal()
        for client in asking:
            client.result()
    assert all(after for after, _ in broken)
    return answers


def assert_answered(answers, expected):
    """Every answer has the embeddings, or says that the server ends."""
    assert {status for status, _ in answers} <= {200, 503}
    for status, answer in answers:
        if status == 200:
            np.testing.assert_allclose(vectors_of(answer), expected, rtol=0, atol=1e-5)
        else:
            assert answer["error"]["code"] == "shutting_down"


@contextmanager
def started(forks, *words, **variables):
    """`layerwise serve WORDS` as a process, on any free port unless one is named: the process and its address.

    `variables` are of its environment.
    """
    words = [*map(str, words)]
    if "--port" not in words:
        words += ["--port", "0"]
    process = forks.start("layerwise", "serve", *words, **variables)
    try:
        while "\n" not in process.stdout:
            assert process.poll() is None, process.stderr[-2000:]
            time.sleep(0.02)
        url = process.stdout.partition(" ")[0]
        assert url.startswith("http"), "it did not start"
        while True:
            try:
                if httpx.get(f"{url}/readyz", timeout=60).status_code == 200:
                    break
            except httpx.TransportError:
                assert process.poll() is None
        yield process, url
    finally:
        process.kill()
        process.wait()
