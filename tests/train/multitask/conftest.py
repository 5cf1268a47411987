"""Made-up tasks and a tiny encoder."""

import pytest

from layerwise.encoder import LayerEncoder
from support.multitasking import save_tasks


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture
def encoder(tiny_bert):
    return LayerEncoder(tiny_bert, device="cpu")
