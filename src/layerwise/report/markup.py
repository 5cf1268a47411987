"""Pieces of HTML in which nothing that users wrote can become markup or script."""

import base64
import hashlib
import html
import json
import re

from layerwise.files import plain_json

_TAG = re.compile(r"<[A-Za-z][^\s/>]*(?:\s+[\w:.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*\s*/?>")
_ATTRIBUTE = re.compile(r"(?<=\s)([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")


def escaped(text: object) -> str:
    """Text for an element or a quoted attribute.

    >>> escaped("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return html.escape(str(text), quote=True)


def paragraphs(text: str) -> str:
    """Blank lines part paragraphs."""
    parts = (part.strip() for part in re.split(r"\n\s*\n", text))
    return "".join(f"<p>{escaped(part)}</p>" for part in parts if part)


def json_script(name: str, value: object) -> str:
    """Data for the page's script. Without `<` no text in it can end the element."""
    text = json.dumps(plain_json(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", r"\u003c")
    return f'<script type="application/json" id="{escaped(name)}">{text}</script>'


def style(*sheets: str) -> str:
    """One style element; `</` would end it early."""
    text = "\n".join(sheets).replace("</", r"<\/")
    return f"<style>{text}</style>"


def script_policy(script: str) -> str:
    """A content security policy: this one script runs, no other, and nothing is loaded from anywhere."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def with_own_ids(svg: str, prefix: str) -> str:
    """The same drawing with its ids and the references to them prefixed: many drawings share one page.

    >>> with_own_ids('<svg><path id="a"/><use href="#a" clip-path="url(#b)"/></svg>', "f1-")
    '<svg><path id="f1-a"/><use href="#f1-a" clip-path="url(#f1-b)"/></svg>'
    """

    def rename(found: re.Match[str]) -> str:
        name = found[1]
        value = found[2] if found[2] is not None else found[3].replace('"', "&quot;")
        if name == "id":
            value = prefix + value
        elif name in ("href", "xlink:href") and value.startswith("#"):
            value = f"#{prefix}{value[1:]}"
        elif name in ("aria-labelledby", "aria-describedby"):
            value = " ".join(prefix + one for one in value.split())
        elif not name.startswith(("data-", "aria-")):  # those are words for people
            value = re.sub(r"url\((['\"]|&quot;)?#", lambda start: start[0] + prefix, value)
        return f'{name}="{value}"'

    return _TAG.sub(lambda tag: _ATTRIBUTE.sub(rename, tag[0]), svg)
