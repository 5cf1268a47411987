"""Two real processes under DDP, with gathered rows, equal one process with the joint batch, for every objective."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from layerwise.errors import InputError
from layerwise.objectives import gather_rows, info_nce, nt_xent, rank, self_contrastive, self_guided, world_size

PROCESSES, ROWS, WIDTH = 2, 3, 4
# each takes an embedding (n, d), a second one (n, d) and layers (n, k, d)
LOSSES = {
    "info_nce": lambda left, right, layers: info_nce(left, right, layers[:, 0], hard_negative_weight=1.0),
    "info_nce, symmetric": lambda left, right, layers: info_nce(left, right, symmetric=True),
    "nt_xent": lambda left, right, layers: nt_xent(left, right, temperature=0.1),
    "self_contrastive": self_contrastive,
    "self_contrastive, own": partial(self_contrastive, own_only=True),
    "opt1": lambda left, right, layers: self_guided(left, right, temperature=0.1, form="opt1"),
    "opt3": lambda left, right, layers: self_guided(left, layers, temperature=0.1, form="opt3"),
}


class Model(nn.Module):
    """Three linear maps: two embeddings and three layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.left, self.right, self.layers = nn.Linear(5, WIDTH), nn.Linear(5, WIDTH), nn.Linear(5, 3 * WIDTH)
        self.double()

    def forward(self, batch):
        return self.left(batch), self.right(batch), self.layers(batch).unflatten(1, (3, WIDTH))


def joint_batch():
    return torch.randn(PROCESSES * ROWS, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def step(model, batch, loss):
    """The loss and the gradients of the weights, those of unused ones left out."""
    model.zero_grad()
    value = loss(*(gather_rows(part) for part in model(batch)))
    value.backward()
    names = {name.removeprefix("module."): weight.grad for name, weight in model.named_parameters()}
    return {"loss": value.detach(), **{name: grad.clone() for name, grad in names.items() if grad is not None}}


def refusal(tensor):
    try:
        gather_rows(tensor)
    except InputError as error:
        return str(error)
    return "nothing was refused"


def work(process, folder):
    """What one of the processes does; its results go into a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=process, world_size=PROCESSES)
    own = joint_batch()[process * ROWS : (process + 1) * ROWS]
    results = {"ranks": [rank(), world_size()]}
    model = nn.parallel.DistributedDataParallel(Model(), find_unused_parameters=True)
    results["steps"] = {name: step(model, own, loss) for name, loss in LOSSES.items()}
    results["ids"] = gather_rows(torch.arange(ROWS) + 10 * process)
    results["half"] = gather_rows(own.bfloat16().T.T[:, ::2])
    results["rows"] = refusal(torch.ones(ROWS + process, 2))
    results["shape"] = refusal(torch.ones(ROWS, 2 + process))
    results["number"] = refusal(torch.tensor(1.0))
    torch.save(results, folder / f"{process}.pt")
    os._exit(0)  # at once: to take gloo's group apart can wait for ever for a thread of it that waits for Python's lock


@pytest.fixture(scope="module")
def results(tmp_path_factory, forks):
    folder = tmp_path_factory.mktemp("gather")
    running = [forks.start(__file__, process, folder) for process in range(PROCESSES)]
    for process in running:
        assert process.wait() == 0, process.stderr[-2000:]
    return [torch.load(folder / f"{process}.pt", weights_only=True) for process in range(PROCESSES)]


@pytest.mark.parametrize("name", LOSSES)
def test_two_processes_equal_one_with_the_joint_batch(results, name):
    alone = step(Model(), joint_batch(), LOSSES[name])
    assert len(alone) > 1
    for process in results:
        together = process["steps"][name]
        assert together.keys() >= alone.keys()
        for part, value in alone.items():
            torch.testing.assert_close(together[part], value, msg=lambda text, part=part: f"{part}: {text}")


def test_rows_come_in_the_order_of_ranks_in_any_dtype(results):
    for process, result in enumerate(results):
        assert result["ranks"] == [process, PROCESSES]
        assert result["ids"].tolist() == [0, 1, 2, 10, 11, 12]
        assert torch.equal(result["half"], joint_batch().bfloat16()[:, ::2])


def test_unequal_batches_are_refused_in_every_process(results):
    for result in results:
        assert result["rows"].startswith("The processes have 3, 4 rows; gathering needs as many in each")
        assert result["shape"] == "The processes have rows of 2, 3 numbers; gather tensors of one shape"
        assert result["number"].startswith("A single number has no rows to gather")


def test_one_process_alone_keeps_its_tensor():
    tensor = torch.ones(2, 3)
    assert gather_rows(tensor) is tensor
    assert (rank(), world_size()) == (0, 1)


if __name__ == "__main__":
    work(int(sys.argv[1]), Path(sys.argv[2]))
