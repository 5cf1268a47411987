"""The documentation site: it builds without a warning and without network, and no link or anchor in it is dead."""

import logging
import re
import socket
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import typer
import yaml

pytest.importorskip("mkdocs", reason="pip install 'layerwise[docs]'")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "reference"))

import command_line
import formats
import python_names
from layerwise.cli.app import app
from layerwise.data import KINDS, Source, Task, TextFile
from layerwise.train import TERMS
from support.report_page import fits, opened
from support.slow_cases import covering

SCREENS = {"desktop": {"width": 1280}, "phone": {"width": 375, "height": 812, "phone": True, "scheme": "dark"}}

pytestmark = pytest.mark.slow  # builds the site: half a minute


class Page(HTMLParser):
    """Where a page leads, what can be linked in it, and what a browser would load for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.anchors.update(filter(None, (named.get("id"), named.get("name"))))
        if tag == "a" and named.get("href"):
            self.links.append(named["href"])
        if tag in ("script", "img", "source") and named.get("src"):
            self.loaded.append(named["src"])
        if tag == "link" and named.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(named["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site, and the warnings of the build."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder, messages = tmp_path_factory.mktemp("site"), []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("mkdocs").addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the build reaches for the network"))
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    logging.getLogger("mkdocs").removeHandler(handler)
    return folder, messages


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site[0].rglob("*.html") if path.name != "404.html"}


def test_it_builds_without_a_warning(site):
    folder, messages = site
    assert not messages
    assert (folder / "index.html").is_file()


def test_no_link_and_no_anchor_is_dead(pages):
    for path, page in pages.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", address):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.name} links to {link}"
            assert not anchor or target.suffix != ".html" or unquote(anchor) in pages[target].anchors, (path.name, link)


def test_nothing_is_loaded_from_elsewhere(pages):
    for path, page in pages.items():
        assert not [address for address in page.loaded if re.match(r"(https?:)?//", address)], path.name


def test_every_page_has_its_place_in_the_navigation():
    text = re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    nav = yaml.safe_load(text)["nav"]
    assert [next(iter(part)) for part in nav] == [
        "Start", "Tutorials", "How-to", "Reference", "Background", "Benchmarks",
    ]  # fmt: skip
    listed = list(_addresses(nav))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    generated = {"reference/command-line.md", "reference/recipes.md", "reference/tasks.md"}
    generated |= {f"reference/python/{room}.md" for room in python_names.ROOMS}
    assert sorted(listed) == sorted(written | generated)


def _addresses(nav):
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(value, list):
            yield from _addresses(value)
        else:
            yield value


def test_every_command_and_option_is_in_the_reference():
    page = command_line.command_line_page()
    paths = [path for path, _, _ in command_line.commands()]
    assert {path.split()[1] for path in paths} == set(typer.main.get_command(app).commands)
    for path, command, context in command_line.commands():
        section = page.split(f"## {path}\n")[1].split("\n## ")[0]
        for parameter in command.get_params(context):
            if parameter.param_type_name == "option" and parameter.name != "help" and not parameter.hidden:
                assert f"`{parameter.opts[0]}`" in section, (path, parameter.opts)


KINDS_OF_TABLES = {
    **formats.CONTRASTIVE,
    **{f"{name} of multitask": kind for name, kind in formats.MULTITASK.items()},
    **{name: TERMS[name] for name in TERMS},
    "task": Task,
    "text file": TextFile,
    "source": Source,
}


@pytest.mark.parametrize("kind", KINDS_OF_TABLES.values(), ids=KINDS_OF_TABLES)
def test_every_key_of_a_file_is_described(kind):
    described = formats.descriptions(kind)
    assert [name for name in formats.fields(kind) if not described.get(name)] == []


def test_the_pages_of_files_have_every_key_with_its_default():
    recipes, tasks = formats.recipes_page(), formats.tasks_page()
    assert "| `learning_rate` | number, above 0 | `3e-05` | The highest value of the schedule. |" in recipes
    assert '| `columns` | list of text | `["text"]` |' in recipes
    assert all(f"### `[[objective]]` {name}\n" in recipes for name in TERMS)
    assert "| `name` | text | required | The name of the task in commands and results. |" in tasks
    assert all(f"| `{name}` |" in tasks for name in KINDS)


@pytest.mark.parametrize("room", python_names.ROOMS)
def test_every_public_name_is_in_the_reference(room):
    page = python_names.room_page(room)
    for name in vars(sys.modules[room])["__all__"]:
        assert name.startswith("_") or f".{name}\n" in page or f"[`{name}`]" in page


@pytest.mark.parametrize(
    ("page", "screen"),
    covering(["index", "start/ten-minutes", "tutorials/fewer-blocks", "kinds", "background/bert-lc"], SCREENS),
)
def test_a_page_fits_desktop_and_phone(site, browser, page, screen):
    with opened(browser, site[0] / f"{page}.html", **SCREENS[screen]) as (tab, log):
        assert tab.evaluate("document.querySelector('h1').getBoundingClientRect().width") > 0
        assert fits(tab)
        assert not log.problems
        assert all(address.startswith("file:") for address in log.requests)
