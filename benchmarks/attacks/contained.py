"""A call in a process of its own, with a memory limit, that watches what is opened, written, started and connected to.

Python's audit events see what Python does. Files that Rust opens (tokenizers, safetensors) are not seen; attacks that
lead there must be refused before anything is loaded.
"""

import os
import pickle
import resource
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from layerwise.errors import LayerwiseError

_STARTS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pty.spawn", "socket.connect", "ctypes.dlopen")
_ASKS = "builtins.input"
_SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/etc", "/lib", "/opt")
_SECONDS = 30


@dataclass
class Outcome:
    """How a call ended: "value", "refused" (a LayerwiseError), "raised" or "killed"; its value or the message."""

    ended: str
    value: object = None
    message: str = ""
    outside: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    grown: int = 0  # bytes of memory that the call took at its peak

    @property
    def one_line(self) -> bool:
        """Whether it is a value, or a refusal in one line of readable length."""
        return self.ended == "value" or (
            self.ended == "refused" and len(self.message.splitlines()) == 1 and len(self.message) < 2000
        )


def contained(call: Callable[[], object], *, inside: tuple[Path, ...] = (), memory: int = 2**31) -> Outcome:
    """Fork, allow `memory` more bytes than now, run the call, and tell how it ended.

    Args:
        call: Its value must be picklable.
        inside: Folders whose files may be opened.
        memory: How much memory may be added.
    """
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if not child:
            try:
                outcome = _watched(call, inside, memory)
                pickle.dump(outcome, answer)
                answer.flush()
            finally:
                os._exit(0)
        deadline = time.monotonic() + _SECONDS
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Outcome("killed", message=f"still running after {_SECONDS} s")
            time.sleep(0.01)
        answer.seek(0)
        written = answer.read()
    return pickle.loads(written) if written else Outcome("killed", message="the process died")  # noqa: S301 - ours


def _watched(call: Callable[[], object], inside: tuple[Path, ...], memory: int) -> Outcome:
    outcome, own = Outcome("value"), _allowed(inside)

    def watch(event: str, arguments: tuple) -> None:
        if event == _ASKS:
            outcome.started.append(event)
        elif event in _STARTS and not (event == "ctypes.dlopen" and _is_library(arguments[0])):
            outcome.started.append(f"{event} {arguments!r}"[:200])
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith(own):
                outcome.outside.append(path)

    before = _high_water()
    resource.setrlimit(resource.RLIMIT_AS, (_virtual() + memory,) * 2)
    sys.addaudithook(watch)
    try:
        outcome.value = call()
    except LayerwiseError as error:
        outcome.ended, outcome.message = "refused", str(error)
    except BaseException:  # noqa: BLE001 - whatever it is, it is what the attack looks for
        outcome.ended, outcome.message = "raised", traceback.format_exc(limit=-4)
    outcome.grown = _high_water() - before
    return outcome


def _allowed(inside: tuple[Path, ...]) -> tuple[str, ...]:
    libraries = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *filter(None, sys.path)}
    return tuple(os.path.realpath(path) for path in (*inside, *libraries, *_SYSTEM))


def _is_library(name: object) -> bool:
    return name is None or str(name).startswith(_allowed(())) or "/" not in str(name)


def _virtual() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _high_water() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
