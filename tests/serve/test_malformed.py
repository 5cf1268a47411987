"""Malformed requests: some hundreds of those of benchmarks/attacks."""

import runpy
import sys
from pathlib import Path

import numpy as np

from support.serving import behind_a_key, with_index

ATTACKS = Path(__file__).parents[2] / "benchmarks" / "attacks"


def test_malformed_requests_never_fail_the_server(predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ATTACKS), *sys.path])
    attack = runpy.run_path(str(ATTACKS / "serving.py"))
    sys.modules.pop("attack", None)
    with behind_a_key(with_index(predictor), tmp_path) as server:
        tally = attack["attack_server"](server, np.random.default_rng(5), 400)
        counted = server.client.get("/metrics").text
    assert tally.broken == []
    assert tally.tried == 403
    assert tally.held > 250, "most were answered"
    for path in attack["PATHS"]:
        assert f'layerwise_requests_total{{path="{path}",status="200"}}' in counted, "some were good by chance"
