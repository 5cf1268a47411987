"""The doors of rooms: a package's public names, each imported on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module

Door = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def door(package: str, homes: Mapping[str, str]) -> Door:
    """`__getattr__`, `__dir__` and `__all__` of a package; `homes` maps a public name to the module that defines it.

    Importing the package costs nothing this way: `from layerwise.train import load_recipe` does not load a trainer.
    """
    names = sorted(homes)

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    return get, lambda: names, names
