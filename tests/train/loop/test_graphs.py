"""CUDA graphs give what the plain pass gives. Recording needs a GPU; what leads to it is tested everywhere."""

import pytest
import torch

from layerwise.train import MultitaskJob
from layerwise.train.contrastive.decoders import attend_both_ways
from layerwise.train.contrastive.student import BATCH, build_student
from layerwise.train.loop.graphs import STEP, GraphedEncode, GraphedForward
from support import multitasking
from support.graph_capture import CaptureCheck
from support.slow_cases import one_in
from support.task_batches import all_tasks
from support.tiny import save_decoder, save_tiny
from support.training import encoder_of, recipe, term

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
RECIPES = {
    "info-nce": recipe(term("info-nce"), model={"dropout": 0.0}, columns=2),
    "sscl": recipe(term("sscl"), model={"dropout": 0.0, "head": "mlp"}, columns=2),
    "attention": recipe(
        term("info-nce"), model={"dropout": 0.0, "pooler": "attention(cls, mean, last=cls)"}, columns=2
    ),
    "prompt": recipe(
        term("info-nce"), term("sscl"), model={"dropout": 0.0, "pooler": "last @ mask in means"}, columns=2
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny("bert", tmp_path_factory.mktemp("graphs") / "encoder")


def student_of(folder, name="info-nce", device="cpu"):
    return build_student(RECIPES[name], encoder_of(folder, device=device), seed=0)


def batch_of(rows, length, device="cpu", places=None):
    tokens = torch.randint(5, 20, (rows, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones_like(tokens)
    mask[::2, length - 1 :] = 0
    batch = {"input_ids": tokens.to(device), "attention_mask": mask.to(device), "rows": torch.arange(rows // 2)}
    return batch if places is None else batch | {"places": torch.tensor([places] * rows, device=device)}


def pass_of(student, batch):
    (only,) = student.passes(batch)
    return only


@pytest.mark.parametrize(("length", "padded"), [(5, 8), (8, 8), (9, 16), (30, 32), (58, 60)])
def test_lengths_are_rounded_up_so_that_few_shapes_come_up(folder, length, padded):
    student = student_of(folder)
    assert padded % STEP == 0 or padded == student.encoder.max_length
    graphs = GraphedEncode(student, rows={BATCH: 4}, bf16=False)
    batch = batch_of(4, length)
    for found in (graphs.padded(batch), graphs.padded({"task": batch})["task"]):
        assert found["input_ids"].shape == found["attention_mask"].shape == (4, padded)
        assert torch.equal(found["input_ids"][:, :length], batch["input_ids"])
        assert not found["attention_mask"][:, length:].any()
        assert found["rows"] is batch["rows"]


def test_a_batch_of_another_size_runs_as_ever(folder):
    student = student_of(folder)
    graphs = GraphedEncode(student, rows={BATCH: 8}, bf16=False)
    batch = batch_of(4, 8)
    expected = student.encode(batch["input_ids"], batch["attention_mask"])
    found = graphs(pass_of(student, batch))
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found["embeddings"], expected["embeddings"])


def test_an_encoder_that_can_not_be_recorded_trains_without(folder, monkeypatch, caplog):
    def fails(*_, **__):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fails)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda *_: torch.zeros(1))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    student = student_of(folder)
    graphs = GraphedEncode(student, rows={BATCH: 4}, bf16=False)
    batch = batch_of(4, 8)
    for _ in range(2):
        found = graphs(pass_of(student, batch))
    torch.testing.assert_close(
        found["embeddings"], student.encode(batch["input_ids"], batch["attention_mask"])["embeddings"]
    )
    assert [record.getMessage() for record in caplog.records if "CUDA graphs" in record.getMessage()] == [
        "no CUDA graphs for this encoder (operation not permitted when stream is capturing); training continues without"
    ]


POOLERS = [
    *(f"last @ {pooling}" for pooling in ("cls", "mean", "max", "last", "weighted-mean", "mean-but-first")),
    "first-last @ mean",
    "1:0.25,3:0.75 @ mean",
    "concat(1,3) @ cls",
    "last @ cls | last @ mean",
    "last @ mean | 1:0.5,2:0.5 @ mean",
    "attention(cls, mean, last=cls)",
    "attention(mean, mean, scores=ratio)",
    "last @ mask in means",
    "1:0.25,3:0.75 @ mask in means",
    "2-4 @ mask in means | last @ mean in means",
    "attention(mask in means, mean in means, last=mask in means)",
    "views(2,4 @ mask in means; 3 @ mean in means; unit)",
    "views(2,3*4 @ mask in means; 3 @ mean in means)",
]
TERMS = (term("info-nce"), term("sscl", anchors="last", layers=(1, 2)))
HEADS = [("last @ mask in means", head) for head in ("mlp", "linear", "identity", "mlp-bn")]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return save_decoder("llama", tmp_path_factory.mktemp("graphs") / "decoder")


def refused_by_graphs(student, batch, monkeypatch):
    """What of a pass, forward and backward, no graph could hold."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)  # transformers asks
    with CaptureCheck() as check:
        encoded = student.train().run_pass(pass_of(student, batch))
        sum(tensor.square().sum() for tensor in encoded.values()).backward()
    return check.refused


@pytest.mark.parametrize(("pooler", "head"), one_in(2, [*((pooler, "none") for pooler in POOLERS), *HEADS]))
def test_no_pooler_makes_tensors_of_numbers_or_reads_values_back(folder, monkeypatch, pooler, head):
    what = recipe(*TERMS, model={"pooler": pooler, "head": head}, columns=2)
    student = build_student(what, encoder_of(folder), seed=0)
    places = (0, 7, 5) if student.pooler.is_prompted else None
    assert refused_by_graphs(student, batch_of(8, 8, places=places), monkeypatch) == []
    assert any(parameter.grad is not None for parameter in student.parameters())


@pytest.mark.parametrize("pooler", ["last @ last in eol", "last @ mean in echo", "last-2 @ weighted-mean"])
@pytest.mark.parametrize("attention", ["", "bidirectional"])
def test_no_pooler_of_a_decoder_does(decoder, monkeypatch, pooler, attention):
    encoder = encoder_of(decoder)
    if attention:
        attend_both_ways(encoder)
    student = build_student(recipe(model={"pooler": pooler, "dropout": 0.1}, columns=2), encoder, seed=0)
    places = (2, 7, 0) if student.pooler.is_prompted else None
    assert refused_by_graphs(student, batch_of(8, 8, places=places), monkeypatch) == []


def test_what_no_graph_holds_is_seen():
    numbers = torch.ones(2, 3)
    for make in (
        lambda: numbers[:, [0, 1]],
        lambda: torch.tensor([1.0, 2.0]),
        lambda: numbers.new_tensor([1.0]),
        lambda: numbers[numbers > 0],
        lambda: numbers.sum().item(),
        lambda: bool((numbers > 0).all()),
    ):
        with CaptureCheck() as check:
            make()
        assert check.refused


QUEUED = recipe(term("info-nce", queue=16), model={"dropout": 0.0, "pooler": "last @ mask in means"}, columns=2)


def test_nor_does_the_copy_of_the_encoder_that_fills_a_queue(folder, monkeypatch):
    queue = build_student(QUEUED, encoder_of(folder), seed=0).terms["info-nce"].queue
    batch = batch_of(8, 8, places=(0, 7, 5))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with CaptureCheck() as check, torch.no_grad():
        queue.run_pass(batch["input_ids"], batch["attention_mask"], batch["places"])
    assert check.refused == []


def test_without_a_gpu_a_function_runs_as_it_is():
    run = GraphedForward(lambda one, other: one + other)
    assert torch.equal(run(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))
    assert not run._graphs


@needs_gpu
def test_a_queue_is_the_same_by_graphs_beside_the_backward_pass_and_on_the_cpu(folder):
    queues = []
    for device, graphed in (("cpu", False), ("cuda", False), ("cuda", True)):
        student = build_student(QUEUED, encoder_of(folder, device=device), seed=0).train()
        if graphed:
            student.terms["info-nce"].use_graphs()
        for length in (8, 16, 8):
            student(batch_of(8, length, device=device, places=(0, length - 1, 5)))["loss"].backward()
        queues.append(student.terms["info-nce"].queue)
    on_cpu, plain, graphed = queues
    assert len(graphed.embed._graphs) == 2
    expected = on_cpu.state_dict()["vectors"]
    for queue in (plain, graphed):
        torch.testing.assert_close(queue.state_dict()["vectors"].cpu(), expected, rtol=1e-3, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize("name", RECIPES)
def test_a_graph_gives_the_loss_and_gradients_of_the_plain_pass(folder, name):
    student = student_of(folder, name, device="cuda").train()
    if name == "attention":
        student.attention.eval()  # RReLU's slopes are random in training
    graphs = GraphedEncode(student, rows={BATCH: 8}, bf16=False)
    for length in (8, 16, 8):
        batch = batch_of(8, length, device="cuda", places=(0, length - 1, 5) if name == "prompt" else None)
        assert_graphs_equal_the_plain_pass(student, graphs, batch)
    assert len(graphs._graphs) == 2


def loss_and_gradients(student, encode_pass, batch):
    """In a function of its own: a loss that is still alive keeps the plain pass, which recording cannot follow."""
    student.zero_grad()
    student.encode_pass = encode_pass
    loss = student(batch)["loss"]
    loss.backward()
    return loss.detach(), [one.grad.clone() for one in student.parameters() if one.grad is not None]


def assert_graphs_equal_the_plain_pass(student, graphs, batch):
    """By loss and gradients."""
    results = [loss_and_gradients(student, encode_pass, batch) for encode_pass in (student.run_pass, graphs)]
    (loss, plain), (graph_loss, graph) = results
    torch.testing.assert_close(graph_loss, loss, rtol=1e-4, atol=1e-5)
    assert len(plain) == len(graph) > 20
    for one, other in zip(plain, graph, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def task_data(tmp_path_factory):
    return multitasking.save_tasks(tmp_path_factory.mktemp("tasks"))


def multitask_job(task_data, encoder, **options):
    """Passes of the same shape before one backward pass, and second views, one at a dropout rate of its own."""
    tasks = all_tasks(task_data, mood={"contrast": 0.5, "contrast_dropout": 0.3}, same={"contrast": 0.2})
    model = {"head": "linear", "width": 16}
    what = multitasking.recipe(*tasks, model=model, batch_size=8, precision="float32", **options)
    return MultitaskJob(what, encoder=encoder)


@needs_gpu
def test_graphs_of_several_tasks_give_the_loss_and_gradients_of_the_plain_passes(folder, task_data):
    job = multitask_job(task_data, encoder_of(folder, device="cuda"))
    job.prepare()
    training = job.build(job.load_encoder(), seed=0)
    student, graphs = training.student.eval(), training.trainer.keywords["graphs"]  # without dropout
    for step, _ in zip(training.batches, range(4), strict=False):
        batch = graphs.padded(step)
        on_gpu = {name: {key: value.cuda() for key, value in part.items()} for name, part in batch.items()}
        assert_graphs_equal_the_plain_pass(student, graphs, on_gpu)
    assert {parts for parts, _ in graphs._graphs} >= {("mood",), ("same",), ("near",), ("mood (second view)",)}


@needs_gpu
def test_a_multitask_training_by_graphs_learns_with_dropout(folder, task_data, tmp_path):
    histories = {}
    for graphs in (True, False):
        job = multitask_job(task_data, str(folder), cuda_graphs=graphs, steps=60, learning_rate=2e-3)
        histories[graphs] = multitasking.train(job, tmp_path / str(graphs), device="cuda").history
    for history in histories.values():
        losses = [line["loss"] for line in history if "loss" in line]
        assert sum(losses[-10:]) < 0.9 * sum(losses[:10])
