"""The settings of a server, from flags, the environment (LAYERWISE_SERVE_PORT=80) and a TOML file, in this order."""

import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from layerwise.cores import available_cores
from layerwise.errors import InputError
from layerwise.settings import Settings, parse_settings, read_toml

PREFIX = "LAYERWISE_SERVE_"
_Count = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(gt=0)]
_LISTS = ("models", "index", "cors", "allow_host")


class ServeSettings(Settings):
    """What a server does and what it refuses.

    Attributes:
        models: Folders or names of models, each with a name of its own if you like: "folder=name".
        index: Vectors to search, "name=folder", as `layerwise embed` writes them.
        host: The address to listen on.
        port: The port; 0 takes any free one.
        workers: Processes that serve, each with the models in its memory.
        keys: A file of keys, one a line. With it, all but the health checks need `Authorization: Bearer KEY`.
        without_keys: Serve a public address although there are no keys.
        allow_host: Names that a server on a local address without keys answers to, beside localhost: those of a proxy.
        cors: Origins whose pages may call the server from a browser, such as "https://example.org".
        fill_ms: How long a batch that is not full waits for more texts while others are being served.
        max_queue_tokens: Tokens that may wait in a process; beyond them requests get 429.
        max_body_bytes: Of a request.
        max_inputs: Texts of a request.
        max_tokens: Tokens of a request, all its texts together.
        max_numbers: Numbers of an answer.
        max_connections: Connections of a process at a time.
        deadline: Seconds until a request is answered, at the latest.
        drain: Seconds that requests in flight have after SIGTERM.
        device, dtype, max_length, backend, precision, revision, trust_remote_code: As for `LayerEncoder`.
    """

    label: ClassVar[str] = "serve:"

    models: tuple[str, ...] = ("default",)
    index: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    keys: str | None = None
    without_keys: bool = False
    allow_host: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    fill_ms: Annotated[float, Field(ge=0)] = 2.0
    max_queue_tokens: _Count = 131_072
    max_body_bytes: _Count = 4 << 20
    max_inputs: _Count = 2048
    max_tokens: _Count = 65_536
    max_numbers: _Count = 16 << 20
    max_connections: _Count = 1024
    deadline: _Seconds = 60.0
    drain: _Seconds = 30.0
    device: str | None = None
    dtype: str = "float32"
    max_length: int | None = None
    backend: str | None = None
    precision: str = "float"
    revision: str | None = None
    trust_remote_code: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.models:
            raise InputError("there is no model to serve; name one, such as default")
        if self.max_tokens > self.max_queue_tokens:
            raise InputError(
                f"max_tokens {self.max_tokens} is more than max_queue_tokens {self.max_queue_tokens}, so that a "
                f"request could be allowed and never accepted; raise max_queue_tokens"
            )
        if self.keys is None and not self.without_keys and not is_local(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines and there are no keys; give --keys FILE, or "
                f"--without-keys if something else guards it"
            )
        return self

    @property
    def loading(self) -> dict[str, Any]:
        """The options of `LayerEncoder`."""
        names = ("device", "dtype", "max_length", "backend", "precision", "revision", "trust_remote_code")
        return {name: getattr(self, name) for name in names}

    @property
    def cores_of_worker(self) -> int:
        """The number of cores per process."""
        return max(1, available_cores() // self.workers)


def is_local(host: str) -> bool:
    """Whether an address is a loopback address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_serve_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str | Path | None = None
) -> ServeSettings:
    """Combine flags that are not None, the environment and the file, in this order of precedence."""
    table = {} if file is None else read_toml(file, remedy="give a TOML file of settings of the server")
    if file is not None:
        parse_settings(ServeSettings, table | {"without_keys": True}, file=str(file))  # attributes errors to the file
    from_flags = {name: value for name, value in flags.items() if value is not None}
    return ServeSettings(**table | _from_environment(environment) | from_flags)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, text in environment.items():
        if name.startswith(PREFIX):
            key = name.removeprefix(PREFIX).lower()
            if key not in ServeSettings.model_fields:
                known = ", ".join(PREFIX + field.upper() for field in ServeSettings.model_fields)
                raise InputError(f"{name} is no setting of the server; known: {known}")
            values[key] = tuple(text.split()) if key in _LISTS else _value(key, text)
    return values


def _value(key: str, text: str) -> Any:
    """Parse a number or boolean as in TOML; anything else is a str."""
    if ServeSettings.model_fields[key].annotation in (str, str | None):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
