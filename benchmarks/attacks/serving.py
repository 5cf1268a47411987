"""A server among strangers: malformed requests of every kind, against a server in this process.

It has a model with tasks, an index, and keys, one of which most requests send. Whatever comes, from several clients at
a time, the answer is never a 5xx, neither it nor the log has a traceback, and afterwards the server answers as before.
"""

import io
import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from attack import Attack, Tally

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from layerwise.model import LayerModel
from layerwise.muted import quiet
from support.serving import KEY, Running, behind_a_key, with_heads, with_index
from support.tiny import SENTENCES, save_tiny

COUNT = 10_000
FIELDS = (
    *("input", "model", "layers", "pooling", "prompt_name", "truncate", "normalize", "encoding_format", "dimensions"),
    *("pairs", "task", "index", "top_k", "user", "__proto__", "constructor", "\u0000", "x" * 3000),
)
TRICKS = (
    *("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page/../app.py", "//", "/\\..\\", "/v1/embeddings/../models"),
    *(
        "/v1//embeddings",
        "/v1/embeddings%00",
        "/v1/embeddings;x",
        "/?" + "a=1&" * 500,
        "/v1/layers?model=" + "%ff" * 50,
    ),
    *(
        "/v1/layers?model=..%2f..%2f",
        "/docs/../openapi.json",
        "*",
        "http://example.org/",
        "/%",
        "/page.js/../settings.py",
    ),
)
MIXES = (
    *("1-99999999999", "views(0-99999999 @ mean)", "last-0", "concat()", "concat(" + "1," * 500 + "2)"),
    *("wk(start=-9)", "1:nan", "1:1e400", "0:1,1:-1", "|", "@", "@ mean", "1 @ mean in eol", "9" * 900, "(" * 900),
    *('1 @ last in "{text}{text}{text}"', '1 @ last in "' + "a " * 200 + '{text}"', "attention(cls, mean)", "views()"),
    *("1 @ " + "x" * 900, '1 @ mask in "{text} {mask}"', '1 @ mean in "{text}" over second', "\u0661", "1,1,1", "all"),
    "views(1 @ mean; less 8)",
)
GOOD: dict[str, tuple[dict, ...]] = {
    "/v1/embeddings": ({"input": "A river."}, {"input": ["a", "b"]}, {"input": [5, 6], "layers": "1,2"}),
    "/v1/similarity": ({"pairs": [["a", "b"]]}, {"pairs": [["a", "b"], ["b", "c"]], "layers": "all"}),
    "/v1/predict": ({"input": ["a"], "task": "mood"}, {"input": [["a", "b"]], "task": "near", "truncate": True}),
    "/v1/search": ({"input": "a"}, {"input": ["a", "b"], "index": "mine", "top_k": 3}),
}
PATHS = tuple(GOOD)
Random = np.random.Generator
_SECONDS, _PATIENCE, _CLIENTS = 30, 0.3, 8
_AUTHORIZED = b"Authorization: Bearer " + KEY.encode()


@dataclass(frozen=True)
class Sent:
    """A request: its kind, its bytes in parts with a pause after each, whether the client leaves before it reads."""

    kind: str
    parts: tuple[bytes, ...]
    pause: float
    leaves: bool


def generate(random: Random, count: int) -> Iterator[Sent]:
    """So many requests."""
    kinds: tuple[Callable[[Random], bytes | tuple[bytes, ...]], ...] = (
        *(broken_json, wrong_types, huge_numbers, deep_nesting, bad_encoding, hostile_mixes),
        *(path_tricks, header_floods, wrong_lengths, no_http, slow_bodies),
    )
    for _ in range(count):
        kind = kinds[random.integers(len(kinds))]
        request = kind(random)
        parts = (request,) if isinstance(request, bytes) else request
        yield Sent(kind.__name__, parts, float(random.uniform(0.005, 0.1)), bool(random.random() < 0.1))


def _good(random: Random) -> tuple[str, dict]:
    """An address and a body that it takes."""
    path = PATHS[random.integers(len(PATHS))]
    body = GOOD[path][random.integers(len(GOOD[path]))]
    return path, body if path == "/v1/search" or random.random() < 0.5 else {"model": "tiny", **body}


def _value(random: Random, depth: int) -> object:
    """Any JSON value."""
    plain = (None, True, 0, -1, 2**70, 1.5, "", "a", "\ud83d\ude00" * 9, "last", "A river rose.")
    kind = random.integers(4)
    if kind < 2 or not depth:
        return plain[random.integers(len(plain))]
    values = [_value(random, depth - 1) for _ in range(random.integers(0, 4))]
    return values if kind == 2 else {str(number): value for number, value in enumerate(values)}


def post(path: str, body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    """A request with the key on a connection of its own."""
    size = len(body) if length is None else length
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: localhost", b"Content-Type: application/json"]
    lines += [b"Connection: close", *([] if any(b"Authorization" in header for header in headers) else [_AUTHORIZED])]
    return b"\r\n".join([*lines, b"Content-Length: %d" % size, *headers, b"", b""]) + body


def broken_json(random: Random) -> bytes:
    """A good body with bytes cut out, doubled or changed."""
    path, good = _good(random)
    body = bytearray(json.dumps(good).encode())
    for _ in range(random.integers(1, 4)):
        place = int(random.integers(len(body)))
        body[place : place + int(random.integers(0, 4))] = random.bytes(int(random.integers(0, 3)))
    return post(path, bytes(body))


def wrong_types(random: Random) -> bytes:
    """A good body, or none, with known and unknown fields of any type."""
    path, good = _good(random)
    known = [*good, "truncate"]
    wrong = {str(random.choice(FIELDS)): _value(random, 3) for _ in range(random.integers(0, 5))}
    if random.random() < 0.7:
        wrong = good | {str(random.choice(known)): _value(random, 3)} | (wrong if random.random() < 0.2 else {})
    return post(path, json.dumps(wrong if random.random() < 0.9 else _value(random, 2)).encode())


def huge_numbers(random: Random) -> bytes:
    """Numbers beyond every type."""
    number = str(
        random.choice(["1e999", "-1e999", "9" * 400, "NaN", "Infinity", "-0", "1.5", str(2**63), str(-(2**63))])
    )
    path, good = _good(random)
    field = str(random.choice([*good, "dimensions", "top_k"]))
    body = json.dumps(good | {field: None}).replace(f'"{field}": null', f'"{field}": {random.choice(["%s", "[%s]"])}')
    return post(path, (body % number).encode())


def deep_nesting(random: Random) -> bytes:
    """Lists and objects inside each other."""
    depth = int(random.integers(50, 20_000))
    opening = random.choice([b"[", b'{"a":', b'{"input":['])
    return post(PATHS[random.integers(len(PATHS))], bytes(opening) * depth)


def bad_encoding(random: Random) -> bytes:
    """Bytes that are no UTF-8, halves of surrogate pairs, control characters."""
    text = [random.bytes(20), b"\\ud800", b"\xed\xa0\x80", b"\x00\x01", b"\\u0000", b"\xff\xfe", b"\\u202e"]
    path = PATHS[random.integers(len(PATHS))]
    form = {"/v1/similarity": b'{"pairs": [["%b", "a"]]}', "/v1/predict": b'{"input": ["%b"], "task": "mood"}'}
    return post(path, form.get(path, b'{"input": "%b"}') % text[random.integers(len(text))])


def hostile_mixes(random: Random) -> bytes:
    """Texts of mixes, poolings and prompts that ask for too much or say nothing."""
    body = {"input": "a", "layers": MIXES[random.integers(len(MIXES))]}
    if random.random() < 0.3:
        body["pooling"] = MIXES[random.integers(len(MIXES))]
    return post("/v1/embeddings", json.dumps(body).encode())


def path_tricks(random: Random) -> bytes:
    """Addresses that lead elsewhere, and methods that nobody takes."""
    method = str(random.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X" * 30]))
    head = f"{method} {random.choice(TRICKS)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()
    return head + (_AUTHORIZED + b"\r\n\r\n" if random.random() < 0.8 else b"\r\n")


def header_floods(random: Random) -> bytes:
    """Many headers, long ones, wrong ones."""
    floods = (
        [b"X-%d: y" % number for number in range(int(random.integers(100, 3000)))],
        [b"X: " + b"y" * int(random.integers(1000, 200_000))],
        [b"Authorization: Bearer \xff\xfe", b"Authorization: Basic ====", b"Content-Type: application/x"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: x"],
        [b"Expect: 100-continue", b"Upgrade: websocket", b"Connection: upgrade"],
        [b"no colon", b": no name", b"\x00: \x00"],
    )
    return post("/v1/embeddings", b'{"input": "a"}', *floods[random.integers(len(floods))])


def wrong_lengths(random: Random) -> bytes:
    """More or less body than was said; chunks that are none."""
    if random.random() < 0.3:
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n%b\r\n\r\n"
        chunks = (b"zz\r\n", b"ffffffffffffffff\r\na", b"5\r\nab\r\n", b"0\r\n\r\nGET /")
        return head % _AUTHORIZED + chunks[random.integers(len(chunks))]
    return post("/v1/embeddings", b'{"input": "a"}', length=int(random.choice([0, 3, 100, 10**9, 10**18, -1])))


def no_http(random: Random) -> bytes:
    """Bytes that are no request at all."""
    return random.bytes(int(random.integers(1, 300))) + bytes(random.choice([b"", b"\r\n\r\n"]))


def slow_bodies(random: Random) -> tuple[bytes, ...]:
    """A body that comes in parts, good or broken; half of them stop before the end."""
    path, good = _good(random)
    request = post(path, json.dumps(good).encode() + random.bytes(int(random.integers(0, 2))))
    start = request.index(b"\r\n\r\n") + 4
    cuts = sorted(int(cut) for cut in random.integers(start, len(request), int(random.integers(1, 5))))
    parts = tuple(request[one:other] for one, other in zip([0, *cuts], [*cuts, len(request)], strict=True))
    return parts if random.random() < 0.5 else parts[:-1]


def send(server: Running, request: Sent) -> bytes:
    """Send it; the answer, or nothing where the client leaves or the server hangs up."""
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as connection:
        try:
            for number, part in enumerate(request.parts):
                connection.sendall(part)
                if number < len(request.parts) - 1:
                    time.sleep(request.pause)
            if request.leaves:
                return b""
            connection.settimeout(_PATIENCE)
            try:
                answer = connection.recv(65_536)
            except TimeoutError:  # a request that is too short ends here; an earlier end would be a client that leaves
                connection.settimeout(_SECONDS)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(65_536)
            connection.settimeout(_SECONDS)
            return answer + b"".join(iter(lambda: connection.recv(65_536), b""))
        except TimeoutError:
            raise
        except OSError:  # the server has hung up already
            return b""


class _Log(logging.Handler):
    """The first line of every error and traceback that is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info or record.levelno >= logging.ERROR or "Traceback" in message:
            self.errors.append(f"logged: {message.splitlines()[0][:200]} {record.exc_info or ''}")


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """What this process logs as an error, and the tracebacks that it prints."""
    log, printed = _Log(), io.StringIO()
    logging.getLogger().addHandler(log)
    try:
        with redirect_stderr(printed):
            yield log.errors
    finally:
        logging.getLogger().removeHandler(log)
        log.errors += [f"printed: {line}" for line in printed.getvalue().splitlines() if "Traceback" in line]


def attack_server(server: Running, random: Random, count: int) -> Tally:
    """Send malformed requests, and check each answer; at the end the server must be as it was."""
    tally, expected = Tally(), server.embed(input=SENTENCES)

    def outcome(request: Sent) -> tuple[Sent, bytes | None]:
        try:
            return request, send(server, request)
        except TimeoutError:
            return request, None

    with logged_errors() as errors, ThreadPoolExecutor(_CLIENTS) as clients:
        for request, answer in clients.map(outcome, generate(random, count)):
            sent = b"".join(request.parts)[:300]
            if answer is None:
                tally.check(False, f"{request.kind}: no answer within {_SECONDS} s to {sent!r}")
                continue
            is_good = not answer or (answer.startswith(b"HTTP/1.1 ") and answer[9:10] in b"1234")
            tally.unanswered += not answer
            what = f"{request.kind}: {answer[:80]!r} to {sent!r}"
            tally.check(is_good and b"Traceback" not in answer, what)
    tally.check(not errors, "; ".join(errors[:5]))
    tally.check(server.client.get("/readyz").status_code == 200, "not ready afterwards")
    same = np.allclose(server.embed(input=SENTENCES), expected, rtol=0, atol=1e-5)
    tally.check(same, "other numbers afterwards")
    return tally


def malformed(random: Random, folder: Path) -> Tally:
    """All kinds of them."""
    with quiet():
        model = LayerModel.load(save_tiny("bert", folder / "bert"), device="cpu")
    served = with_index(with_heads(model, folder))
    with behind_a_key(served, folder, deadline=20.0) as server:
        return attack_server(server, random, COUNT)


ATTACKS = [
    Attack(
        "malformed-requests",
        "10,000 requests to a server: broken JSON, wrong types, huge numbers, deep nesting, bytes that are no UTF-8, "
        "hostile mixes, path tricks, header floods, wrong lengths, slow bodies, closed sockets; 8 at a time",
        "never a 5xx, never a traceback in an answer or in the log; afterwards it serves the same numbers",
        malformed,
        test="tests/serve/test_malformed.py",
    )
]
