"""A made-up report page, with hostile words where users' words go and drawings such as the plots make."""

import numpy as np

from layerwise.report import Page
from layerwise.report.page import Column, Explorer, Fact, Figure, Section, Table

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&amp;'"
THEME = """
:root { --ink: #1f2328; --paper: #fefefe; --grid: #e4e6e8; }
@media (prefers-color-scheme: dark) {
  :root:not([data-theme="light"]) { --ink: #e6e8ea; --paper: #16181b; --grid: #32363b; }
}
:root[data-theme="dark"] { --ink: #e6e8ea; --paper: #16181b; --grid: #32363b; }
"""
TEXT = 'style="font: 11px sans-serif; fill: var(--ink)"'
SENTENCE = "a child runs dog sleeps under old bridge while the river carries leaves towards quiet town near mountain"


def line_svg(values, *, prefix="line", width=460.8, height=288.0):
    """As the plots make it: ids with a prefix, text in the theme's ink."""
    low, high = min(values) - 2, max(values) + 2
    xs = np.linspace(50, width - 20, len(values))
    ys = [height - 40 - (value - low) / (high - low) * (height - 60) for value in values]
    rules = "".join(
        f'<path d="M50 {y:.1f}H{width - 20}" style="stroke: var(--grid)"/>'
        f'<text x="42" y="{y + 4:.1f}" text-anchor="end" {TEXT}>{mark:.0f}</text>'
        for mark, y in zip(np.linspace(low, high, 5), np.linspace(height - 40, 20, 5), strict=True)
    )
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))
    points = "".join(
        f'<g class="point" data-label="layer {i}: {value:.2f}"><title>{i}</title>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/></g>'
        f'<text x="{x:.1f}" y="{height - 22}" text-anchor="middle" {TEXT}>{i}</text>'
        for i, (x, y, value) in enumerate(zip(xs, ys, values, strict=True))
    )
    size = f'width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}"'
    clip = f'<clipPath id="{prefix}-clip"><rect width="{width}" height="{height}"/></clipPath>'
    curve = f'<path d="{line}" style="fill: none; stroke: var(--series-1); stroke-width: 2"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><defs>{clip}</defs>'
        f'<g id="{prefix}-axes" clip-path="url(#{prefix}-clip)">{rules}{curve}'
        f'<g style="fill: var(--series-1)">{points}</g></g></svg>'
    )


def cells_svg(size=13):
    side = 24
    cells = "".join(
        f'<rect class="point" data-label="layers {i} and {j}: {1 - abs(i - j) / size:.2f}"'
        f' x="{i * side}" y="{j * side}"'
        f' width="{side}" height="{side}" style="fill: var(--series-1); fill-opacity: {1 - abs(i - j) / size:.2f}"/>'
        for i in range(size)
        for j in range(size)
    )
    box = f"0 0 {size * side} {size * side}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}"><g id="cells-axes">{cells}</g></svg>'


def some_explorer(count=60, layers=13, *, graded=True, second=False):
    """Pair 0 is hostile; pair i's cosine at layer k is known: see `similarity`."""
    random = np.random.default_rng(3)
    words = [" ".join(random.choice(SENTENCE.split(), 9)) for _ in range(2 * count)]
    gold = [round(float(random.uniform(0, 5)), 2) if graded else None for _ in range(count)]
    pairs = [
        (f"{left} {i}", right, gold[i]) for i, (left, right) in enumerate(zip(words[::2], words[1::2], strict=True))
    ]
    pairs[0] = (HOSTILE, "שלום <b>world</b>", gold[0])
    start = random.uniform(0.5, 0.8, (count, 1))
    similarities = np.clip(start + np.cumsum(random.normal(0.01, 0.03, (count, layers)), axis=1), -1, 1)
    other = {"other_name": "trained <i>", "other_similarities": similarities[:, ::2] * 0.8} if second else {}
    other |= {"other_layers": tuple(map(str, range(7)))} if second else {}
    mixed = similarities[:, 3:9].mean(axis=1)
    labels = tuple(map(str, range(layers)))
    return Explorer(pairs, labels, similarities, "3-8", mixed, name="wiki-mlm-12x384", **other)


def some_page(**changes):
    curve = [41.2, 52.8, 57.1, 59.9, 62.4, 63.8, 64.6, 64.1, 63.0, 61.2, 58.3, 55.0, 49.7]
    columns = (
        Column("layer", "text"),
        Column("Spearman", "number", 2, "Rank correlation of cosine and gold, × 100."),
        Column("anisotropy", "number", 3, "Mean cosine of random pairs: 0 is best, at 1 all sentences point one way."),
        Column("alignment", "number", 3),
        Column("uniformity", "number", 3),
        Column("effective rank", "number", 1, "How many directions the embeddings fill."),
        Column("SetSim to the next", "number", 3),
        Column("TokSim", "number", 3),
    )
    rows = tuple(
        (
            str(i),
            score,
            0.4 + i / 30,
            0.3 - i / 50,
            -2 + i / 9,
            1203.4 - 90 * i,
            None if i == 12 else 0.9 + i / 200,
            0.2 + i / 25,
        )
        for i, score in enumerate(curve)
    )
    by_layer, by_size = line_svg(curve), line_svg(curve[::-1], prefix="sizes")
    toksim, spectrum = line_svg(curve, prefix="toksim"), line_svg(curve, prefix="spectrum", width=920.0)
    facts = (
        Fact("Best mix", "layers 3–8", "mean of mean-pooled layers"),
        Fact("Gain over the last layer", "+14.9 ± 1.8", "Spearman × 100, 95 % interval"),
        Fact("How sure", "99.9 %", "of 1,000 redrawn samples gain"),
        Fact("Blocks needed", "8 of 12", "a third less to compute"),
    )
    sections = (
        Section(
            "layers",
            "What each layer is worth",
            (
                Figure(by_layer, "Score by layer", "Higher is better; the last layer is not where the score peaks."),
                Figure(
                    by_size,
                    "Score by number of layers",
                    "The best set of each size.",
                    "500 pairs.",
                ),
            ),
            "Every layer's mean-pooled embedding, scored alone.\n\nThen sets of them.",
        ),
        Section(
            "smoothing",
            "Is it over-smoothed?",
            (
                Figure(cells_svg(), "How alike layers are (CKA)", "Dark cells: two layers that say the same."),
                Figure(toksim, "TokSim by layer", "Near 1, all tokens of a sentence are alike."),
                Figure(
                    spectrum,
                    "Spectrum",
                    "A steep fall: few directions.",
                    wide=True,
                ),
            ),
        ),
    )
    values = {
        "title": "The layers of wiki-mlm-12x384",
        "subtitle": "scored on 1,000 pairs of STS-B dev with mean pooling",
        "answer": (
            "The mean of layers 3–8 scores 64.6 where the last layer scores 49.7: 14.9 points better, and 99.9 % sure.",
            "It needs only the first eight of twelve blocks, so embedding costs a third less.",
        ),
        "headline": facts,
        "sections": sections,
        "measures": Table(columns, rows),
        "explorer": some_explorer(),
        "protocol": (("Pairs", "STS-B dev, 1,000 of 1,500"), ("Metric", "Spearman"), ("Weights", "9f2c61a0b7e4" * 6)),
        "commands": (
            "layerwise report wiki-mlm-12x384 --pairs stsb-dev.csv -o report.html",
            f"layerwise search wiki-mlm-12x384 --pairs stsb-dev.csv {'--a-long-option value ' * 6}--seed 1",
        ),
        "css": THEME,
        "generated": "layerwise 0.7.0, 15 November 2026",
    }
    return Page(**(values | changes))
