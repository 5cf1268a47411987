"""Connects to a Ray cluster for a run: an existing one, or a temporary one on this machine.

The temporary one listens on the loopback address only, requires a token created for the run, and has no dashboard and
no usage reports. Its files are removed at the end; the next run removes those of a killed one.
"""

import logging
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from layerwise.errors import InputError

_PREFIX = "layerwise-ray-"
_LONGEST_FOLDER = 30  # characters of the temporary folder: a socket path has at most 107 bytes, of which Ray uses 65
_NEW_SECONDS = 60.0
_CONNECT_SECONDS = 5.0
_OBJECT_STORE_BYTES = 512 << 20  # for chunks in transit; Ray spills more to its temporary folder
_HOST_PORT = re.compile(r"(?P<host>[^\s:/]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@contextmanager
def ray_cluster(address: str | None, *, cpus: int) -> Iterator[Any]:
    """Yield the connected module `ray`. A temporary cluster has `cpus` CPUs and is shut down on exit."""
    handler = signal.getsignal(signal.SIGTERM)
    with _local_cluster(cpus) if address is None else _joined(address) as ray:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)  # Ray replaces the handler
        yield ray


@contextmanager
def _local_cluster(cpus: int) -> Iterator[Any]:
    variables = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the loopback address, on Linux too; read when Ray is imported
        "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE"),  # if unset, Ray requires a token and sets it
        "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or _token(),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    logging.getLogger("ray").setLevel(logging.ERROR)
    with _scratch_folder() as folder, _environment(variables):
        import ray

        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                _node_ip_address="127.0.0.1",
                _temp_dir=str(folder),
                **_QUIET,
            )
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _joined(address: str) -> Iterator[Any]:
    import ray

    try:
        ray.init(address=address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"no Ray cluster can be joined at {address!r}: {reason.rstrip('.')}; run the command on a machine of a "
            f"cluster that was started by `ray start`, or leave --address away"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def checked_address(address: str | None) -> str | None:
    """Return a cluster's address, by default $RAY_ADDRESS; None for a temporary local cluster.

    Raises within seconds if nothing listens at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address in ("local", "auto"):
        return None if address == "local" else address
    parts = _HOST_PORT.fullmatch(address)
    if parts is None:
        raise InputError(f"{address!r} is no address of a Ray cluster; give auto, or HOST:PORT as `ray start` shows it")
    try:
        socket.create_connection((parts["host"].strip("[]"), int(parts["port"])), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"no Ray cluster can be reached at {address}: {reason}; check the address, and that `ray start --head` "
            f"runs there"
        ) from error
    return address


@cache
def _token() -> str:
    """Create the token, once per process, as Ray reads it once."""
    return secrets.token_hex(32)


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables inside the context; None unsets one."""
    previous = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(previous)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Create a folder with a short path for Ray's files, and remove the unlocked folders of killed runs."""
    base = Path(tempfile.gettempdir())
    if len(str(base)) > _LONGEST_FOLDER and Path("/tmp").is_dir():  # noqa: S108 - mkdtemp makes the folder
        base = Path("/tmp")  # noqa: S108
    for old in base.glob(f"{_PREFIX}*"):
        _remove_if_stale(old)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    lock = FileLock(folder / ".lock")
    try:
        with lock:
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_stale(folder: Path) -> None:
    try:
        if time.time() - folder.stat().st_mtime < _NEW_SECONDS:  # its run may not have locked it yet
            return
        with FileLock(folder / ".lock", timeout=0):
            shutil.rmtree(folder, ignore_errors=True)
    except (Timeout, OSError):  # in use, or owned by another user
        return
