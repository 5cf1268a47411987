"""Clients that take few of the cores that they share with the server: one process, raw sockets, prepared requests.

    python benchmarks/light_clients.py PORT BODIES --clients 32 --seconds 2 [--warm-up 0.5] [--first 0]

BODIES is a file of JSON bodies, one a line. The process says "ready", waits for a line on standard input, and then
every connection sends its next body as soon as the last is answered. Answers are read whole; one in a hundred is
decoded, and must have an embedding of finite numbers for each text. Prints one JSON object: texts that were answered,
seconds of each answer, statuses, all of what ended after the warm-up.
"""

import argparse
import base64
import json
import math
import selectors
import socket
import sys
import time
from array import array
from itertools import count
from pathlib import Path

HEAD = (
    b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
CHECKED = 100  # one answer of so many is decoded


class Connection:
    """One connection that is kept: a request is sent, and its answer read as it comes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parts: list[bytes] = []
        self._missing = 0
        self.began = 0.0

    def send(self, request: bytes) -> None:
        """Send a request; it fits into the socket's buffer."""
        self._parts, self._missing, self.began = [], 0, time.perf_counter()
        self.socket.sendall(request)

    def read(self) -> tuple[int, bytes] | None:
        """Read what is there: status and body of an answer that is whole."""
        part = self.socket.recv(1 << 18)
        if not part:
            sys.exit("the server closed a connection")
        self._parts.append(part)
        if self._missing:
            self._missing -= len(part)
        else:
            whole = b"".join(self._parts)
            head, end, body = whole.partition(b"\r\n\r\n")
            if not end:
                return None
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            self._missing = length - len(body)
        if self._missing > 0:
            return None
        head, _, body = b"".join(self._parts).partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body


def check(body: bytes, texts: int) -> None:
    """Refuse an answer that lacks an embedding or has numbers that are not finite."""
    rows = [array("f", base64.b64decode(item["embedding"])) for item in json.loads(body)["data"]]
    if len(rows) != texts or not all(row and all(map(math.isfinite, row)) for row in rows):
        sys.exit("an answer is wrong")


def main() -> None:
    """Ask for some seconds, and print what came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--warm-up", type=float, default=0.5)
    parser.add_argument("--first", type=int, default=0, help="the body to begin with")
    options = parser.parse_args()
    bodies = options.bodies.read_bytes().splitlines()
    texts = [len(json.loads(body)["input"]) for body in bodies]
    requests = [HEAD % len(body) + body for body in bodies]
    following, asked, seen = count(options.first), {}, 0
    seconds: list[float] = []
    answered, statuses = 0, {}
    with selectors.DefaultSelector() as ready:
        connections = [Connection(options.port) for _ in range(options.clients)]
        print("ready", flush=True)
        sys.stdin.readline()
        start = time.perf_counter() + options.warm_up
        for connection in connections:
            ready.register(connection.socket, selectors.EVENT_READ, connection)
            asked[connection] = next(following) % len(requests)
            connection.send(requests[asked[connection]])
        while (now := time.perf_counter()) < start + options.seconds:
            for key, _ in ready.select(0.1):
                connection = key.data
                answer = connection.read()
                if answer is None:
                    continue
                status, body = answer
                now, number = time.perf_counter(), asked[connection]
                if status == 200 and (seen := seen + 1) % CHECKED == 1:
                    check(body, texts[number])
                if start <= now < start + options.seconds:
                    statuses[status] = statuses.get(status, 0) + 1
                    if status == 200:
                        answered += texts[number]
                        seconds.append(round(now - connection.began, 5))
                asked[connection] = next(following) % len(requests)
                connection.send(requests[asked[connection]])
    print(json.dumps({"texts": answered, "seconds": seconds, "statuses": statuses}))


if __name__ == "__main__":
    main()
