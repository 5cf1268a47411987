"""`layerwise explain MODEL "text a" "text b"`: which words and which layers make two sentences alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import AsJson, Model
from layerwise.cli.screen import print_json, print_line, print_table
from layerwise.errors import InputError, printable
from layerwise.extras import require
from layerwise.files import check_writable

if TYPE_CHECKING:
    from layerwise.explain import ExplainedText, Explanation

_STRONGEST = 160  # how far a colour goes from white, of 255


@loads_model
def explain(
    model: Model,
    left: Annotated[str, typer.Argument(metavar="TEXT_A", help="A sentence.")],
    right: Annotated[str, typer.Argument(metavar="TEXT_B", help="Another sentence.")],
    layers: Annotated[
        str | None,
        typer.Option(help="A mix such as 'last' or '1,6 @ mean' instead of the model's, without its heads."),
    ] = None,
    top: Annotated[int, typer.Option(help="So many pairs of words, those with the largest terms.")] = 10,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write everything to an HTML file.")] = None,
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Explain the cosine of two sentences exactly, as a sum over their words and layers."""
    if top < 1:
        raise InputError(f"--top {top}: give 1 or more")
    for name, text in (("TEXT_A", left), ("TEXT_B", right)):
        if not text.strip():
            raise InputError(f"{name} is empty; give a sentence, in quotes where it holds spaces")
    if out is not None:
        if out.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"{out}: an explanation is an HTML file; name one that ends in .html")
        check_writable(out)
        require("report", "`layerwise explain -o`", "jinja2")
    from layerwise.explain import explain_pair
    from layerwise.model import LayerModel  # takes seconds: the mistakes above are reported first

    explanation = explain_pair(LayerModel.load(model, mix=layers, **loading), left, right)
    if out is not None:
        from layerwise.report import command_line, write_explanation

        chosen = [] if layers is None else ["--layers", layers]
        write_explanation(explanation, out, command_line("explain", model, left, right, *chosen, "-o", out.name))
    if as_json:
        print_json(explanation.as_dict())
        return
    _show(explanation, top)
    if out is not None:
        print_line(f"wrote {out}; open it in a browser")


def _show(explanation: "Explanation", top: int) -> None:
    from layerwise.explain import CONTEXTUAL, MOST_VIEWS

    sums_to = f"the terms sum to {explanation.total:.4f}, residual {explanation.residual:.1e}"
    print_line(f"{explanation.model} by {explanation.mix}\ncosine {explanation.cosine:.4f}; {sums_to}\n")
    sums = explanation.by_word
    strongest = max(abs(sums.sum(0)).max(), abs(sums.sum(1)).max())
    _print_words("A", explanation.left, sums.sum(1) / strongest)
    _print_words("B", explanation.right, sums.sum(0) / strongest)
    _print_largest("word", explanation.largest_by_word(top))
    views = explanation.views
    if 1 < len(views) <= MOST_VIEWS:
        rows = [(name, *map(_signed, row)) for name, row in zip(views, explanation.by_view, strict=True)]
        print_table(("layer of A, of B:", *views), rows)
    elif len(views) > 1:
        _print_largest("layer", explanation.largest_by_view(top))
    print_line(CONTEXTUAL)


def _print_largest(kind: str, rows: Sequence[tuple[str, str, float]]) -> None:
    signed = [(left, right, _signed(term)) for left, right, term in rows]
    print_table((f"{kind} of A", f"{kind} of B", "adds"), signed)


def _signed(value: float) -> str:
    return f"{value:+.4f}"


def _print_words(name: str, text: "ExplainedText", strengths: Any) -> None:
    """The words on a ground that is the bluer the more they raise the cosine, and the redder the more they lower it."""
    from rich.console import Console
    from rich.text import Text

    line = Text(f"{name}: ")
    for word, strength in zip(text.words, strengths.tolist(), strict=True):
        faded = 255 - round(_STRONGEST * abs(strength))
        ground = f"rgb({faded},{faded},255)" if strength >= 0 else f"rgb(255,{faded},{faded})"
        line.append(f" {printable(word)} ", style=f"black on {ground}")
    Console().print(line, highlight=False)
