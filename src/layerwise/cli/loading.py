"""The options of loading a model, for every command that loads one."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from layerwise.cli.options import Backend, Device, Dtype, MaxLength, Precision, Revision, TrustRemoteCode

Loading = dict[str, Any]


def _options(
    device: Device = None,
    dtype: Dtype = "float32",
    max_length: MaxLength = None,
    backend: Backend = None,
    precision: Precision = "float",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """What `LayerModel.load` takes beside the model's name."""


def check_model(*names: str | None) -> None:
    """Refuse folders that hold no model, before anything heavy is imported."""
    from layerwise.encoder import is_default, local_model

    for name in names:
        if name is not None and not is_default(name):
            local_model(name)


def loads_model(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `loading` becomes these options; it gets them by name, as `LayerModel.load` takes them.

    Typer reads a command's signature: the options stand last in its help.
    """
    options = signature(_options).parameters

    @wraps(command)
    def run(**given: Any) -> None:
        check_model(given["model"], given.get("against"))
        loading: Loading = {name: given.pop(name) for name in options}
        command(**given, loading=loading)

    own = [parameter for parameter in signature(command).parameters.values() if parameter.name != "loading"]
    named = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in (*own, *options.values())]
    run.__signature__ = signature(command).replace(parameters=named)  # type: ignore[attr-defined]
    return run
