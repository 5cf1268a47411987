"""Files and inline drawings: the same bytes each time, ids apart, texts at points, one drawing for both themes."""

import re
from functools import cache
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from layerwise.errors import InputError
from layerwise.plots import DARK, LIGHT, inline_svg, save_figure, theme_css
from support.plotting import FIGURES, MEAN, TEXTS, example
from support.slow_cases import one_in

light = cache(example)
parsed = ET.fromstring
SVG = "{http://www.w3.org/2000/svg}"


def ids(root: ET.Element) -> list[str]:
    return [element.get("id") for element in root.iter() if element.get("id")]


@pytest.mark.parametrize("name", one_in(3, FIGURES))
def test_an_inline_drawing_is_themed_by_variables_and_every_point_speaks(name):
    figure = light(name)
    text = inline_svg(figure, "fig-1")
    root = parsed(text)
    assert root.tag == "svg"
    assert (root.get("role"), root.get("width"), root.get("height")) == ("img", "100%", None)
    assert root.get("aria-label") == figure.description
    assert re.fullmatch(r"0 0 [\d.]+ [\d.]+", root.get("viewBox"))
    assert not re.search(r"#[0-9a-fA-F]{6}\b", text), "a colour that no theme can change"
    known = set(re.findall(r"(--[\w-]+):", theme_css()))
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= known
    points = [element for element in root.iter() if element.get("class") == "point"]
    labels = [label for labels in figure.hover.values() for label in labels]
    assert sorted(point.get("data-label") for point in points) == sorted(labels)
    assert all(point.find("title").text == point.get("data-label") for point in points)
    assert "<style" not in text
    assert "<image" not in text


def test_ids_of_two_drawings_are_apart_and_every_reference_is_there():
    first, second = (parsed(inline_svg(light("layer_curves"), prefix)) for prefix in ("one", "two"))
    both = ids(first) + ids(second)
    assert len(set(both)) == len(both)
    for root in (first, second):
        text = ET.tostring(root, encoding="unicode")
        asked = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text))
        assert asked
        assert asked == set(ids(root))


def test_one_drawing_serves_both_themes():
    assert inline_svg(light("layer_curves"), "a") == inline_svg(example("layer_curves", DARK), "a")
    assert inline_svg(light("layer_likeness"), "a") == inline_svg(example("layer_likeness", DARK), "a")


@pytest.mark.parametrize("ending", ["png", "svg", "SVG"])
def test_files_have_the_same_bytes_each_time(ending, tmp_path):
    one = save_figure(light("layer_curves"), tmp_path / f"one.{ending}")
    other = save_figure(example("layer_curves"), tmp_path / f"other.{ending}")
    again = save_figure(light("layer_curves"), tmp_path / f"again.{ending}")
    assert one.read_bytes() == other.read_bytes() == again.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{n}.{ending}" for n in ("one", "other", "again")
    )


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_files_stand_alone_in_their_theme(theme, tmp_path):
    figure = example("layer_curves", theme)
    root = parsed(save_figure(figure, tmp_path / "a.svg").read_text(encoding="utf-8"))
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert root.tag == f"{SVG}svg"
    assert theme.paper in text
    assert theme.series[0] in text
    assert "var(" not in text
    assert {element.text for element in root.iter(f"{SVG}text")} >= {"layer", "Spearman × 100", "best mix 56.1"}
    assert "date" not in text.lower()
    with Image.open(save_figure(figure, tmp_path / "a.png")) as image:
        assert image.size == (1160, 700)
        assert "#{:02x}{:02x}{:02x}".format(*image.convert("RGB").getpixel((1, 1))) == theme.paper
        shown = {"#{:02x}{:02x}{:02x}".format(*colour) for _, colour in image.convert("RGB").getcolors(2**20)}
    assert {theme.ink, theme.series[0], theme.series[1]} <= shown


def test_hostile_text_is_escaped():
    from layerwise.plots import attention_map

    hostile = '</svg><script>alert("1")</script> & \x1b'
    figure = attention_map(weights=np.ones((3, 2)) / 2, sentences=[hostile, *TEXTS[:2]])
    text = inline_svg(figure, "a")
    assert "<script" not in text
    assert parsed(text).tag == "svg"


def test_a_figure_of_ones_own_can_be_written(tmp_path):
    figure = Figure()
    figure.subplots().plot(MEAN)
    assert parsed(inline_svg(figure, "own")).get("aria-label") == "figure"
    assert save_figure(figure, tmp_path / "own.png").stat().st_size > 1000


def test_bad_endings_folders_and_prefixes_are_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"a\.pdf: figures are written as \.png or \.svg; give a name that ends so"):
        save_figure(light("layer_curves"), tmp_path / "a.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/a\.png: cannot be written: .*; free some space or give another path"):
        save_figure(light("layer_curves"), tmp_path / "file" / "a.png")
    with pytest.raises(InputError, match="id_prefix '1 x' is no beginning of an id"):
        inline_svg(light("layer_curves"), "1 x")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_the_style_sheet_has_every_variable_for_light_and_twice_for_dark():
    css = theme_css()
    assert css.count("--ink:") == css.count("--series-8:") == css.count("--heat-23:") == 3
    assert css.count(LIGHT.ink) == 1
    assert css.count(DARK.ink) == 2
    assert "@media (prefers-color-scheme: dark) { :root:not([data-theme=light])" in css
    assert ":root[data-theme=dark] {" in css
