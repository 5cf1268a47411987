"""The model card: what the model is, how its mix was chosen, how to use it."""

from dataclasses import dataclass

from layerwise.version import __version__


@dataclass(frozen=True)
class CardFacts:
    """What a card states; `trained` are more rows (label, text) of its table, `training` those of its own section."""

    encoder: str
    mix: str
    chosen: str
    blocks: int
    depth: int
    width: int
    max_length: int
    native: bool
    normalize: bool
    heads: int
    flows: int = 0
    fitted_on: tuple[str, ...] = ()
    trained: tuple[tuple[str, str], ...] = ()
    training: tuple[tuple[str, str], ...] = ()


def model_card(facts: CardFacts) -> str:
    """Markdown with the metadata that the hub reads."""
    cut = f"{facts.blocks} of {facts.depth}" if facts.blocks < facts.depth else f"all {facts.depth}"
    trust = "" if facts.native else ", trust_remote_code=True"
    needs = "" if facts.native else "\nIt needs the package too: `pip install layerwise`.\n"
    mix = facts.mix.replace("|", "\\|")  # which would end the cell
    extras = [f"{facts.heads} linear layer(s) behind the mix"] * bool(facts.heads)
    extras += [f"{facts.flows} flow(s) behind the mix"] * bool(facts.flows)
    extras += ["embeddings of length 1"] * facts.normalize
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
- sentence-similarity
- layerwise
{_base_model(facts.encoder)}---

# Sentence embeddings from layers {facts.mix}

| | |
|---|---|
| encoder | {facts.encoder} |
| layer mix | `{mix}` (layer 0 = embeddings, {facts.depth} = the encoder's last) |
| how it was chosen | {facts.chosen} |
| blocks kept | {cut} |
| embedding | {facts.width} numbers{"".join(f"; {extra}" for extra in extras)} |
| longest input | {facts.max_length} tokens; longer text is cut there |
{"".join(f"| fitted on | {cell(text)} |{chr(10)}" for text in facts.fitted_on)}{_rows(facts.trained)}
## Use
{needs}
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path or name"{trust})
embeddings = model.encode(["A sentence.", "Another one."])
```

or, with every layer at hand:

```python
from layerwise import LayerModel

model = LayerModel.load("path or name")
```

{_training(facts.training)}Made with layerwise {__version__}.
"""


def _base_model(encoder: str) -> str:
    """The metadata line, only for what can be a hub name: a path of this machine is nobody's business."""
    return f"base_model: {encoder}\n" if encoder.count("/") == 1 and not encoder.startswith((".", "/", "~")) else ""


def _training(rows: tuple[tuple[str, str], ...]) -> str:
    """A section on the training, or nothing."""
    if not rows:
        return ""
    return f"""## Training

As it was recorded by the training; scores are of the model as it was trained, not of a mix or head chosen later.

| key | value |
|---|---|
{_rows(rows)}
"""


def _rows(rows: tuple[tuple[str, str], ...]) -> str:
    return "".join(f"| {cell(label)} | {cell(text)} |\n" for label, text in rows)


def cell(text: str) -> str:
    """A text of the user's in one cell of a table."""
    return " ".join(text.replace("|", "/").split())
