"""The server against sentence-transformers' encode behind a plain FastAPI route, in one run on one machine.

    python benchmarks/serve.py [--part speed|mixed|overload|soak] [--seconds 20] [--model default] [--infinity COMMAND]
    python benchmarks/serve.py --part cost --tokenizer FOLDER [--repeats 3]
    python benchmarks/serve.py --part gpu --texts FILE --tokenizer FOLDER [--workers 1,8] [--device cpu] [--out FILE]

- speed: STS sentences of mixed length by 1, 8 and 32 clients, one and 16 texts a request: texts a second, p50 and p99,
  also as a ratio to what `LayerModel.encode` reaches offline on the same texts, and to the plain route; and
  infinity-emb (`--infinity venv/bin/infinity_emb`, from an environment of its own), where it is given;
- mixed: requests with different `layers` against requests with equal ones;
- overload: eight times the clients that it can serve: what was answered, refused and how late, and the memory;
- soak: a steady load for `--seconds`, with the memory every few seconds;
- gpu: a BERT of base shape with random weights in bfloat16 on a GPU, 16 texts a request by many clients in several
  processes (light_clients.py), against `LayerModel.encode` on the same texts, for each number of server processes; with
  `--device cpu` a BERT of one small layer, to try it;
- cost: the CPU time of the event loop for a request of 16 texts, with such a small BERT on a CPU.

Servers run in processes of their own, and so do the clients, which all share the machine's cores.
"""

import argparse
import asyncio
import base64
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from embed import sts_sentences
from measure import RESULTS, machine

CLIENTS, TEXTS = (1, 8, 32), (1, 16)
CLIENT_PROCESSES, GPU_CLIENTS, WARM_UP = 6, (64, 256), 0.5
SMALL = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
LAYERS = ("6", "0,6", "1-3,6", "3-6", "6 @ cls", "concat(1,6)", "1:0.25,6:0.75", "6 @ max")  # all need all blocks
OURS = {"float": {}, "int8": {"precision": "int8"}}


@dataclass
class Load:
    """What some clients saw: seconds of each answered request, statuses of all of them."""

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int | str, int] = field(default_factory=dict)
    texts: int = 0
    wall: float = 0.0

    def summary(self) -> dict:
        """Texts a second and percentiles of the latency, in milliseconds."""
        taken = np.array(self.seconds or [np.nan]) * 1000
        return {
            "texts_per_second": round(self.texts / self.wall, 1),
            "p50_ms": round(float(np.percentile(taken, 50)), 1),
            "p99_ms": round(float(np.percentile(taken, 99)), 1),
            "statuses": self.statuses,
        }


class Client:
    """One connection that is kept, by asyncio alone: a client must not take the cores that the server needs."""

    def __init__(self, port: int, path: str = "/v1/embeddings") -> None:
        self._port = port
        self._path = path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(
            f"POST {self._path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        answer = await reader.readexactly(length)
        if "connection: close" in head:
            self.close()
        return int(head.split(" ")[1]), answer

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def load(port: int, bodies: list[bytes], texts: int, *, clients: int, seconds: float, path: str) -> Load:
    """So many clients that send the bodies in turn, each its next when the last is answered."""
    measured, waiting = Load(), iter(range(10**9))
    start = time.perf_counter()

    async def work() -> None:
        client = Client(port, path)
        while time.perf_counter() - start < seconds:
            body = bodies[next(waiting) % len(bodies)]
            began = time.perf_counter()
            status, _ = await client.post(body)
            measured.statuses[status] = measured.statuses.get(status, 0) + 1
            if status == 200:
                measured.seconds.append(time.perf_counter() - began)
                measured.texts += texts
            else:
                await asyncio.sleep(0.05)
        client.close()

    await asyncio.gather(*(work() for _ in range(clients)))
    measured.wall = time.perf_counter() - start
    return measured


def drive(port: int, bodies: list[bytes], texts: int, *, clients: int, seconds: float, path: str) -> Load:
    """`load` in this process."""
    return asyncio.run(load(port, bodies, texts, clients=clients, seconds=seconds, path=path))


def bodies_of(texts: list[str], count: int, layers: tuple[str, ...] = ()) -> list[bytes]:
    """Requests of so many texts each, as the openai package sends them."""
    groups = [texts[start : start + count] for start in range(0, len(texts) - count + 1, count)]
    return [
        json.dumps(
            {"input": group[0] if count == 1 else group, "encoding_format": "base64"}
            | ({"layers": layers[number % len(layers)]} if layers else {})
        ).encode()
        for number, group in enumerate(groups)
    ]


@contextmanager
def process(*command: str) -> Iterator[tuple[int, psutil.Process]]:
    """A server in a process of its own, on a free port: the port, and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        while True:
            if started.poll() is not None:
                sys.exit("the server did not start")
            try:
                status, _ = asyncio.run(Client(port).post(b'{"input": "A first sentence."}'))
                if status == 200:
                    break
            except OSError:
                time.sleep(0.2)
        yield port, psutil.Process(started.pid)
    finally:
        started.terminate()
        started.wait()


@contextmanager
def our_servers(*commands: list[str]) -> Iterator[list[tuple[int, psutil.Process]]]:
    """Servers of ours, started at the same time: the port and the process of each, when all workers are ready."""
    started = [subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        addresses = [one.stdout.readline().partition(" ")[0] for one in started]
        if not all(addresses):
            sys.exit("a server did not start")
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        yield list(zip(ports, (psutil.Process(one.pid) for one in started), strict=True))
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.communicate()


def plain_route(model: str, port: int) -> None:
    """What people write first: sentence-transformers' encode behind a FastAPI route."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from sentence_transformers import SentenceTransformer

    from layerwise.encoder import find_model

    encoder = SentenceTransformer(str(find_model(model).root))
    app = FastAPI()

    class Asked(BaseModel):
        input: str | list[str]

    @app.post("/v1/embeddings")
    def embed(asked: Asked) -> dict:
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        vectors = encoder.encode(texts)
        return {"data": [{"index": n, "embedding": vector.tolist()} for n, vector in enumerate(vectors)]}

    uvicorn.run(app, port=port, log_level="error")


def offline(model: str, texts: list[str], repeats: int = 3, **how: str) -> float:
    """Texts a second of `LayerModel.encode` on all texts."""
    from layerwise import LayerModel

    loaded = LayerModel.load(model, **how)
    loaded.encode(texts[:32])
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        loaded.encode(texts)
        taken.append(time.perf_counter() - start)
    return len(texts) / statistics.median(taken)


def largest_difference(ours: int, plain: int, texts: list[str]) -> float:
    """Of the numbers of both servers."""

    def ask(port: int) -> np.ndarray:
        _, body = asyncio.run(Client(port).post(bodies_of(texts, len(texts))[0]))
        rows = [item["embedding"] for item in json.loads(body)["data"]]
        return np.array([np.frombuffer(base64.b64decode(r), "<f4") if isinstance(r, str) else r for r in rows])

    return float(np.abs(ask(ours) - ask(plain)).max())


def speed(options: argparse.Namespace, texts: list[str]) -> dict:
    """Ours in float and in int8 and the plain route in turn, for each number of clients and texts."""
    rates = {name: offline(options.model, texts, **how) for name, how in OURS.items()}
    print("offline, texts/s:", rates, flush=True)
    cells = []
    commands = {
        "float": ours(options),
        "int8": [*ours(options), "--precision", "int8"],
        "plain": [sys.executable, __file__, "--plain", options.model],
    }
    if options.infinity:
        commands["infinity"] = infinity(options)
    with ExitStack() as servers:
        ports = {name: servers.enter_context(process(*command))[0] for name, command in commands.items()}
        difference = largest_difference(ports["float"], ports["plain"], texts[:64])
        for count, clients in itertools.product(TEXTS, CLIENTS):
            measured: dict[str, list[dict]] = {name: [] for name in ports}
            for _ in range(options.repeats):
                for name, where in ports.items():
                    bodies = bodies_of(texts, count)
                    part = drive(where, bodies, count, clients=clients, seconds=options.seconds, path="/v1/embeddings")
                    measured[name].append(part.summary())
            rate = {
                name: statistics.median(one["texts_per_second"] for one in parts) for name, parts in measured.items()
            }
            ratios = {name: round(rate[name] / rate["plain"], 2) for name in OURS}
            shares = {name: round(rate[name] / rates[name], 2) for name in OURS}
            cells.append({"clients": clients, "texts": count, "ratio": ratios, "of_offline": shares, **measured})
            print(clients, count, rate, ratios, shares, flush=True)
    rounded = {name: round(rate, 1) for name, rate in rates.items()}
    return {"offline_texts_per_second": rounded, "largest_difference": difference, "cells": cells}


def infinity(options: argparse.Namespace) -> list[str]:
    """infinity-emb by torch, with its own batching, at the address that all of them have."""
    from layerwise.encoder import find_model

    folder = str(find_model(options.model).root)
    quiet = ["--no-bettertransformer", "--log-level", "error"]  # which newer versions of transformers have not
    return [options.infinity, "v2", "--model-id", folder, "--device", "cpu", "--url-prefix", "/v1", *quiet]


def mixed(options: argparse.Namespace, texts: list[str]) -> dict:
    """Equal and different `layers`, in turn; equal ones ask for the last layer."""
    taken: dict[str, list[float]] = {"equal": [], "different": []}
    with process(*ours(options)) as (port, _):
        for _ in range(options.repeats):
            for name, layers in (("equal", LAYERS[:1]), ("different", LAYERS)):
                how = {"clients": 8, "seconds": options.seconds, "path": "/v1/embeddings"}
                taken[name].append(drive(port, bodies_of(texts, 16, layers), 16, **how).summary()["texts_per_second"])
                print(name, taken[name][-1], flush=True)
    ratio = statistics.median(b / a for a, b in zip(taken["equal"], taken["different"], strict=True))
    return {"texts_per_second": taken, "ratio": round(ratio, 3)}


def overload(options: argparse.Namespace, texts: list[str]) -> dict:
    """A little load, many times more than it can do, and the little load again."""
    with process(*ours(options), "--max-queue-tokens", "65536") as (port, running):
        calm = {"clients": 1, "seconds": 5, "path": "/v1/embeddings"}
        full = {"clients": 2, "seconds": 10, "path": "/v1/embeddings"}
        drive(port, bodies_of(texts, 64), 64, **full)  # all that it can do, so that nothing is allocated a first time
        before = drive(port, bodies_of(texts, 1), 1, **calm).summary()
        memory = [running.memory_info().rss]
        heavy = drive(
            port, bodies_of(texts, 64), 64, clients=options.clients, seconds=options.seconds, path="/v1/embeddings"
        )
        memory.append(running.memory_info().rss)
        time.sleep(5)  # what was accepted is answered
        after = drive(port, bodies_of(texts, 1), 1, **calm).summary()
        return {
            "clients": options.clients,
            "before": before,
            "overload": heavy.summary(),
            "slowest_seconds": round(max(heavy.seconds), 2),
            "after": after,
            "memory_bytes": memory,
            "memory_growth": round(memory[1] / memory[0] - 1, 3),
        }


def soak(options: argparse.Namespace, texts: list[str]) -> dict:
    """A steady load, and the memory as it runs."""
    memory, loads = [], []
    with process(*ours(options)) as (port, running):
        for _ in range(max(2, int(options.seconds // 10))):
            how = {"clients": 8, "seconds": 10, "path": "/v1/embeddings"}
            loads.append(drive(port, bodies_of(texts, 4, LAYERS), 4, **how).summary())
            memory.append(running.memory_info().rss)
            print(loads[-1]["texts_per_second"], memory[-1], flush=True)
    return {"memory_bytes": memory, "texts_per_second": [one["texts_per_second"] for one in loads]}


def gpu(options: argparse.Namespace, texts: list[str]) -> dict:
    """Many clients in several processes against one worker and several; each cell is written when it is measured."""
    from embed_gpu import base_shape_folder

    is_gpu = options.device != "cpu"
    how = {"dtype": "bfloat16", "device": "cuda"} if is_gpu else {"device": "cpu", "backend": "torch"}
    words = [word for name, value in how.items() for word in (f"--{name}", value)]
    options.device = None
    with tempfile.TemporaryDirectory() as folder:
        options.model = str(base_shape_folder(options.tokenizer, Path(folder), **({} if is_gpu else SMALL)))
        bodies = Path(folder) / "bodies"
        bodies.write_bytes(b"\n".join(bodies_of(texts, 16)))
        commands = [[*ours(options), *words, "--workers", str(workers)] for workers in options.workers]
        with our_servers(*commands) as servers:  # the others wait while one is measured
            rate = offline(options.model, texts, repeats=3, **how)
            part: dict = {"offline_texts_per_second": round(rate, 1), "client_processes": CLIENT_PROCESSES, "cells": []}
            print(f"offline: {rate:,.0f} texts/s", flush=True)
            for workers, (port, running) in zip(options.workers, servers, strict=True):
                light_load(port, bodies, running, clients=max(GPU_CLIENTS), seconds=1)  # warms up
                for clients, _ in itertools.product(GPU_CLIENTS, range(options.repeats)):
                    cell = light_load(port, bodies, running, clients=clients, seconds=options.seconds)
                    share = round(cell["texts_per_second"] / rate, 3)
                    part["cells"].append({"workers": workers, "clients": clients, "of_offline": share, **cell})
                    print(part["cells"][-1], flush=True)
                    options.write(part)
    return part


def cost(options: argparse.Namespace, texts: list[str]) -> dict:
    """What a request of 16 texts costs the event loop, whatever the model: CPU time, which others hardly change."""
    from embed_gpu import base_shape_folder

    taken = []
    with tempfile.TemporaryDirectory() as folder:
        options.model = str(base_shape_folder(options.tokenizer, Path(folder), **SMALL))
        bodies = Path(folder) / "bodies"
        bodies.write_bytes(b"\n".join(bodies_of(texts, 16)))
        with our_servers([*ours(options), "--backend", "torch"]) as [(port, running)]:
            light_load(port, bodies, running, clients=64, seconds=1)  # warms up
            for _ in range(options.repeats):
                before = loop_seconds(running)
                answered = light_load(port, bodies, running, clients=64, seconds=options.seconds)["statuses"]["200"]
                share = options.seconds / (options.seconds + WARM_UP)
                taken.append(round(1000 * (loop_seconds(running) - before) * share / answered, 3))
                print(f"{taken[-1]} ms a request", flush=True)
    return {"clients": 64, "texts": 16, "loop_ms_per_request": taken}


def loop_seconds(running: psutil.Process) -> float:
    """CPU time of a server's first thread, which has the event loop."""
    (thread,) = (one for one in running.threads() if one.id == running.pid)
    return thread.user_time + thread.system_time


def light_load(port: int, bodies: Path, running: psutil.Process, *, clients: int, seconds: float) -> dict:
    """What clients in several processes saw together, and the cores that the server's processes took."""
    script = str(Path(__file__).with_name("light_clients.py"))
    shares = [clients // CLIENT_PROCESSES + (number < clients % CLIENT_PROCESSES) for number in range(CLIENT_PROCESSES)]
    started = [
        subprocess.Popen(
            [sys.executable, script, str(port), str(bodies), "--clients", str(share), "--seconds", str(seconds),
             "--first", str(7 * number), "--warm-up", str(WARM_UP)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number, share in enumerate(shares) if share
    ]  # fmt: skip
    for one in started:
        one.stdout.readline()
    before, began = cpu_seconds(running), time.perf_counter()
    for one in started:
        one.stdin.write("go\n")
        one.stdin.flush()
    seen = [json.loads(one.communicate()[0]) for one in started]
    cores = (cpu_seconds(running) - before) / (time.perf_counter() - began)
    statuses: dict[str, int] = {}
    for status, count in (item for one in seen for item in one["statuses"].items()):
        statuses[status] = statuses.get(status, 0) + count
    load = Load(
        [taken for one in seen for taken in one["seconds"]], statuses, sum(one["texts"] for one in seen), seconds
    )
    return {"texts": 16, **load.summary(), "server_cores": round(cores, 2)}


def cpu_seconds(running: psutil.Process) -> float:
    """Of a server and its workers, so far."""
    times = [one.cpu_times() for one in (running, *running.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def ours(options: argparse.Namespace) -> list[str]:
    """The command that starts our server."""
    words = [sys.executable, "-m", "layerwise", "serve", options.model]
    return words + (["--device", options.device] if options.device else [])


PARTS = {"speed": speed, "mixed": mixed, "overload": overload, "soak": soak, "gpu": gpu, "cost": cost}


def main() -> None:
    """Run one part and put it beside the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, default="speed")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--sentences", type=int, default=800)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", type=int, default=64, help="of the overload")
    parser.add_argument("--model", default="default")
    parser.add_argument("--infinity", help="the command infinity_emb, as a peer in the part speed")
    parser.add_argument("--device")
    parser.add_argument("--texts", type=Path, help="one a line, instead of the sentences of STS")
    parser.add_argument("--tokenizer", type=Path, help="of the part gpu")
    parser.add_argument(
        "--workers", type=lambda text: [int(count) for count in text.split(",")], default=[1, 8], help="of the part gpu"
    )
    parser.add_argument("--out", type=Path, default=Path(RESULTS) / "serve.json")
    parser.add_argument("--plain", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        plain_route(options.plain, options.port)
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    results = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
    results.pop("machine", None)
    if options.texts:
        lines = options.texts.read_text(encoding="utf-8").splitlines()
        texts = [line for line in lines if line.strip()][: options.sentences]
    else:
        texts = sts_sentences(options.sentences)

    def write(part: dict) -> None:
        facts = {"seconds": options.seconds, "sentences": options.sentences, "machine": machine()}
        options.out.write_text(json.dumps(results | {options.part: facts | part}, indent=1) + "\n", encoding="utf-8")

    options.write = write
    write(PARTS[options.part](options, texts))


if __name__ == "__main__":
    main()
