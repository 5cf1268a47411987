"""Servers in this process, for tests of what they answer."""

import pytest

from support.serving import running


@pytest.fixture(scope="module")  # its threads take torch's from whatever else runs in this process
def server(tiny_layers):
    """A server of the tiny BERT without keys, and its model."""
    with running({"tiny": tiny_layers}) as made:
        yield made


@pytest.fixture(scope="session")
def predictor(tiny_layers, tmp_path_factory):
    """The tiny BERT with two heads whose weights are random."""
    from layerwise.predict import Predictor, task_head
    from support.multitasking import save_tasks, task

    folder = save_tasks(tmp_path_factory.mktemp("tasks"))
    setups = [task("mood", folder), task("near", folder)]
    classes = {"mood": ("bad", "good"), "near": ()}
    heads = {
        one.task.name: task_head(one, tiny_layers.width, len(classes[one.task.name]) or 1, seed=1) for one in setups
    }
    return Predictor(tiny_layers, heads, classes)
