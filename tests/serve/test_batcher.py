"""The queue: what shares a pass, whose turn it is, and what becomes of requests that are too many, late or gone."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from layerwise.encoder import SentenceTokenizer
from layerwise.errors import ModelError
from layerwise.serve import Batcher, ServedModel
from layerwise.serve import batcher as batcher_module
from layerwise.serve.batcher import QueueFull
from layerwise.serve.kernels import choose_kernels
from layerwise.serve.served_model import Options
from layerwise.threads import cores_here
from support.serving import Gate
from support.tiny import SENTENCES


@pytest.fixture
def served(tiny_layers):
    return ServedModel("tiny", tiny_layers)


@pytest.fixture
def gate(monkeypatch, tiny_layers):
    made = Gate(monkeypatch, tiny_layers.encoder)
    yield made
    made.opened.set()


@pytest.fixture
def batcher(served, gate):
    made = Batcher(served.encoder, max_queue_tokens=3000)
    yield made
    gate.opened.set()
    made.close()


def hold(batcher, served, gate):
    """Keep the thread busy, so that what follows waits in the queue."""
    job = served.job(["Rain."], Options())
    batcher.submit(job)
    gate.reached.wait()
    return job


def test_requests_for_different_layers_share_one_pass(served, gate, batcher):
    first = hold(batcher, served, gate)
    jobs = [
        served.job([text], Options(layers=mix)) for text, mix in zip(SENTENCES[3:6], ("1", "3 @ cls", "0"), strict=True)
    ]
    for job in jobs:
        batcher.submit(job)
    gate.opened.set()
    wait([first.future, *(job.future for job in jobs)])
    assert gate.passes[1:] == [(3, [0, 1, 3], ["mean", "cls"])]  # no layer above 3 is run


def test_a_long_request_does_not_hold_up_a_short_one(served, gate, batcher, monkeypatch):
    order = []
    hold(batcher, served, gate)
    monkeypatch.setattr(batcher.encoder.budget, "tokens", 64)
    for name, texts in (("long", SENTENCES * 20), ("short", ["Rain."])):
        job = served.job(texts, Options())
        job.future.add_done_callback(lambda _, name=name: order.append(name))
        batcher.submit(job)
    gate.opened.set()
    wait([job.future])
    batcher.close()
    assert order[0] == "short"


def test_an_idle_worker_runs_what_it_tokenised(served, gate, batcher):
    threads, job = [], served.job(["Rain."], Options())
    read = gate._read
    gate._read = lambda *inputs: threads.append(threading.current_thread()) or read(*inputs)

    def submit():
        threads.append(threading.current_thread())
        batcher.submit(job)

    gate.opened.set()
    assert batcher.offer(submit)
    assert np.allclose(job.future.result(), served.model.encode(["Rain."]), atol=1e-6)
    assert threads[0].name == "batcher-0"
    assert threads[1] is threads[0]


def test_a_busy_or_closed_batcher_takes_no_task(served, gate, batcher):
    hold(batcher, served, gate)
    assert not batcher.offer(lambda: None)
    gate.opened.set()
    batcher.close()
    assert not batcher.offer(lambda: None)


def when_idle(batcher, task):
    """Offer a task until it is taken: a worker is busy for a moment after it has completed a job."""
    deadline = time.monotonic() + 60
    while not batcher.offer(task):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_runs_although_all_that_waited_was_cancelled(served, gate, workers):
    batcher, ran = Batcher(served.encoder, workers=workers), threading.Event()
    held = [served.job(["Rain."], Options()) for _ in range(workers)]
    for job in held:
        gate.reached.clear()
        batcher.submit(job)
        gate.reached.wait()
    cancelled = served.job(["Snow."], Options())
    batcher.submit(cancelled)
    cancelled.future.cancel()
    gate.opened.set()
    wait([job.future for job in held])
    for _ in range(workers):
        ran.clear()
        when_idle(batcher, ran.set)
        assert ran.wait(60)
    batcher.close()


def test_a_task_that_fails_leaves_the_thread_alive(batcher, caplog):
    ran = threading.Event()
    when_idle(batcher, lambda: 1 / 0)
    when_idle(batcher, ran.set)
    assert ran.wait(60)
    assert "A task failed: ZeroDivisionError" in caplog.text


def test_a_task_that_waits_when_the_batcher_closes_still_runs(batcher):
    release, order = threading.Event(), []
    when_idle(batcher, lambda: release.wait(60))
    when_idle(batcher, lambda: order.append("ran"))
    closing = threading.Thread(target=batcher.close)
    closing.start()
    release.set()
    closing.join()
    assert order == ["ran"]


def test_tokenizers_are_made_one_at_a_time(served, monkeypatch):
    making = []

    class Slow(SentenceTokenizer):
        def __init__(self, *args, **options):
            making.append(self)
            assert making == [self]
            time.sleep(0.02)
            super().__init__(*args, **options)
            making.remove(self)

    monkeypatch.setattr("layerwise.serve.served_model.SentenceTokenizer", Slow)
    with ThreadPoolExecutor(4) as pool:
        jobs = list(
            pool.map(
                lambda length: served.job(["Rain and snow."], Options(truncate=True), max_length=length), range(3, 7)
            )
        )
    assert [job.tokens for job in jobs] == [3, 4, 5, 6]


def test_a_text_has_all_cores_while_nothing_else_is_to_do(served, gate):
    cores, read = [], gate._read
    gate._read = lambda *inputs: cores.append(cores_here()) or read(*inputs)
    batcher = Batcher(served.encoder, workers=2, cores=6)
    jobs = [served.job([text], Options()) for text in SENTENCES[:3]]
    for number, job in enumerate(jobs[:2], 1):
        batcher.submit(job)
        while gate.held < number:
            time.sleep(0.001)
    gate.opened.set()
    wait([job.future for job in jobs[:2]])
    batcher.close()
    assert sorted(cores) == [3, 6], "the second came while the first ran"
    batcher = Batcher(served.encoder, workers=2, cores=6)
    batcher.submit(served.job(SENTENCES, Options()))
    batcher.submit(jobs[2])
    wait([jobs[2].future])
    batcher.close()
    assert set(cores[2:]) <= {3, 6}
    assert 3 in cores[2:], "two workers share what came at once"


def test_what_was_cancelled_is_not_run(served, gate, batcher):
    hold(batcher, served, gate)
    gone, stays = served.job(SENTENCES, Options()), served.job(["Rain."], Options())
    batcher.submit(gone)
    batcher.submit(stays)
    waiting = batcher.waiting_tokens
    assert gone.future.cancel()
    assert batcher.waiting_tokens == waiting - gone.tokens
    gate.opened.set()
    stays.future.result()
    assert [rows for rows, *_ in gate.passes] == [1, 1]
    assert batcher.waiting_tokens == 0


def test_a_full_queue_refuses_and_serves_again(served, gate, batcher):
    hold(batcher, served, gate)
    jobs = []
    with pytest.raises(QueueFull):
        while True:
            jobs.append(served.job(SENTENCES, Options()))
            batcher.submit(jobs[-1])
    assert sum(job.tokens for job in jobs[:-1]) <= 3000
    gate.opened.set()
    wait([job.future for job in jobs[:-1]])
    again = served.job(["Rain."], Options())
    batcher.submit(again)
    again.future.result()


def test_one_request_that_fails_does_not_fail_the_others(served, monkeypatch, batcher, gate, tiny_layers):
    hold(batcher, served, gate)
    bad, good = served.job(["Who left?"], Options(layers="2")), served.job(["Rain."], Options())
    monkeypatch.setattr(bad.model, "apply_heads", lambda _: (_ for _ in ()).throw(RuntimeError("broken")))
    batcher.submit(bad)
    batcher.submit(good)
    gate.opened.set()
    np.testing.assert_allclose(good.future.result(), tiny_layers.encode(["Rain."]), rtol=0, atol=1e-5)
    with pytest.raises(RuntimeError, match="broken"):
        bad.future.result()


def test_numbers_that_overflow_are_an_error(served, batcher, gate, monkeypatch):
    gate.opened.set()
    job = served.job(["Rain."], Options(layers="2"))
    monkeypatch.setattr(job.model, "apply_heads", lambda embeddings: embeddings * float("inf"))
    batcher.submit(job)
    with pytest.raises(ModelError, match="NaN or infinite"):
        job.future.result()


def test_closing_fails_what_waits(served, gate, batcher):
    running = hold(batcher, served, gate)
    waiting = served.job(["Rain."], Options())
    batcher.submit(waiting)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    with pytest.raises(RuntimeError, match="the batcher is closed"):
        waiting.future.result()
    gate.opened.set()
    closing.join()
    assert running.future.result().shape == (1, 32)
    late = served.job(["Rain."], Options())
    batcher.submit(late)
    with pytest.raises(RuntimeError, match="the batcher is closed"):
        late.future.result()


@pytest.mark.parametrize("waits", [True, False])
def test_a_batch_waits_for_as_many_clients_as_there_were_at_most_for_the_fill_time(served, gate, monkeypatch, waits):
    monkeypatch.setattr(batcher_module, "_RECENT", 60.0)
    batcher = Batcher(served.encoder, fill_seconds=60.0 if waits else 0.0)

    def submit(text):
        job = served.job([text], Options())
        batcher.submit(job)
        return job.future

    futures = [hold(batcher, served, gate).future, submit("Rain."), submit("Who left?")]
    gate.opened.set()
    wait(futures)
    first = submit("Rain.")
    if waits:
        time.sleep(0.05)
        assert not first.done()
    else:
        first.result()
    second = submit("Who left?")
    wait([first] if waits else [first, second], timeout=30)
    batcher.close()
    assert [rows for rows, *_ in gate.passes] == ([1, 2, 2] if waits else [1, 2, 1, 1])


def test_the_kernels_of_a_processor_are_chosen_once(served):
    import torch

    before = torch.backends.mkldnn.enabled
    try:
        assert choose_kernels(served.encoder) == torch.backends.mkldnn.enabled
    finally:
        torch.backends.mkldnn.enabled = before


def test_a_request_that_waited_for_long_stays_in_front(served, gate, monkeypatch):
    patient = Batcher(served.encoder, max_queue_tokens=10**6, max_seconds=0.0)
    monkeypatch.setattr(patient, "check_room", lambda _: None)
    order, jobs = [], []
    hold(patient, served, gate)
    monkeypatch.setattr(served.encoder.budget, "tokens", 64)
    for name, texts in (("long", SENTENCES * 20), ("short", ["Rain."] * 100)):
        jobs.append(served.job(texts, Options()))
        jobs[-1].future.add_done_callback(lambda _, name=name: order.append(name))
        patient.submit(jobs[-1])
    gate.opened.set()
    wait([job.future for job in jobs])
    patient.close()
    assert order == ["long", "short"]


def test_a_wait_beyond_the_deadline_is_refused(served, gate, batcher):
    gate.opened.set()
    first = served.job(SENTENCES, Options())
    batcher.submit(first)
    wait([first.future])
    batcher.check_room(2999)  # nothing waits: whatever it takes, it is begun at once
    gate.opened.clear()
    gate.reached.clear()
    hold(batcher, served, gate)
    batcher._max_seconds = 0.0
    with pytest.raises(QueueFull) as full:
        batcher.check_room(1)
    assert full.value.seconds > 0
