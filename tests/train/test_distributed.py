"""Two real processes train as one process does on the joint batch, by every kind of job."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.optim.optimizer import register_optimizer_step_pre_hook

from layerwise import LayerModel
from layerwise.cli.app import main
from layerwise.train import ContrastiveJob, MultitaskJob, train
from support import multitasking
from support.task_batches import all_tasks
from support.tiny import save_tiny
from support.training import encoder_of, losses, recipe, said, term, texts

TESTS = Path(__file__).parents[1]
STEPS, ROWS = 3, 4  # rows of a process


def recipes(batch_size):
    """By name; without dropout and bucketing, so that both ways see the same batches."""

    def one(*terms, **options):
        model = {"dropout": 0.0, **options.pop("model", {})}
        given = {
            "columns": options.pop("columns", 2),
            "data": {"bucket": False},
            "steps": STEPS,
            "batch_size": batch_size,
            "dev": {"every": 2},
        }
        return recipe(*terms, model=model, **given, **options)

    return {
        "blocks that no loss reaches": one(term("info-nce"), model={"pooler": "1-3 @ mean"}),
        "info-nce": one(term("info-nce")),
        "sscl": one(term("sscl"), model={"head": "mlp"}),
        "sg opt3": one(term("sg", hidden=8, temperature=0.1), columns=1),
        "whitening, denoised": one(
            term("whitening", ridge=0.1), model={"pooler": "last @ mask in means", "denoise": True}
        ),
        "gradient caching": one(term("info-nce"), term("sscl", anchors="last"), chunk=3),
    }


def multitask_recipes(batch_size, data):
    """By name; without dropout. Second views get it, so that contrast is allowed, at a rate too small to matter."""
    contrast = {"contrast": 0.5, "contrast_dropout": 1e-9}

    def one(*, mixing=None, options=None, **train):
        given = {name: {"dropout": 0.0, **(options or {}).get(name, {})} for name in ("mood", "same", "near")}
        settings = {"steps": STEPS, "batch_size": batch_size, "dev": {"every": 2}, **train}
        return multitasking.recipe(*all_tasks(data, **given), model={"dropout": 0.0}, mixing=mixing, **settings)

    return {
        "tasks": one(options={"near": {"head": "mlp"}}, mixing={"weights": "inverse-size"}),
        "tasks, contrast": one(options={"mood": contrast, "same": contrast}, mixing={"weights": "learned"}),
        "tasks, one a step": one(mixing={"iteration": "proportional"}),
        "tasks, padded": one(options={"mood": {"limit": 9}, "same": {"limit": 9}}, mixing={"iteration": "padding"}),
        "tasks, gradient caching": one(options={"same": contrast}, chunk=3),
    }


NAMES = [*recipes(ROWS), *multitask_recipes(ROWS, Path())]
QUICK = ("blocks that no loss reaches", "sg opt3", "gradient caching", "tasks, contrast", "tasks, padded")
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


def jobs(encoder, data, batch_size, names):
    for name, what in recipes(batch_size).items():
        if name in names:
            yield name, ContrastiveJob(what, encoder=encoder_of(encoder), corpus=texts(24, len(what.data.columns)))
    for name, what in multitask_recipes(batch_size, data).items():
        if name in names:
            yield name, MultitaskJob(what, encoder=encoder_of(encoder))


def train_all(encoder, data, out, batch_size, names):
    """Each recipe in a folder of its own; losses, gradients' lengths and the first gradient as this process has them.

    Gradients and not weights: of a gradient that is all rounding, Adam makes a whole step.
    """
    for name, job in jobs(encoder, data, batch_size, names):
        folder, rank = out / name, os.environ.get("RANK", "0")
        first = []

        def keep(optimizer, *_, first=first):
            if not first:
                trained = [weight for group in optimizer.param_groups for weight in group["params"]]
                first.extend(torch.zeros_like(one) if one.grad is None else one.grad.clone() for one in trained)

        watched = register_optimizer_step_pre_hook(keep)
        trained = train(job, folder, seed=1)
        watched.remove()
        norms = [line["grad_norm"] for line in trained.history if "grad_norm" in line]
        (out / f"{name}-{rank}.json").write_text(json.dumps([*losses(trained), *norms]))
        save_file({str(place): gradient for place, gradient in enumerate(first)}, out / f"{name}-{rank}.safetensors")


def command(encoder, out):
    """`layerwise train` of two seeds in a folder that is not there yet."""
    settings = ["train.batch_size=8", "train.steps=5", "train.precision=float32", "train.learning_rate=1e-3"]
    words = ["train", "small-simcse", "--model", encoder, "--data", out / "text.txt", "-o", out / "command"]
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--dev", "none", "--no-test", "--seeds", "0,1", "--device", "cpu", "--json"]
    return list(map(str, words))


def free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return str(listening.getsockname()[1])


RANK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from train.test_distributed import run_rank
run_rank(*map(Path, sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def names(request):
    """What `make test` trains, or everything."""
    return QUICK if "not slow" in request.config.option.markexpr else NAMES


@pytest.fixture(scope="module")
def launched(tmp_path_factory, forks, names):
    """The folders of an encoder, of tasks and of what two processes of ROWS rows made, and what these printed."""
    root = tmp_path_factory.mktemp("distributed")
    encoder = save_tiny("bert", root / "encoder")
    data = multitasking.save_tasks(root)
    two = root / "two"
    two.mkdir()
    (two / "text.txt").write_text("\n".join(said(64)))
    meet = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), "WORLD_SIZE": "2", "NAMES": "|".join(names)}
    ranks = [
        forks.start(RANK, TESTS, encoder, data, two, RANK=rank, LOCAL_RANK=rank, **meet)  # as torchrun does
        for rank in ("0", "1")
    ]
    for rank in ranks:
        assert rank.wait() == 0, rank.stderr[-3000:]
    return encoder, data, two, "".join(rank.stdout for rank in ranks)


@pytest.fixture(scope="module")
def trained(launched, names):
    """Folders of what two processes of ROWS rows and one of twice as many made."""
    encoder, data, two, _ = launched
    one = two.parent / "one"
    one.mkdir()
    train_all(encoder, data, one, 2 * ROWS, names)
    return two, one


@pytest.mark.parametrize("name", EVERY)
def test_two_processes_equal_one_with_the_joint_batch(trained, name):
    two, one = trained
    alone = json.loads((one / f"{name}-0.json").read_text())
    assert len(alone) == 2 * STEPS
    gradients = load_file(one / f"{name}-0.safetensors")
    assert sum(bool(gradient.any()) for gradient in gradients.values()) > 20
    for rank in (0, 1):
        assert json.loads((two / f"{name}-{rank}.json").read_text()) == pytest.approx(alone, rel=1e-4)
        both = load_file(two / f"{name}-{rank}.safetensors")
        assert both.keys() == gradients.keys()
        for key, value in both.items():
            torch.testing.assert_close(value, gradients[key], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_the_first_process_alone_writes(trained, name):
    two, one = trained
    for folder in (two / name, one / name):
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
        assert {path.name for path in folder.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-3"}
    names = {path.name for path in (two / name / "checkpoint-3").iterdir()}
    assert {"rng_state_0.pth", "rng_state_1.pth", "model.safetensors"} <= names


def test_two_processes_of_the_command_share_a_fresh_folder(launched):
    _, _, two, printed = launched
    assert len(json.loads(printed)["models"]) == 2  # one process speaks
    assert (two / "command" / "seed-1" / "model" / "modules.json").is_file()


@pytest.mark.slow
def test_torchrun_launches_the_command(tmp_path):
    encoder = save_tiny("bert", tmp_path / "encoder")
    (tmp_path / "text.txt").write_text("\n".join(said(64)))
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2"]
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]  # any free port
    done = subprocess.run(
        [sys.executable, *launch, *meet, "-m", "layerwise", *command(encoder, tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(json.loads(done.stdout)["models"]) == 2


@pytest.mark.slow
def test_two_nodes_train_what_one_does(tmp_path):
    """As docs/train.md says for two machines, both of them this one: each has a torchrun and one process of its own."""
    encoder = save_tiny("bert", tmp_path / "encoder")
    embedded = {}
    for nodes, port in ((2, free_port()), (1, free_port())):
        out = tmp_path / str(nodes)
        out.mkdir()
        pairs = zip(said(64), said(64, seed=1), strict=True)
        (out / "pairs.csv").write_text("anchor,positive\n" + "".join(f"{one},{other}\n" for one, other in pairs))
        meet = ["--nnodes", str(nodes), "--nproc-per-node", "1", "--master-addr", "localhost", "--master-port", port]
        words = ["train", "small-sup-eq6", "--model", encoder, "--data", out / "pairs.csv", "-o", out / "command"]
        settings = {"train.batch_size": 16 // nodes, "train.steps": 4, "train.precision": '"float32"'}
        settings |= {"model.dropout": 0, "data.bucket": "false"}
        words += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        words += ["--dev", "none", "--no-test", "--seeds", "0", "--device", "cpu", "--json"]
        launch = [sys.executable, "-m", "torch.distributed.run", *meet]
        launched = [
            subprocess.Popen(
                [*launch, "--node-rank", str(node), "-m", "layerwise", *map(str, words)],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for node in range(nodes)
        ]
        printed = [node.communicate(timeout=240) for node in launched]
        assert [node.returncode for node in launched] == [0] * nodes, printed
        assert [bool(told) for told, _ in printed] == [True] + [False] * (nodes - 1)  # the first machine speaks
        (model,) = (out / "command").rglob("model/modules.json")
        embedded[nodes] = LayerModel.load(model.parent).encode(said(8), normalize_embeddings=True)
    before = LayerModel.load(encoder).encode(said(8), normalize_embeddings=True)
    assert np.abs(embedded[1] - before).max() > 1e-3
    np.testing.assert_allclose(embedded[2], embedded[1], atol=1e-5)


def run_rank(encoder, data, out):
    """What one of the two processes does."""
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # as in conftest.py
    sys.argv = ["layerwise", *command(encoder, out)]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    train_all(encoder, data, out, ROWS, os.environ["NAMES"].split("|"))
