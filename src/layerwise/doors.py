"""The doors of rooms: a package's public names, each imported on first use.

A package lists them once, as type checkers read them, and importing the package costs nothing:

    if TYPE_CHECKING:
        from layerwise.search.search import Search
        from layerwise.search.spaces import Space, layers_of

    __getattr__, __dir__, __all__ = door(__name__, __file__)
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

Door = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def door(package: str, file: str) -> Door:
    """`__getattr__`, `__dir__` and `__all__` of a package from the imports under TYPE_CHECKING in its `__init__`."""
    homes = homes_of(file)
    names = sorted(homes)

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get, lambda: names, names


def homes_of(file: str) -> dict[str, str]:
    """Map the public names in a package's `__init__` to the modules that define them."""
    source = Path(file).read_text(encoding="utf-8")
    blocks = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
