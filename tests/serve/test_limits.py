"""Keys, full queues, deadlines, clients that leave, models that fail, and the settings of it all."""

import base64
import json
import logging
import socket
import threading
import time

import pytest

from layerwise.encoder import SentenceTokenizer
from layerwise.errors import InputError
from layerwise.serve import ServeSettings, connection_limits, read_serve_settings
from layerwise.serve.keys import Keys
from layerwise.serve.served_model import ServedModel
from support.serving import Gate, refused, running

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def keys(tmp_path):
    file = tmp_path / "keys.txt"
    file.write_text(f"# mine\n{KEY}\n\n{OTHER}\n")
    return str(file)


def test_everything_but_health_needs_a_key(tiny_layers, keys, caplog):
    with caplog.at_level(logging.DEBUG), running({"tiny": tiny_layers}, keys=keys) as server:
        for path in ("/", "/docs", "/openapi.json", "/v1/models", "/metrics", "/nowhere"):
            answer = server.client.get(path)
            refused(answer, 401, "a key is missing or wrong")
            assert answer.headers["www-authenticate"] == 'Basic realm="layerwise, the key as password"'
        for path in ("/livez", "/readyz"):
            assert server.client.get(path).status_code == 200
        counted = server.client.get("/metrics", headers={"Authorization": f"Bearer {KEY}"}).text
        for path in ("/v1/models", "/metrics", "other"):
            assert f'layerwise_requests_total{{path="{path}",status="401"}} 1.0' in counted
        basic = base64.b64encode(f"anyone:{KEY}".encode()).decode()
        for given in (f"Bearer {KEY}", f"bearer {OTHER}", f"Basic {basic}"):
            assert server.client.get("/v1/models", headers={"Authorization": given}).status_code == 200
        for given in (
            KEY,
            f"Bearer {KEY}x",
            f"Bearer {KEY[:-1]}",
            "Bearer",
            "Basic ?",
            "Basic " + "/w" * 9,
            "Bearer \xff",
        ):
            answer = server.client.get("/v1/models", headers={"Authorization": given.encode("latin-1")})
            assert answer.status_code == 401
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("text", "message"), [("", "holds no keys"), ("short\n", "key 1 has fewer than 16"), ("é" * 20, "ASCII")]
)
def test_keys_that_protect_nothing_are_refused(tmp_path, text, message):
    (tmp_path / "keys").write_text(text)
    with pytest.raises(InputError, match=message):
        Keys.read(tmp_path / "keys")
    with pytest.raises(InputError, match="cannot be read"):
        Keys.read(tmp_path / "none")


def test_a_public_address_needs_keys(keys):
    with pytest.raises(InputError, match=r"192\.0\.2\.1 can be reached from other machines and there are no keys"):
        ServeSettings(host="192.0.2.1")
    for settings in ({"host": "localhost"}, {"host": "::1"}, {"host": "192.0.2.1", "keys": keys}):
        ServeSettings(**settings)
    ServeSettings(host="::", without_keys=True)


def test_flags_come_before_the_environment_and_that_before_the_file(tmp_path):
    file = tmp_path / "serve.toml"
    file.write_text('models = ["a", "b=c"]\nport = 1\ndeadline = 5.0\nhost = "127.0.0.2"\n')
    environment = {"LAYERWISE_SERVE_PORT": "2", "LAYERWISE_SERVE_HOST": "localhost", "LAYERWISE_SERVE_INDEX": "x=y z=w"}
    settings = read_serve_settings({"port": 3, "drain": None}, environment, file)
    assert (settings.port, settings.host, settings.deadline) == (3, "localhost", 5.0)
    assert (settings.models, settings.index) == (("a", "b=c"), ("x=y", "z=w"))


@pytest.mark.parametrize(
    ("environment", "text", "message"),
    [
        ({"LAYERWISE_SERVE_PROT": "2"}, "", "LAYERWISE_SERVE_PROT is no setting of the server"),
        ({"LAYERWISE_SERVE_PORT": "x"}, "", "serve: port is 'x'; expected a whole number"),
        ({}, "prot = 1", r"serve.toml: serve: unknown key 'prot'. Did you mean 'port'"),
        ({}, "port = 70000", "port is 70000; expected 65535 or less"),
        ({}, "deadline = 0.0", "deadline is 0.0; expected a number above 0"),
        ({}, "models = []", "there is no model to serve"),
    ],
)
def test_wrong_settings(tmp_path, environment, text, message):
    (tmp_path / "serve.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_serve_settings({}, environment, tmp_path / "serve.toml")


@pytest.fixture
def gate(monkeypatch, tiny_layers):
    made = Gate(monkeypatch, tiny_layers.encoder)
    yield made
    made.opened.set()


def sent(server, text="Rain."):
    """A request on a connection of its own, whose answer is not read."""
    body = f'{{"input": "{text}"}}'.encode()
    connection = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)
    return connection


def until(condition):
    while not condition():
        time.sleep(0.005)


def batcher_of(server):
    return server.service._batchers["tiny"]


def test_a_full_queue_is_429_with_the_time_to_wait(tiny_layers, gate):
    with running({"tiny": tiny_layers}, max_queue_tokens=80, max_tokens=80) as server:
        held = all_held(server, gate)
        waiting = sent(server, "a " * 55)
        until(lambda: batcher_of(server).waiting_tokens > 50)
        answer = server.post("/v1/embeddings", input="a " * 50)
        refused(answer, 429, "send the request again after the seconds of Retry-After")
        assert int(answer.headers["retry-after"]) >= 1
        gate.opened.set()
        until(lambda: batcher_of(server).waiting_tokens == 0)
        assert server.embed(input="a " * 50).shape == (1, 32)
        for connection in (*held, waiting):
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            connection.close()


def all_held(server, gate):
    """A request for each worker, one after the other: two at once would share a pass, and leave a worker free."""
    held = []
    for number in range(len(batcher_of(server)._threads)):
        held.append(sent(server))
        until(lambda number=number: gate.held > number)
    return held


def test_a_client_that_leaves_is_dropped(tiny_layers, gate):
    with running({"tiny": tiny_layers}) as server:
        held = all_held(server, gate)
        leaving = sent(server, "an old clock")
        until(lambda: batcher_of(server).waiting_tokens)
        leaving.close()
        until(lambda: not batcher_of(server).waiting_tokens)
        gate.opened.set()
        for connection in held:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            connection.close()
        until(lambda: not server.service.in_flight)
        assert "layerwise_dropped_requests_total 1.0" in server.client.get("/metrics").text
        assert sum(rows for rows, *_ in gate.passes) == len(held)


def test_a_request_that_takes_too_long_is_504(tiny_layers, gate):
    with running({"tiny": tiny_layers}, deadline=0.2) as server:
        refused(server.post("/v1/embeddings", input="Rain."), 504, "not answered within 0.2 seconds")
        gate.opened.set()


def test_a_body_that_does_not_come_is_408(tiny_layers):
    with running({"tiny": tiny_layers}, deadline=0.2) as server:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as slow:
            slow.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_a_model_that_fails_makes_ready_fail_until_it_works(tiny_layers, monkeypatch):
    def broken(*_):
        raise RuntimeError("CUDA error: device-side assert triggered")

    with running({"tiny": tiny_layers}) as server:
        with monkeypatch.context() as patch:
            patch.setattr(tiny_layers.encoder, "read", broken)
            refused(server.post("/v1/embeddings", input="Rain."), 500, "the model failed; send the request again")
            answer = server.client.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
            assert server.client.get("/livez").status_code == 200
        assert server.client.get("/readyz").json() == {"status": "ready"}
        assert server.embed(input="Rain.").shape == (1, 32)


def test_a_failed_model_whose_queue_is_full_is_not_ready(tiny_layers, gate):
    with running({"tiny": tiny_layers}, max_queue_tokens=60, max_tokens=60) as server:
        held = all_held(server, gate)
        waiting = sent(server, "a " * 55)
        until(lambda: batcher_of(server).waiting_tokens > 56)
        batcher_of(server).failure = "the last batch failed: RuntimeError"
        answer = server.client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json() == {"status": "not ready", "reason": "tiny: a batch failed and the queue is full"}
        gate.opened.set()
        for connection in (*held, waiting):
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            connection.close()
        until(lambda: server.client.get("/readyz").status_code == 200)


def test_while_draining_new_requests_get_503(tiny_layers):
    with running({"tiny": tiny_layers}) as server:
        server.service.draining = True
        answer = server.post("/v1/embeddings", input="Rain.")
        refused(answer, 503, "shutting down")
        assert answer.headers["connection"] == "close"
        assert server.client.get("/livez").status_code == 200
        assert server.client.get("/readyz").status_code == 503


def test_other_pages_may_call_only_where_that_is_asked_for(server, tiny_layers):
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in server.client.get("/v1/models", headers=origin).headers
    with running({"tiny": tiny_layers}, cors=("https://example.org",)) as open_server:
        answer = open_server.client.get("/v1/models", headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        other = open_server.client.get("/v1/models", headers={"Origin": "https://example.net"})
        assert "access-control-allow-origin" not in other.headers


def test_no_text_is_logged(tiny_layers, caplog, monkeypatch):
    with caplog.at_level(logging.DEBUG), running({"tiny": tiny_layers}) as server:
        server.embed(input="private kitchen")
        monkeypatch.setattr(server.service, "model", lambda _: 1 / 0)
        refused(server.post("/v1/embeddings", input="private kitchen"), 500, "the server failed; report it")
    assert "A request failed: ZeroDivisionError" in caplog.text
    assert "kitchen" not in caplog.text


def raw(server, *parts):
    """What the server says to bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
        for part in parts:
            client.sendall(part)
        return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil"])
def test_a_local_server_answers_to_no_other_name(server, host):
    answer = server.client.get("/v1/models", headers={"Host": host})
    refused(answer, 421, "--allow-host")


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8000", "LOCALHOST.", "192.168.1.2:80"])
def test_addresses_and_localhost_are_its_own(server, host):
    assert server.client.get("/v1/models", headers={"Host": host}).status_code == 200


def test_a_proxys_name_is_allowed_where_that_is_said_and_keys_allow_all(tiny_layers, keys):
    with running({"tiny": tiny_layers}, allow_host=("Proxy.example",)) as server:
        assert server.client.get("/v1/models", headers={"Host": "proxy.example:443"}).status_code == 200
        assert server.client.get("/v1/models", headers={"Host": "other.example"}).status_code == 421
    with running({"tiny": tiny_layers}, keys=str(keys)) as server:
        assert server.client.get("/livez", headers={"Host": "other.example"}).status_code == 200


@pytest.mark.parametrize("begun", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: "])
def test_headers_that_do_not_come_end_the_connection(tiny_layers, monkeypatch, begun):
    monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 0.1)
    with running({"tiny": tiny_layers}) as server:
        assert raw(server, begun) == b""
        assert server.client.get("/livez").status_code == 200


@pytest.mark.slow  # it waits until uvicorn ends an idle connection
def test_headers_of_a_second_request_must_come_too(tiny_layers, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 0.1)
    with running({"tiny": tiny_layers}) as server:
        said = raw(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /livez HT")
        assert said.count(b"HTTP/1.1 200") == 1


def test_a_slow_body_is_waited_for_longer_than_slow_headers(tiny_layers, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 0.05)
    body = b'{"input": "Rain."}'
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    with running({"tiny": tiny_layers}) as server:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
            client.sendall(head % len(body) + body[:5])
            time.sleep(0.3)
            client.sendall(body[5:])
            assert client.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("part", [b"X-A: " + b"a" * 70_000, b"X-A: a\r\n" * 9_000, b"X" * 70_000])
def test_headers_without_an_end_are_refused(server, part):
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + part)
        assert client.recv(100).startswith(b"HTTP/1.1 400")
    assert server.client.get("/livez").status_code == 200


@pytest.mark.parametrize(
    "part", [b"X-A: " + b"a" * 70_000 + b"\r\n\r\n", b"X-A: a\r\n" * 9_000 + b"\r\n"], ids=["long", "many"]
)
def test_whole_headers_that_are_too_large_are_refused(server, part):
    said = raw(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + part)
    assert said.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("end", [b"0\r\nX-A: " + b"a" * 300_000, b"1;" + b"a" * 300_000], ids=["trailer", "extension"])
def test_the_parts_of_a_chunked_body_beside_its_content_are_limited(server, end):
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
        client.sendall(head + end[:1000])
        client.sendall(end[1000:])
        assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_a_large_body_arrives_with_its_headers(server):
    body = json.dumps({"input": ["Rain. " * 9, "Snow." + " " * 200_000]}).encode()
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    assert raw(server, head % len(body) + body).startswith(b"HTTP/1.1 200")


def test_a_chunk_that_looks_like_a_header_is_left_alone(server):
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b'{"input": "Rain.", "model": "', b'upgrade: none"}', b""]
    said = raw(server, head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks))
    assert said.startswith(b"HTTP/1.1 404")
    assert b"upgrade: none" in said


def test_few_requests_of_a_connection_wait_for_their_turn(server):
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = request[:-2] + b"Connection: close\r\n\r\n"
    assert raw(server, request * 9 + last).count(b"HTTP/1.1 200") == 10
    assert b"HTTP/1.1 400" in raw(server, request * 100 + last)


def test_a_request_needs_a_host(server):
    assert raw(server, b"GET /livez HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(server, b"GET /livez HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_an_offer_of_http_2_in_two_parts_is_refused_rather_than_read_without_its_body(server):
    body = b'{"input": "Rain."}'
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nContent-Length: %d\r\nUpg"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
        client.sendall(head % len(body))
        time.sleep(0.1)
        client.sendall(b"rade: h2c\r\n\r\n" + body)
        assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_a_request_that_offers_http_2_is_answered(server):
    upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}
    for _ in range(2):
        answer = server.client.post("/v1/embeddings", json={"input": "Rain."}, headers=upgrade)
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("is_safe", "texts", "thread"), [(True, 1, "batcher"), (False, 1, "tokenising"), (True, 17, "tokenising")]
)
def test_which_thread_tokenises(tiny_layers, monkeypatch, is_safe, texts, thread):
    names, job = [], ServedModel.job
    monkeypatch.setattr(SentenceTokenizer, "is_thread_safe", is_safe)
    monkeypatch.setattr(
        ServedModel,
        "job",
        lambda *args, **options: names.append(threading.current_thread().name) or job(*args, **options),
    )
    with running({"tiny": tiny_layers}) as server:
        server.embed(input=["Rain."] * texts)
    assert [name.rstrip("-_0123456789") for name in names] == [thread]


def test_a_request_that_is_late_before_it_is_tokenised_is_not_embedded(tiny_layers, monkeypatch):
    embedded, job = [], ServedModel.job

    def slow(served, texts, *args, **options):
        if texts != ["Late."]:
            return job(served, texts, *args, **options)
        time.sleep(0.5)
        embedded.append(job(served, texts, *args, **options))
        return embedded[0]

    monkeypatch.setattr(ServedModel, "job", slow)
    with running({"tiny": tiny_layers}, deadline=0.2) as server:
        refused(server.post("/v1/embeddings", input="Late."), 504, "not answered within 0.2 seconds")
        until(lambda: embedded and embedded[0].future.cancelled())
