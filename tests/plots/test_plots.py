"""Every figure, in both themes: drawn without a warning, from what came in, with labels that can be read."""

import subprocess
import sys
import warnings
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from layerwise.plots import DARK, LIGHT, Drawing, layer_curves, layers_chosen, token_matrices
from layerwise.plots.labels import spread_apart
from layerwise.plots.style import format_number, layer_ticks, shorten, shorten_middle
from support.plotting import (
    BEST,
    CKA,
    CLS,
    COSINES,
    EXTREMES,
    FIGURES,
    FLAT,
    LAYERS,
    MEAN,
    POINTS,
    POOLINGS,
    SEEDS,
    SHARES,
    STEPS,
    WEIGHTS,
    example,
)
from support.slow_cases import most_slow, one_in

light = cache(example)


@cache
def texts_drawn(name: str) -> list[Text]:
    """What is really written in a light figure, drawn once and without a warning: ticks beyond the axes are not."""
    written: list[Text] = []
    draw = Text.draw

    def recorded(self, renderer, *args, **kwargs):
        if self.get_visible() and self.get_text().strip():
            written.append(self)
        return draw(self, renderer, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        patch.setattr(Text, "draw", recorded)
        FigureCanvasAgg(light(name)).draw()
    return list(dict.fromkeys(written))


def data_lines(figure: Drawing) -> dict[str, np.ndarray]:
    """The lines whose points say something, by what they say first: (n, 2)"""
    named = [line for panel in figure.axes for line in panel.lines if line.get_gid() in figure.hover]
    return {figure.hover[line.get_gid()][0].rpartition(",")[0]: line.get_xydata() for line in named}


@pytest.mark.parametrize(
    ("name", "theme"),
    one_in(
        2,
        [(name, LIGHT) for name in (*FIGURES, *EXTREMES)]
        + most_slow(((name, DARK) for name in FIGURES), now=[(name, DARK) for name in [*FIGURES][::9]]),
    ),
    ids=lambda value: getattr(value, "name", value),
)
def test_figures_are_drawn_without_a_warning_in_the_themes_colours(name, theme):
    if theme is LIGHT:
        assert texts_drawn(name)
        figure = light(name)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure = example(name, theme)
            FigureCanvasAgg(figure).draw()
    ours = {theme.paper, theme.ink, theme.muted, theme.grid, *theme.series, *theme.heat}
    assert {text.get_color() for text in figure.findobj(Text) if text.get_text()} <= ours
    assert figure.get_facecolor() == pytest.approx([*(int(theme.paper[k : k + 2], 16) / 255 for k in (1, 3, 5)), 1])
    assert figure.description


@pytest.mark.parametrize("name", [*FIGURES, *EXTREMES])
def test_labels_stay_on_the_canvas_are_large_enough_and_do_not_overlap(name):
    texts, figure = texts_drawn(name), light(name)
    boxes = [text.get_window_extent() for text in texts]
    for text, box in zip(texts, boxes, strict=True):
        assert text.get_fontsize() >= 9
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    for (one, box), (other, second) in combinations(zip(texts, boxes, strict=True), 2):
        apart = min(box.x1, second.x1) - max(box.x0, second.x0), min(box.y1, second.y1) - max(box.y0, second.y0)
        assert min(apart) <= 2, f"{one.get_text()!r} and {other.get_text()!r} overlap"  # pixels: boxes have air


def test_nothing_of_matplotlibs_state_changes_and_pyplot_stays_out():
    code = (
        "import sys, layerwise; assert 'matplotlib' not in sys.modules\n"
        "import matplotlib; before = matplotlib.rcParams.copy()\n"
        "from layerwise.plots import layer_curves, inline_svg\n"
        "inline_svg(layer_curves(scores={'mean': [1, 2, 3]}), 'a')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert all(matplotlib.rcParams[name] == before[name] for name in before if name != 'backend')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_layer_curves_show_what_came_the_last_layer_and_the_mix():
    figure = light("layer_curves")
    lines = data_lines(figure)
    for name, values in POOLINGS.items():
        np.testing.assert_array_equal(lines[name], np.stack([LAYERS, values], 1))
    (panel,) = figure.axes
    np.testing.assert_array_equal(lines["best mix"], [[layer, BEST.score] for layer in BEST.layers])
    ring = next(line for line in panel.lines if line.get_markerfacecolor() == "none")
    assert ring.get_xydata().tolist() == [[12, 45.0]]
    assert {text.get_text() for text in panel.texts} == {"mean, last layer 45.0", "cls", "max", "best mix 56.1"}
    gaps = next(labels for labels in figure.hover.values() if labels[0].startswith("cls"))
    assert gaps[0] == "cls, layer 1: 35.6"
    assert len(gaps) == 12 == np.isfinite(CLS).sum()


def test_a_panel_for_each_model_with_one_scale():
    figure = light("layer_curves_by_model")
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["wiki-mlm", "MiniLM", "mpnet"]
    assert len({panel.get_ylim() for panel in figure.axes}) == 1
    np.testing.assert_array_equal(data_lines(figure)["MiniLM, mean"][:, 1], MEAN[:7] + 20)
    assert [text.get_text() for text in figure.legends[0].get_texts()][3:] == [
        "last layer",
        "best mix, dots on its layers",
    ]


def test_lines_that_end_together_are_named_in_a_legend():
    figure = light("layer_curves_crowded")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"model number {k}" for k in range(6)]
    assert not figure.axes[0].texts
    assert figure.legends[0].get_title().get_text() == "Six models, all alike"


def test_convergence_draws_means_and_bands_from_least_to_most():
    figure = light("convergence")
    np.testing.assert_array_equal(data_lines(figure)["SimCSE"], np.stack([STEPS, SEEDS.mean(0)], 1))
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    for step, low, high in zip(STEPS, SEEDS.min(0), SEEDS.max(0), strict=True):
        heights = band[band[:, 0] == step, 1]
        assert (heights.min(), heights.max()) == (low, high)


@pytest.mark.parametrize(
    ("name", "matrices"),
    [("layer_likeness", [CKA]), ("attention_map", [WEIGHTS]), ("token_matrices", list(COSINES))],
)
def test_cells_hold_the_values_the_first_row_on_top(name, matrices):
    meshes = [mesh for panel in light(name).axes for mesh in panel.findobj(QuadMesh) if mesh.get_gid()]
    for mesh, matrix in zip(meshes, matrices, strict=True):
        np.testing.assert_array_equal(mesh.get_array().reshape(matrix.shape), matrix)
        assert mesh.axes.yaxis_inverted()
    assert len({mesh.norm.vmax for mesh in meshes}) == 1


def test_views_without_a_score_are_left_white_and_chosen_ones_have_dots():
    panel = light("view_scores").axes[0]
    (mesh,) = [mesh for mesh in panel.findobj(QuadMesh) if mesh.get_gid()]
    shown = np.ma.filled(mesh.get_array(), np.nan).reshape(2, -1)
    np.testing.assert_array_equal(shown, [MEAN, np.where(LAYERS > 0, CLS, np.nan)])
    (dots,) = panel.findobj(PathCollection)
    np.testing.assert_array_equal(dots.get_offsets(), [[3, 0], [5, 1]])


def test_bars_and_points_and_small_panels_hold_the_values():
    bars = [bar.get_height() for bar in light("layers_chosen").axes[0].findobj(Rectangle) if bar.get_gid()]
    np.testing.assert_allclose(bars, 100 * np.clip(1 - LAYERS / 10, 0, 1))
    (dots,) = light("pair_map").axes[0].findobj(PathCollection)
    np.testing.assert_array_equal(dots.get_offsets().reshape(30, 2, 2), POINTS)
    small = light("geometry_by_layer")
    np.testing.assert_array_equal(small.axes[3].lines[1].get_ydata(), FLAT * 0.8)
    assert [line.get_ydata()[0] for line in small.axes[0].lines[2:]] == [0.81, 0.52]
    setsim, toksim = light("smoothing_curves").axes
    np.testing.assert_array_equal(setsim.lines[0].get_xydata(), np.stack([LAYERS[1:], FLAT[1:]], 1))
    np.testing.assert_array_equal(toksim.lines[1].get_ydata(), FLAT - 0.15)
    spectrum = light("spectra").axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(spectrum, np.where(SHARES > 1e-6, SHARES, np.nan))


def test_rows_of_dumbbells_span_both_values_and_zero():
    lines = light("dumbbells").axes[0].lines
    np.testing.assert_allclose(lines[0].get_xdata(), [45 / 63.2, 1, (2.6 - 1.2) / 2.6, 61 / 154])
    np.testing.assert_allclose(lines[1].get_xdata(), [1, 0.22 / 0.61, 0, 1])


def test_names_of_users_are_no_formulas_and_may_be_long_hidden_or_of_any_script(tmp_path):
    from layerwise.plots import save_figure

    names = ["$x$ and $y", "_hidden", "a\x00b\ud800", "名前" * 3, "long " * 40]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = layer_curves(scores=dict.fromkeys(names, MEAN), title="$\\frac$", theme=LIGHT)
        content = save_figure(figure, tmp_path / "a.svg").read_text(encoding="utf-8")
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown[:4] == ["$x$ and $y", "_hidden", "a b ", "名前" * 3]
    assert len(shown[4]) == 60
    assert "…" in shown[4]
    assert "$x$ and $y" in content
    assert "名前" in content


def test_one_value_is_a_figure():
    assert layer_curves(scores={"mean": [50.0]}, last="mean").axes[0].lines
    assert layers_chosen(shares=[1.0]).axes
    assert token_matrices(tokens=["a"], matrices=[[[1.0]]], layers=[0]).axes


def test_spread_moves_heights_apart_and_no_further():
    np.testing.assert_array_equal(spread_apart([0, 20, 40], 10), [0, 20, 40])
    np.testing.assert_array_equal(spread_apart([5, 5], 10), [0, 10])
    np.testing.assert_array_equal(spread_apart([30, 0, 2], 10), [30, -4, 6])
    random = np.random.default_rng(0)
    for _ in range(50):
        heights = random.uniform(0, 60, 6)
        placed = spread_apart(heights, 10)
        assert (np.diff(np.sort(placed)) >= 10 - 1e-9).all()
        assert (np.argsort(placed) == np.argsort(heights)).all()
        assert abs(placed.mean() - heights.mean()) < 1e-9


@pytest.mark.parametrize(
    ("count", "most", "ticks"),
    [(13, 13, list(range(13))), (13, 7, [0, 2, 4, 6, 8, 10, 12]), (25, 13, list(range(0, 25, 2))), (1, 7, [0])],
)
def test_layer_ticks_end_with_the_last_layer(count, most, ticks):
    assert layer_ticks(count, most) == ticks


def test_long_names_keep_both_ends():
    assert shorten_middle("all-MiniLM-L6-v2", 16) == "all-MiniLM-L6-v2"
    assert shorten_middle("organisation/encoder-v2", 10) == "organ…r-v2"
    assert shorten("A long sentence", 8) == "A long…"


def test_numbers_are_short():
    assert [format_number(value) for value in (48.732, -1.25, float("nan"))] == ["48.73", "−1.25", "–"]
