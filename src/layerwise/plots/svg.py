"""Post-process matplotlib's SVG for files and pages: fewer ids, tooltips, colours as variables."""

import re
from xml.etree import ElementTree as ET  # only parses matplotlib's output

from matplotlib.figure import Figure

from layerwise.errors import InputError
from layerwise.plots.style import BACKGROUND, DARK, FONT, LIGHT, Theme

_ID_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"(url\(#|^#)([^)]+)")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_FILE_FONTS = f"'{FONT}', Verdana, sans-serif"
_PAGE_FONTS = "var(--figure-font, system-ui, sans-serif)"
_WIDE = 7  # inches, above which a drawing needs the full width of a page
_JOINS = "stroke-linejoin: round; stroke-linecap: butt"


def parse(content: bytes) -> ET.Element:
    """Parse a drawing without namespaces, metadata and the style sheet, which would affect other drawings of a page."""
    root = ET.fromstring(content)  # noqa: S314
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style") or (child.tag == "defs" and not _has_content(child)):
                parent.remove(child)
    root.set("style", _JOINS)
    return root


def for_file(root: ET.Element, figure: Figure) -> ET.Element:
    """Prepare a drawing for a file, in its own colours."""
    _label_points(root, figure)
    _rename(root, "part")
    _set_fonts(root, _FILE_FONTS)
    _describe(root, figure)
    _compact(root)
    root.set("xmlns", "http://www.w3.org/2000/svg")
    return root


def for_page(root: ET.Element, figure: Figure, prefix: str) -> ET.Element:
    """Prepare a drawing for a page, with the page's colours and width."""
    if not _ID_PREFIX.fullmatch(prefix):
        raise InputError(f"id_prefix {prefix!r} is no beginning of an id; give a letter, then letters, digits, - or _")
    for parent in list(root.iter()):
        for child in [child for child in parent if child.get("id") == BACKGROUND]:
            parent.remove(child)
    _label_points(root, figure)
    _rename(root, prefix)
    _set_fonts(root, _PAGE_FONTS)
    _describe(root, figure)
    names = {colour: f"var({name})" for name, colour in variables(_theme(figure)).items()}
    for element in root.iter():
        if "style" in element.attrib:
            style = element.attrib["style"]
            element.set("style", _COLOUR.sub(lambda match: names.get(match.group(), match.group()), style))
    _compact(root)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("width", "100%")
    root.set("class", "wide" if figure.get_figwidth() > _WIDE else "narrow")
    return root


def as_text(root: ET.Element) -> str:
    """Serialise with one element per line, so that versions of a file can be compared."""
    return ET.tostring(root, encoding="unicode")


def variables(theme: Theme) -> dict[str, str]:
    """The colours of a theme by the names of CSS variables."""
    base = {"--paper": theme.paper, "--ink": theme.ink, "--muted": theme.muted, "--grid": theme.grid}
    series = {f"--series-{place}": colour for place, colour in enumerate(theme.series, start=1)}
    return base | series | {f"--heat-{place}": colour for place, colour in enumerate(theme.heat)}


def theme_css() -> str:
    """CSS variables of the light theme, and of the dark one for dark systems or a root with `data-theme=dark`."""
    return (
        f":root {{ {_css(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {_css(DARK)} }} }}\n"
        f":root[data-theme=dark] {{ {_css(DARK)} }}\n"
    )


def _css(theme: Theme) -> str:
    return " ".join(f"{name}: {colour};" for name, colour in variables(theme).items())


def _theme(figure: Figure) -> Theme:
    theme = getattr(figure, "theme", LIGHT)
    return theme if isinstance(theme, Theme) else LIGHT


def _has_content(defs: ET.Element) -> bool:
    return any(child.tag != "style" for child in defs)


def _label_points(root: ET.Element, figure: Figure) -> None:
    """Give each marker, bar or cell its tooltip."""
    hover: dict[str, tuple[str, ...]] = getattr(figure, "hover", {})
    for group in root.iter("g"):
        labels = hover.get(group.get("id", ""))
        if labels is None:
            continue
        elements = list(group.iter("use")) or list(group.iter("path"))
        for element, label in zip(elements, labels, strict=True):
            element.set("class", "point")
            element.set("data-label", label)
            ET.SubElement(element, "title").text = label


def _rename(root: ET.Element, prefix: str) -> None:
    """Number the ids that are referenced, and remove the others."""
    values = [value for element in root.iter() for value in element.attrib.values()]
    used = {match.group(2) for match in map(_REFERENCE.search, values) if match}
    names: dict[str, str] = {}
    for element in root.iter():
        old = element.attrib.pop("id", None)
        if old in used and old is not None:
            names[old] = f"{prefix}-{len(names)}"
            element.set("id", names[old])
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in ("href", "clip-path", "style"):
                element.set(name, _REFERENCE.sub(lambda match: match.group(1) + names[match.group(2)], value))


def _compact(element: ET.Element) -> None:
    """Remove empty groups and invisible paths, and round coordinates to hundredths of a point."""
    children: list[ET.Element] = []
    for child in element:
        _compact(child)
        if child.tag == "g" and not child.attrib:
            children.extend(child)
        elif child.attrib != {"d": child.get("d"), "style": "fill: none"}:
            children.append(child)
    element[:] = children
    for name in ("d", "x", "y", "transform"):
        if name in element.attrib:
            rounded = _LONG_NUMBER.sub(lambda match: f"{float(match.group()):.2f}", element.attrib[name])
            element.set(name, " ".join(rounded.split()))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if element.tag not in ("text", "title"):
        element.text = "\n"
    element.tail = "\n"


def _set_fonts(root: ET.Element, fonts: str) -> None:
    for text in root.iter("text"):
        text.set("style", text.get("style", "").replace(f"'{FONT}'", fonts))


def _describe(root: ET.Element, figure: Figure) -> None:
    root.set("role", "img")
    root.set("aria-label", getattr(figure, "description", "") or "figure")
