"""An extension of griffe: examples in docstrings (>>> …) become blocks of code.

Markdown would take >>> for quotations, and griffe knows examples only under a heading of their own.
"""

from typing import Any

from griffe import Extension, Object


class FencedDoctests(Extension):
    """Puts a fence around every paragraph that begins with >>>."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its doctests as Python blocks; lines that begin with a prompt or follow one up to a blank line."""
    lines: list[str] = []
    inside = False
    for line in [*text.split("\n"), ""]:
        if not inside and line.lstrip().startswith(">>> "):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines[:-1])
