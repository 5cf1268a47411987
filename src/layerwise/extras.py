"""Optional dependencies: what is missing is said at the door, with the line that installs it."""

from importlib.util import find_spec

from layerwise.errors import MissingExtraError


def require(extra: str, purpose: str, *modules: str) -> None:
    """Fail unless all modules are installed.

    >>> require("report", "`layerwise report`", "json")
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"{purpose} needs {', '.join(missing)}", extra)
