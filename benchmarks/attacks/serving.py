"""A server among strangers: malformed requests of every kind, against a server in this process.

Whatever comes, the answer is never a 5xx and has no traceback in it, and afterwards the server answers as before.
"""

import json
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from attack import Attack, Tally

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from layerwise.model import LayerModel
from layerwise.muted import quiet
from support.serving import Running, running
from support.tiny import SENTENCES, save_tiny

COUNT = 10_000
PATHS = ("/v1/embeddings", "/v1/similarity", "/v1/predict", "/v1/search")
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
Random = np.random.Generator
_SECONDS = 30


def generate(random: Random, count: int) -> Iterator[tuple[str, bytes, bool]]:
    """So many requests: their kind, the bytes, and whether the client leaves before it reads."""
    kinds: tuple[Callable[[Random], bytes], ...] = (
        *(broken_json, wrong_types, huge_numbers, deep_nesting, bad_encoding, hostile_mixes),
        *(path_tricks, header_floods, wrong_lengths, no_http),
    )
    for _ in range(count):
        kind = kinds[random.integers(len(kinds))]
        yield kind.__name__, kind(random), bool(random.random() < 0.1)


def _path(random: Random) -> str:
    return PATHS[random.integers(len(PATHS))]


def _good(random: Random) -> dict:
    good = ({"input": "A river."}, {"input": ["a", "b"]}, {"pairs": [["a", "b"]]}, {"input": [5, 6], "layers": "1,2"})
    return {"model": "tiny", **good[random.integers(len(good))]}


def _value(random: Random, depth: int) -> object:
    """Any JSON value."""
    plain = (None, True, 0, -1, 2**70, 1.5, "", "a", "\ud83d\ude00" * 9, "last", "A river rose.")
    kind = random.integers(4)
    if kind < 2 or not depth:
        return plain[random.integers(len(plain))]
    values = [_value(random, depth - 1) for _ in range(random.integers(0, 4))]
    return values if kind == 2 else {str(number): value for number, value in enumerate(values)}


def post(path: str, body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    """A request on a connection of its own."""
    size = len(body) if length is None else length
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: localhost", b"Content-Type: application/json"]
    lines.append(b"Connection: close")
    return b"\r\n".join([*lines, b"Content-Length: %d" % size, *headers, b"", b""]) + body


def broken_json(random: Random) -> bytes:
    """A good body with bytes cut out, doubled or changed."""
    body = bytearray(json.dumps(_good(random)).encode())
    for _ in range(random.integers(1, 4)):
        place = int(random.integers(len(body)))
        body[place : place + int(random.integers(0, 4))] = random.bytes(int(random.integers(0, 3)))
    return post(_path(random), bytes(body))


def wrong_types(random: Random) -> bytes:
    """Known and unknown fields with values of any type."""
    body = {str(random.choice(FIELDS)): _value(random, 3) for _ in range(random.integers(0, 5))}
    return post(_path(random), json.dumps(body if random.random() < 0.9 else _value(random, 2)).encode())


def huge_numbers(random: Random) -> bytes:
    """Numbers beyond every type."""
    number = str(
        random.choice(["1e999", "-1e999", "9" * 400, "NaN", "Infinity", "-0", "1.5", str(2**63), str(-(2**63))])
    )
    field = str(random.choice(["dimensions", "top_k", "input", "layers"]))
    value = number if field != "input" else f"[{number}]"
    return post(_path(random), f'{{"input": "a", "{field}": {value}}}'.encode())


def deep_nesting(random: Random) -> bytes:
    """Lists and objects inside each other."""
    depth = int(random.integers(50, 20_000))
    opening = random.choice([b"[", b'{"a":', b'{"input":['])
    return post(_path(random), bytes(opening) * depth)


def bad_encoding(random: Random) -> bytes:
    """Bytes that are no UTF-8, halves of surrogate pairs, control characters."""
    text = [random.bytes(20), b"\\ud800", b"\xed\xa0\x80", b"\x00\x01", b"\\u0000", b"\xff\xfe", b"\\u202e"]
    return post(_path(random), b'{"input": "%b"}' % text[random.integers(len(text))])


def hostile_mixes(random: Random) -> bytes:
    """Texts of mixes, poolings and prompts that ask for too much or say nothing."""
    body = {"input": "a", "layers": MIXES[random.integers(len(MIXES))]}
    if random.random() < 0.3:
        body["pooling"] = MIXES[random.integers(len(MIXES))]
    return post("/v1/embeddings", json.dumps(body).encode())


def path_tricks(random: Random) -> bytes:
    """Addresses that lead elsewhere, and methods that nobody takes."""
    method = str(random.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X" * 30]))
    return f"{method} {random.choice(TRICKS)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


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
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        return head + bytes(random.choice([b"zz\r\n", b"ffffffffffffffff\r\na", b"5\r\nab\r\n", b"0\r\n\r\nGET /"]))
    return post("/v1/embeddings", b'{"input": "a"}', length=int(random.choice([0, 3, 100, 10**9, 10**18, -1])))


def no_http(random: Random) -> bytes:
    """Bytes that are no request at all."""
    return random.bytes(int(random.integers(1, 300))) + bytes(random.choice([b"", b"\r\n\r\n"]))


def send(server: Running, request: bytes, leaves: bool) -> bytes:
    """Send it; the answer, or nothing where the client leaves or the server hangs up."""
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as connection:
        try:
            connection.sendall(request)
            if leaves:
                return b""
            connection.shutdown(socket.SHUT_WR)  # a body that is too short ends here
            parts = []
            while part := connection.recv(65_536):
                parts.append(part)
            return b"".join(parts)
        except TimeoutError:
            raise
        except OSError:  # the server has hung up already
            return b""


def attack_server(server: Running, random: Random, count: int) -> Tally:
    """Send malformed requests, and check each answer; at the end the server must be as it was."""
    tally, expected = Tally(), server.embed(input=SENTENCES)
    for kind, request, leaves in generate(random, count):
        try:
            answer = send(server, request, leaves)
        except TimeoutError:
            tally.check(False, f"{kind}: no answer within {_SECONDS} s to {request[:200]!r}")
            continue
        status = answer[9:12].decode("ascii", "replace")
        is_good = (not answer) or (answer.startswith(b"HTTP/1.1 ") and not status.startswith("5"))
        tally.check(is_good and b"Traceback" not in answer, f"{kind}: {answer[:80]!r} to {request[:300]!r}")
    tally.check(server.client.get("/readyz").status_code == 200, "not ready afterwards")
    same = np.allclose(server.embed(input=SENTENCES), expected, rtol=0, atol=1e-5)
    tally.check(same, "other numbers afterwards")
    return tally


def malformed(random: Random, folder: Path) -> Tally:
    """All kinds of them."""
    with quiet():
        model = LayerModel.load(save_tiny("bert", folder / "bert"), device="cpu")
    with running({"tiny": model}, deadline=20.0) as server:
        return attack_server(server, random, COUNT)


ATTACKS = [
    Attack(
        "malformed-requests",
        "10,000 requests to a server: broken JSON, wrong types, huge numbers, deep nesting, bytes that are no UTF-8, "
        "hostile mixes, path tricks, header floods, wrong lengths, closed sockets",
        "never a 5xx, never a traceback; afterwards it serves the same numbers",
        malformed,
        test="tests/serve/test_malformed.py",
    )
]
