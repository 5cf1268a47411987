"""The pages of the Python interface: the public names of each package, documented by their docstrings."""

import inspect
from importlib import import_module

from layerwise.doors import homes_of

ROOMS = (
    "layerwise",
    *(
        f"layerwise.{room}"
        for room in (
            "encoder", "mixes", "model", "search", "evaluate", "embed", "index", "train", "predict", "measures",
            "explain", "report", "serve", "data", "kinds", "postprocess", "objectives", "classify", "plots",
            "stores",
        )
    ),
)  # fmt: skip


def room_page(name: str) -> str:
    """Every public name of a package in alphabetical order, by mkdocstrings; of the root, links to them."""
    room = import_module(name)
    about = (room.__doc__ or "").split("\n\n")[0]
    homes = {one: home for one, home in homes_of(str(room.__file__)).items() if one[0] != "_"}
    names = sorted(homes, key=str.lower)
    if name == "layerwise":
        return f"# {name}\n\n{about}\n\n{_contents({one: homes[one] for one in names})}"
    entries = "\n".join(f"::: {homes[one]}.{one}\n" for one in names)
    return f"# {name}\n\n{about}\n\n{entries}"


def _contents(homes: dict[str, str]) -> str:
    """The names that `import layerwise` has, each with a link to its page, the packages, and names of no package."""
    lines = ["| name | |", "|---|---|"]
    for name, home in homes.items():
        address = f"{homes_of(str(import_module(home).__file__)).get(name, home)}.{name}"
        lines.append(f"| [`{name}`][{address}] | {_first_line(getattr(import_module(home), name))} |")
    lines += ["", "| package | |", "|---|---|"]
    lines += [f"| [`{room}`]({room}.md) | {_first_line(import_module(room))} |" for room in ROOMS[1:]]
    lines += ["", *(f"::: {home}.{name}\n" for name, home in homes.items() if home not in ROOMS)]
    return "\n".join(lines) + "\n"


def _first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").split("\n")[0].replace("|", "\\|")
