"""The report page as text: what users wrote stays text, ids are unique, data comes back, nothing is loaded."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from layerwise.errors import InputError
from layerwise.report import write_page
from layerwise.report.page import Column, Explorer, Fact, Figure, Section, Table, explorer_data, page_html
from support.sample_page import HOSTILE, line_svg, some_explorer, some_page


class Parsed(HTMLParser):
    """Elements with their attributes, and the text inside each kind of element."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def attributes(self, name):
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def hostile_page():
    column = Column(HOSTILE, "text", help=HOSTILE)
    return some_page(
        title=HOSTILE,
        subtitle=HOSTILE,
        answer=(HOSTILE, HOSTILE),
        headline=(Fact(HOSTILE, HOSTILE, HOSTILE),),
        sections=(Section("one", HOSTILE, (Figure(line_svg([1, 2]), HOSTILE, HOSTILE, HOSTILE),), HOSTILE),),
        measures=Table((column, Column("n")), ((HOSTILE, 1.0),)),
        protocol=((HOSTILE, HOSTILE),),
        commands=(HOSTILE,),
        generated=HOSTILE,
    )


def test_hostile_words_stay_words():
    plain, hostile = Parsed(page_html(some_page())), Parsed(page_html(hostile_page()))
    scripts = [attributes for tag, attributes in hostile.elements if tag == "script"]
    assert scripts == [attributes for tag, attributes in plain.elements if tag == "script"]
    assert not [tag for tag, _ in hostile.elements if tag in ("img", "iframe", "object", "link", "base", "form")]
    assert not [name for _, attributes in hostile.elements for name in attributes if name.startswith("on")]
    for tag in ("title", "h1", "h2", "h3", "code", "dt", "dd"):
        assert HOSTILE in hostile.texts[tag]


def test_only_the_pages_own_script_is_allowed():
    text = page_html(hostile_page())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [attributes["content"] for _, attributes in Parsed(text).elements if "http-equiv" in attributes]
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_ids_are_unique_and_references_find_them():
    page = Parsed(page_html(some_page()))
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    named = [name for each in page.attributes("aria-labelledby") for name in each.split()]
    targets = [address[1:] for address in page.attributes("href")]
    clips = re.findall(r"url\(#([^)]+)\)", " ".join(page.attributes("clip-path")))
    assert clips
    assert {*named, *targets, *clips, *page.attributes("for")} <= set(ids)


def test_headings_are_in_order_and_landmarks_are_there():
    page = Parsed(page_html(some_page()))
    tags = [tag for tag, _ in page.elements]
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert {"header", "nav", "main", "footer"} <= set(tags)
    assert ("html", {"lang": "en"}) in page.elements
    assert any(attributes.get("name") == "viewport" for _, attributes in page.elements)


def test_nothing_is_loaded():
    page = Parsed(page_html(some_page()))
    assert not page.attributes("src")
    assert all(address.startswith("#") for address in page.attributes("href") + page.attributes("xlink:href"))
    sheets = " ".join(page.texts["style"])
    assert "@import" not in sheets
    assert "url(" not in sheets


def pair_data(text):
    (block,) = re.findall(r'<script type="application/json" id="pair_data">(.*?)</script>', text, re.S)
    return json.loads(block)


@pytest.mark.parametrize("second", [False, True])
def test_explorer_data_comes_back(second):
    explorer = some_explorer(40, second=second)
    data = pair_data(page_html(some_page(explorer=explorer)))
    assert data == json.loads(json.dumps(explorer_data(explorer)))
    assert [tuple(pair) for pair in data["pairs"]] == list(explorer.pairs)
    np.testing.assert_allclose(data["rows"], explorer.similarities, atol=0.0005)
    assert data["rows"][3][2] == round(float(explorer.similarities[3, 2]), 3)
    assert (data["other"] is not None) == second


def test_what_is_not_a_number_becomes_null():
    explorer = Explorer([("a", "b", float("nan"))], ["0", "1"], [[float("nan"), 0.5]], "0-1", [float("inf")])
    data = pair_data(page_html(some_page(explorer=explorer)))
    assert data["pairs"][0][2] is None
    assert data["rows"] == [[None, 0.5]]
    assert data["mix"]["values"] == [None]


def test_a_thousand_pairs_stay_small():
    page = some_page(explorer=some_explorer(1000, 25, second=False))
    assert len(page_html(page).encode()) < 1_000_000


def test_write_page_is_whole_and_makes_folders(tmp_path):
    broken = "half a pair \ud800"
    path = write_page(some_page(title=broken), tmp_path / "new" / "report.html")
    assert "half a pair ?" in path.read_text(encoding="utf-8")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    write_page(some_page(title="again"), str(path))
    assert "<title>again</title>" in path.read_text(encoding="utf-8")
    with pytest.raises(InputError, match="is a folder; give the name of a file"):
        write_page(some_page(), tmp_path)


def test_parts_without_anything_are_left_out():
    page = some_page(
        explorer=None, protocol=(), commands=(), measures=Table((Column("a"),), ()), sections=(), headline=()
    )
    text = page_html(page)
    assert re.findall(r'<section id="(\w+)"', text) == ["answer"]


def table_html(*arguments):
    """The rows of a page's table, without space between elements."""
    text = page_html(some_page(measures=Table(*arguments)))
    return re.sub(r">\s+<", "><", text[text.index('<section id="measures"') :])


def test_table_cells():
    columns = (Column("layer", "text"), Column("score", "number", 2, "more is better"), Column("n", "number", 0))
    text = table_html(columns, (("a<b", -1.005, 12345), ("c", None, float("nan")), ("d", 2, 0)))
    assert '<th scope="row" class="text" dir="auto">a&lt;b</th>' in text
    assert (
        '<td class="number" data-value="-1.005">−1.00</td><td class="number" data-value="12345.0">12,345</td>' in text
    )
    assert text.count('<td class="number" data-value="">–</td>') == 2
    assert "more is better</dd>" in text


def test_numbers_of_numpy_are_numbers():
    row = (np.str_("a"), np.float32(0.5), np.int64(3))
    text = table_html((Column("t", "text"), Column("x"), Column("n", digits=0)), (row,))
    assert 'data-value="0.5">0.50<' in text
    assert 'data-value="3.0">3<' in text
    assert 'data-value="">–<' in table_html((Column("t", "text"), Column("x")), (("a", np.float32("nan")),))


def test_what_could_end_an_element_early_does_not():
    page = Parsed(
        page_html(some_page(css="</style><b>", sections=(Section("x", "X", text="one\n\n two & three \n\n"),)))
    )
    assert "b" not in [tag for tag, _ in page.elements]
    assert {"one", "two & three"} <= set(page.texts["p"])
    assert "99.9\u00a0% sure" in " ".join(page.texts["p"])  # stays on one line


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table((Column("a"), Column("b")), ((1.0,),)), "Row 0 has 1 cells for 2 columns"),
        (lambda: Table((Column("a"),), (("x",),)), "Row 0: 'x' in the column 'a' is not a number"),
        (lambda: Figure("figure.png", "Scores", "look"), "Figure 'Scores': 'figure.png' is not a drawing"),
        (lambda: Figure("<?xml version='1.0'?><svg/>", "Scores", "look"), "Figure 'Scores': .* is not a drawing"),
        (lambda: Section("Two words", "x"), "Section id 'Two words': give small letters"),
        (lambda: Section("measures", "x"), "Section id 'measures'"),
        (
            lambda: some_page(sections=(Section("a", "x"), Section("a", "y"))),
            r"Section ids \['a'\] are there more than once",
        ),
        (lambda: Explorer([], ["0"], [], "0", []), "An explorer of 0 pairs and 1 layers shows nothing"),
        (lambda: Explorer([("a", "b", None)], ["0"], [[1, 2]], "0", [1]), r"similarities has the shape \(1, 2\)"),
        (lambda: Explorer([("a", "b", None)], ["0"], [[1]], "0", [1, 2]), r"mix_similarities has the shape \(2,\)"),
        (
            lambda: Explorer([("a", "b", None)], ["0"], [[1]], "0", [1], other_similarities=[[1, 2]]),
            r"other_similarities has the shape \(1, 2\); the pairs and layers ask for \(1, 1\)",
        ),
    ],
)
def test_what_can_not_be_shown_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
