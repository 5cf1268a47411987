"""Servers in this process, for tests of what they answer."""

import pytest

from support.serving import running, with_heads


@pytest.fixture(scope="module")  # its threads take torch's from whatever else runs in this process
def server(tiny_layers):
    """A server of the tiny BERT without keys, and its model."""
    with running({"tiny": tiny_layers}) as made:
        yield made


@pytest.fixture(scope="session")
def predictor(tiny_layers, tmp_path_factory):
    """The tiny BERT with two heads whose weights are random."""
    return with_heads(tiny_layers, tmp_path_factory.mktemp("tasks"))
