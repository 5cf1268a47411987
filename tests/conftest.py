"""Tiny encoders of every architecture, made from their configs; nothing is downloaded."""

import gc
import os
import platform
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path

gc.disable()  # until all is imported and collected: it would look through millions of objects, none of which go

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports the hub's client: no test reaches for it
os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # tiny weights are read before threads for them have begun
os.environ.pop("LAYERWISE_DATA", None)  # each training would compare its text with every evaluation task there
for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # before NumPy and torch; tests' processes have them, too
    os.environ.setdefault(threads, "1")  # two threads spend their time waiting, at these sizes

import pytest
from hypothesis import settings

from support.durations import KEY, add_durations
from support.forks import Forks, Server
from support.report_page import HOW_TO_GET, OPTIONS, find_browser

settings.register_profile("layerwise", deadline=None, max_examples=10)  # no test fails because the machine is slow
settings.register_profile("thorough", deadline=None, max_examples=200)  # make test-all
settings.load_profile("layerwise")

FORK_SERVER = pytest.StashKey[Server]()


def pytest_configure(config):
    """Settings of the processes that run tests; the one that hands them out need not wait for torch."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import torch
    import typer.main

    torch.set_num_threads(1)  # a training of a tiny model takes ten times as long with two, on cores that are shared
    if platform.machine() in ("aarch64", "arm64"):
        torch.backends.mkldnn.enabled = False  # it begins a product in 0.7 ms there, and a tiny one takes a twentieth
    typer.main.get_command = cache(typer.main.get_command)  # made of all commands at each call, in 17 ms
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.stash[FORK_SERVER] = Server.fork()


LONG = (  # files of eight seconds or more: they begin first, or one worker would be left with the last of them
    "train/contrastive/test_engine.py",
    "train/multitask/test_engine.py",
    "cli/test_search.py",
    "report/test_browser.py",
    "embed/test_embed.py",
    "report/test_build.py",
    "model/test_model.py",
    "train/test_resume.py",
    "embed/test_s3.py",
    "cli/test_train.py",
    "test_doctor.py",
    "encoder/test_int8.py",
    "docs/test_pages.py",
    "cli/test_evaluate.py",
    "encoder/test_onnx.py",
    "cli/test_search_kinds.py",
    "plots/test_plots.py",
    "encoder/test_layer_encoder.py",
    "cli/test_report.py",
    "cli/test_analyze.py",
    "cli/test_search_views.py",
    "search/test_sets.py",
    "train/contrastive/test_decoders.py",
    "encoder/test_numbers.py",
    "cli/test_multitask.py",
    "train/test_distributed.py",
    "serve/test_page.py",
    "serve/test_api.py",
    "search/test_scan.py",
    "predict/test_predict.py",
    "data/test_catalog.py",
    "search/test_model.py",
    "cli/test_app.py",
    "serve/test_process.py",
    "search/test_classes.py",
    "mixes/test_attention.py",
)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.relative_to(here).as_posix(), len(LONG)))


def pytest_collection_finish():
    """What the imports have made stays: every training collects garbage, and would look through all of it each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # a model alone is thousands of objects
    gc.enable()


def pytest_terminal_summary(terminalreporter, config):
    """Keep what each test took, and say which part was not run for want of a browser."""
    reports = [report for of_outcome in terminalreporter.stats.values() for report in of_outcome]
    if hasattr(config, "cache"):
        config.cache.set(KEY, add_durations(config.cache.get(KEY, {}), reports))
    skipped = terminalreporter.stats.get("skipped", [])
    without = {report.nodeid for report in skipped if HOW_TO_GET in str(report.longrepr)}
    if without:
        terminalreporter.write_line(f"{len(without)} tests of pages in a browser were not run: {HOW_TO_GET}")


@pytest.fixture(scope="session", autouse=True)
def no_decoder():
    """`make demo` installs a decoder that takes minutes here; a test that wants one brings a tiny one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layerwise.encoder.smollm._PACKAGE", "package_of_no_decoder")
        yield


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    from support.tiny import SENTENCES

    return SENTENCES


@pytest.fixture(scope="session")
def forks(tmp_path_factory, pytestconfig):
    """Runs code in processes of their own, without the seconds of their imports."""
    with Forks(tmp_path_factory.mktemp("forks"), pytestconfig.stash.get(FORK_SERVER, None)) as made:
        yield made


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; where there is none, a test that needs it fails in CI and is skipped elsewhere."""
    program = find_browser()
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(HOW_TO_GET)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(OPTIONS))
        yield running
        running.close()


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory) -> dict[str, Path]:
    from support.tiny import ARCHITECTURES, save_tiny

    root = tmp_path_factory.mktemp("tiny")
    return {name: save_tiny(name, root / name) for name in ARCHITECTURES}


@pytest.fixture(scope="session")
def tiny_bert(tiny_folders) -> Path:
    return tiny_folders["bert"]


@pytest.fixture(scope="session")
def tiny_layers(tiny_bert):
    """A model by the mean of the last layer of the tiny BERT; nobody changes it."""
    from layerwise.model import LayerModel

    return LayerModel.load(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def tiny_models_loaded_once(tiny_folders):
    """Loads a tiny model once for all tests of a file that only read it: they would spend their time on loading."""
    from layerwise.model import LayerModel

    load, loaded = LayerModel.load, {}
    tiny = {str(folder) for folder in tiny_folders.values()}
    usual = {("device", "cpu"), ("dtype", "float32"), ("precision", "float")}

    def load_once(name_or_folder="default", **options):
        given = {(name, value) for name, value in options.items() if value not in (None, False)}
        if str(name_or_folder) not in tiny or not given <= usual:
            return load(name_or_folder, **options)
        key = str(name_or_folder), options.get("device")
        if key not in loaded:
            loaded[key] = load(name_or_folder, **options)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LayerModel, "load", load_once)
        yield


@pytest.fixture(scope="session")
def pairs_task(tmp_path_factory):
    """80 graded pairs of two subsets, 50 to test and 30 to choose by."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from layerwise.data import Task
    from support.tiny import WORDS

    random = np.random.default_rng(7)
    rows = [
        {
            "sentence1": " ".join(random.choice(WORDS, 4)),
            "sentence2": " ".join(random.choice(WORDS, 5)),
            "score": float(random.integers(0, 6)),
            "subset": "xy"[row % 3 == 0],
            "split": "test" if row < 50 else "dev",
        }
        for row in range(80)
    ]
    file = tmp_path_factory.mktemp("pairs") / "pairs.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    splits = {"dev": ("dev",), "test": ("test",)}
    return Task(name="pairs", kind="sts", file=str(file), columns={"subset": "subset"}, splits=splits)


@pytest.fixture(scope="session")
def caches(tmp_path_factory) -> Iterator[Path]:
    """A folder for each test's cache; it is not made, since most tests never write into it."""
    root = tmp_path_factory.mktemp("caches")
    return (root / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_cache(caches, monkeypatch) -> Path:
    """No test reads or leaves anything in the user's cache."""
    folder = next(caches)
    monkeypatch.setenv("LAYERWISE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and models; tests that take it carry the marker `shared`."""
    folder = Path(os.environ.get("LAYERWISE_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"{folder} is not there: set LAYERWISE_SHARED to the folder with data/ and models/")
    return folder
