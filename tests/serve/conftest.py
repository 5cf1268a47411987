"""Servers in this process, for tests of what they answer."""

import pytest

from support.serving import running


@pytest.fixture(scope="session")
def server(tiny_layers):
    """A server of the tiny BERT without keys, and its model."""
    with running({"tiny": tiny_layers}) as made:
        yield made
