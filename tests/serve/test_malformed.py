"""Malformed requests: some hundreds of those of benchmarks/attacks."""

import runpy
import sys
from pathlib import Path

import numpy as np

ATTACKS = Path(__file__).parents[2] / "benchmarks" / "attacks"


def test_malformed_requests_never_fail_the_server(server, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ATTACKS), *sys.path])
    attack = runpy.run_path(str(ATTACKS / "serving.py"))
    sys.modules.pop("attack", None)
    tally = attack["attack_server"](server, np.random.default_rng(5), 400)
    assert tally.broken == []
    assert tally.tried == 402
