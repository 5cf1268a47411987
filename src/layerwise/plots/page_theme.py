"""The style sheet that colours a page's figures, light and dark."""

from layerwise.plots.look import DARK, LIGHT, Theme
from layerwise.plots.svg import variables


def theme_css() -> str:
    """Variables for light paper; for dark where the reader's system is dark, or the page's root has `data-theme`."""
    return (
        f":root {{ {_listed(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {_listed(DARK)} }} }}\n"
        f":root[data-theme=dark] {{ {_listed(DARK)} }}\n"
    )


def _listed(theme: Theme) -> str:
    return " ".join(f"{name}: {colour};" for name, colour in variables(theme).items())
