"""Pairs of sentences and their cosine at every layer, to choose from and look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.errors import InputError
from layerwise.report.markup import json_script


@dataclass(frozen=True)
class Explorer:
    """`similarities` (n, layers) and `mix_similarities` (n) are cosines of the n pairs (left, right, gold or None).

    A second model to set beside it, of as many layers or not, has its own `other_similarities` (n, its layers) and,
    where its layers are not labelled alike, `other_layers`.
    """

    pairs: Sequence[tuple[str, str, float | None]]
    layers: Sequence[str]
    similarities: Any
    mix_name: str
    mix_similarities: Any
    name: str = "this model"
    other_name: str = ""
    other_similarities: Any = None
    other_layers: Sequence[str] = ()

    def __post_init__(self) -> None:
        count = len(self.pairs)
        if count == 0 or len(self.layers) == 0:
            raise InputError(f"An explorer of {count} pairs and {len(self.layers)} layers shows nothing; give some")
        _check("similarities", self.similarities, (count, len(self.layers)))
        _check("mix_similarities", self.mix_similarities, (count,))
        if self.other_similarities is not None:
            _check("other_similarities", self.other_similarities, (count, len(self.other_layers or self.layers)))


def explorer_data(explorer: Explorer) -> dict[str, Any]:
    """What the page's script reads; cosines with three digits, so that thousands of pairs stay small."""
    data: dict[str, Any] = {
        "pairs": explorer.pairs,
        "name": explorer.name,
        "layers": explorer.layers,
        "rows": _rounded(explorer.similarities),
        "mix": {"name": explorer.mix_name, "values": _rounded(explorer.mix_similarities)},
        "other": None,
    }
    if explorer.other_similarities is not None:
        layers = explorer.other_layers or explorer.layers
        name = explorer.other_name or "the other model"
        data["other"] = {"name": name, "layers": layers, "rows": _rounded(explorer.other_similarities)}
    return data


def explorer_html(explorer: Explorer) -> str:
    """The frame, which stays hidden until the script fills it, and the data."""
    two = explorer.other_similarities is not None
    frame = _FRAME.replace('class="explorer"', 'class="explorer two"') if two else _FRAME
    return frame + json_script("pair_data", explorer_data(explorer))


def _check(name: str, values: Any, shape: tuple[int, ...]) -> None:
    if np.shape(values) != shape:
        raise InputError(f"{name} has the shape {np.shape(values)}; the pairs and layers ask for {shape}")


def _rounded(values: Any) -> Any:
    return np.round(np.asarray(values, dtype=np.float64), 3).tolist()


_FRAME = """
<noscript><p class="note">Choosing pairs needs JavaScript; everything else on this page does not.</p></noscript>
<div class="explorer" id="pair_explorer" hidden>
  <div class="finder">
    <label for="pair_search">Search</label>
    <input type="search" id="pair_search" autocomplete="off" spellcheck="false" placeholder="words of a sentence">
    <label for="pair_order">Order</label>
    <select id="pair_order"></select>
    <p class="note" id="pair_count" role="status"></p>
    <ul id="pair_list" role="listbox" tabindex="0" aria-label="Pairs of sentences"></ul>
  </div>
  <div class="pair">
    <div id="pair_shown" aria-live="polite">
      <blockquote id="pair_left" dir="auto"></blockquote>
      <blockquote id="pair_right" dir="auto"></blockquote>
      <dl id="pair_facts"></dl>
    </div>
    <div id="pair_chart" class="drawing" role="group" aria-label="Cosine of the chosen pair by layer"></div>
    <p class="legend" id="pair_legend"></p>
    <p class="turn"><button type="button" id="pair_previous">Previous pair</button>
      <button type="button" id="pair_next">Next pair</button> <span class="note">or the arrow keys</span></p>
  </div>
</div>
"""
