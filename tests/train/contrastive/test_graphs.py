"""CUDA graphs give what the plain pass gives. Recording needs a GPU; what leads to it is tested everywhere."""

import pytest
import torch

from layerwise.train.contrastive.graphs import STEP, GraphedEncode
from layerwise.train.contrastive.student import build_student
from support.tiny import save_tiny
from support.training import encoder_of, recipe, term

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
RECIPES = {
    "info-nce": recipe(term("info-nce"), model={"dropout": 0.0}, columns=2),
    "sscl": recipe(term("sscl"), model={"dropout": 0.0, "head": "mlp"}, columns=2),
    "attention": recipe(
        term("info-nce"), model={"dropout": 0.0, "pooler": "attention(cls, mean, last=cls)"}, columns=2
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny("bert", tmp_path_factory.mktemp("graphs") / "encoder")


def student_of(folder, name="info-nce", device="cpu"):
    return build_student(RECIPES[name], encoder_of(folder, device=device), seed=0)


def batch_of(rows, length, device="cpu"):
    tokens = torch.randint(5, 20, (rows, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones_like(tokens)
    mask[::2, length - 1 :] = 0
    return {"input_ids": tokens.to(device), "attention_mask": mask.to(device), "rows": torch.arange(rows // 2)}


@pytest.mark.parametrize(
    ("length", "longest", "padded"), [(5, 32, 8), (8, 32, 8), (9, 32, 16), (30, 32, 32), (9, 12, 12)]
)
def test_lengths_are_rounded_up_so_that_few_shapes_come_up(folder, length, longest, padded):
    graphs = GraphedEncode(student_of(folder), rows=4, longest=longest, bf16=False)
    batch = batch_of(4, length)
    found = graphs.padded(batch)
    assert found["input_ids"].shape == found["attention_mask"].shape == (4, padded)
    assert padded % STEP == 0 or padded == longest
    assert torch.equal(found["input_ids"][:, :length], batch["input_ids"])
    assert not found["attention_mask"][:, length:].any()
    assert found["rows"] is batch["rows"]


def test_a_batch_of_another_size_runs_as_ever(folder):
    student = student_of(folder)
    graphs = GraphedEncode(student, rows=8, longest=32, bf16=False)
    batch = batch_of(4, 8)
    expected = student.encode(batch["input_ids"], batch["attention_mask"])
    found = graphs(batch["input_ids"], batch["attention_mask"])
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
    graphs = GraphedEncode(student, rows=4, longest=32, bf16=False)
    batch = batch_of(4, 8)
    for _ in range(2):
        found = graphs(batch["input_ids"], batch["attention_mask"])
    torch.testing.assert_close(
        found["embeddings"], student.encode(batch["input_ids"], batch["attention_mask"])["embeddings"]
    )
    assert [record.getMessage() for record in caplog.records if "CUDA graphs" in record.getMessage()] == [
        "no CUDA graphs for this encoder (operation not permitted when stream is capturing); training continues without"
    ]


@needs_gpu
@pytest.mark.parametrize("name", RECIPES)
def test_a_graph_gives_the_loss_and_gradients_of_the_plain_pass(folder, name):
    student = student_of(folder, name, device="cuda").train()
    graphs = GraphedEncode(student, rows=8, longest=32, bf16=False)
    for length in (8, 16, 8):
        batch = batch_of(8, length, device="cuda")
        gradients = {}
        for way, run in (("plain", student.encode), ("graph", graphs)):
            student.zero_grad()
            student.run = run
            if name == "attention":
                student.attention.eval()  # RReLU's slopes are random in training
            loss = student(**batch)["loss"]
            loss.backward()
            gradients[way] = [one.grad.clone() for one in student.parameters() if one.grad is not None]
        for plain, graph in zip(*gradients.values(), strict=True):
            torch.testing.assert_close(graph, plain, rtol=1e-4, atol=1e-6)
