"""`layerwise serve` as a process: it drains on SIGTERM, ends at once on SIGKILL, and starts again; and its mistakes."""

import gc
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.serve import create_app, run_server
from layerwise.serve.listening import bound_socket
from layerwise.serve.settings import ServeSettings
from support.commands import assert_one_line, run_main
from support.serving import answers_around, assert_answered, started
from support.tiny import SENTENCES


@pytest.fixture(scope="module")
def killed(tiny_bert, forks):
    """The port of a server that was killed while it had a request."""
    with started(forks, tiny_bert, "--backend", "torch") as (process, url):
        port = url.rpartition(":")[2]
        with socket.create_connection(("127.0.0.1", int(port))) as connection:
            connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n")
            process.kill()
            process.wait()
    return port


def test_sigterm_answers_what_was_accepted_and_exits_0(tiny_bert, forks, killed):
    """What clients sent before the signal is answered. The server starts where another was killed."""
    with started(forks, tiny_bert, "--port", killed, "--drain", "60", "--backend", "torch") as (process, url):
        answers = answers_around(url, SENTENCES * 8, lambda: process.send_signal(signal.SIGTERM))
        assert process.wait() == 0
    assert_answered(answers, LayerModel.load(tiny_bert, device="cpu").encode(SENTENCES * 8))


@pytest.mark.slow
def test_a_request_beyond_the_time_to_drain_is_503_and_the_exit_is_0(tiny_bert, forks):
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{"
    with started(forks, tiny_bert, "--drain", "0.5", "--backend", "torch") as (process, url):
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.sendall(head)
            while "layerwise_requests_in_flight 2.0" not in httpx.get(f"{url}/metrics").text:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            start = time.monotonic()
            assert process.wait() == 0
            assert 0.4 < time.monotonic() - start < 30
            assert connection.recv(100).startswith(b"HTTP/1.1 503")
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere-at-all"], "nowhere-at-all"),
        (["{model}", "--host", "192.0.2.1"], "there are no keys; give --keys FILE"),
        (["{model}", "--host", "192.0.2.1", "--without-keys"], "cannot be listened on"),
        (["{model}", "--keys", "no-such-file"], "no-such-file: cannot be read"),
        (["{model}", "--index", "x"], "expected NAME=PATH"),
        (["{model}", "--index", "x=no-such-folder"], "no-such-folder: no such file or folder; "),
        (["short={model}"], "a model is MODEL=NAME; did you mean {model}=short?"),
        (["{model}", "--config", "no-such.toml"], "no-such.toml: cannot be read"),
        (["{model}", "--port", "70000"], "port is 70000; expected 65535 or less"),
        (["{model}", "--deadline", "0"], "deadline is 0"),
        (["{model}", "--max-tokens", "20"], "max_tokens 20 is less than the 60 tokens"),
        (["{model}", "{model}"], "two models are called 'bert'"),
    ],
)
def test_mistakes_are_one_line(monkeypatch, capfd, tiny_bert, words, message):
    code, output, error = run_main(monkeypatch, capfd, "serve", *(word.format(model=tiny_bert) for word in words))
    assert_one_line(code, output, error)
    assert message.format(model=tiny_bert) in error


def test_a_port_in_use_is_one_line_before_anything_is_loaded(monkeypatch, capfd):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, output, error = run_main(monkeypatch, capfd, "serve", "nowhere-at-all", "--port", port)
    assert_one_line(code, output, error)
    assert "give another --port" in error


def test_connections_are_refused_until_somebody_listens():
    with bound_socket(ServeSettings(port=0)) as bound, socket.socket() as client:
        with pytest.raises(ConnectionRefusedError):
            client.connect(bound.getsockname())


def test_a_port_that_was_taken_meanwhile_is_one_line(tiny_layers, caplog):
    with bound_socket(ServeSettings(port=0)) as bound, socket.socket() as faster:
        faster.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        faster.bind(bound.getsockname())
        faster.listen()
        with ThreadPoolExecutor(1) as thread:  # other tests may have left a loop in this one
            served = thread.submit(run_server, create_app({"tiny": tiny_layers}), ServeSettings(), bound=bound)
            with pytest.raises(InputError, match="cannot be listened on: Address already in use; give another --port"):
                served.result()
    assert not caplog.records
    gc.unfreeze()


def test_without_the_extra_the_install_line_is_said(monkeypatch, capfd, tiny_bert):
    monkeypatch.setattr("layerwise.extras.find_spec", lambda name: None)
    code, output, error = run_main(monkeypatch, capfd, "serve", tiny_bert)
    assert_one_line(code, output, error)
    assert "pip install 'layerwise[serve]'" in error
