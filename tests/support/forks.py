"""Processes of their own that need not wait for imports: one process has imported what is slow, and forks for each.

It has never imported this package: its forks do, or show that a model loads without it.
"""

import faulthandler
import gc
import json
import os
import platform
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@dataclass
class Forked:
    """A running process; what it printed is there once it has ended."""

    server: "Forks"
    pid: int
    said: tuple[Path, Path]
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.server.ask(poll=self.pid)
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = self.server.ask(wait=self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    @property
    def stdout(self) -> str:
        return self.said[0].read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self.said[1].read_text(encoding="utf-8")


@dataclass
class Server:
    """The process that forks, by the pipes to it and from it."""

    pid: int
    questions: TextIO
    answers: TextIO
    wait: Callable[[], object]

    @classmethod
    def start(cls) -> "Server":
        """A new process, which spends seconds on imports."""
        process = subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return cls(process.pid, process.stdin, process.stdout, process.wait)

    @classmethod
    def fork(cls) -> "Server":
        """A fork of this process, which has not imported this package yet; what is slow is imported for both."""
        import_what_is_slow()
        (asked, asking), (answered, answering) = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            faulthandler.disable()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            use_files(asked, answering, 2)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            serve()
        os.close(asked)
        os.close(answering)
        return cls(pid, os.fdopen(asking, "w"), os.fdopen(answered), partial(os.waitpid, pid, 0))

    def stop(self) -> None:
        """Its input ends, and so does it."""
        self.questions.close()
        self.answers.close()
        self.wait()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()


@dataclass
class Forks:
    """Starts processes by a server, which is started when it is first asked unless there is one."""

    folder: Path
    server: Server | None = None
    count: int = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.server is not None:
            self.server.stop()

    def ask(self, **question):
        if self.server is None:
            self.server = Server.start()
        try:
            self.server.questions.write(json.dumps(question) + "\n")
            self.server.questions.flush()
            return json.loads(self.server.answers.readline())
        except BaseException:  # a test that ran out of time: its answer is not for the next one
            self.server.kill()
            self.server = None
            raise

    def start(self, what: str | Path, *arguments, cwd: Path | str = ".", **variables: str) -> Forked:
        """Run the module of that name, the file of that path or, if there are several lines, this code.

        `variables` are of its environment.
        """
        self.count += 1
        if "\n" in str(what):
            (self.folder / f"{self.count}.py").write_text(str(what), encoding="utf-8")
            what = self.folder / f"{self.count}.py"
        said = self.folder / f"{self.count}.out", self.folder / f"{self.count}.err"
        for file in said:
            file.touch()
        asked = {"what": str(what), "arguments": list(map(str, arguments)), "said": list(map(str, said))}
        pid = self.ask(**asked, cwd=str(Path(cwd).resolve()), environment=os.environ | ONE_THREAD | variables)
        return Forked(self, pid, said)

    def run(self, what: str | Path, *arguments, cwd: Path | str = ".") -> Forked:
        """The same, to its end."""
        process = self.start(what, *arguments, cwd=cwd)
        process.wait()
        return process


def become(what: str, arguments: list[str], said: list[str], cwd: str, environment: dict[str, str]) -> int:
    """What a fork does: its exit code."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    files = [os.open(path, os.O_RDWR | os.O_CREAT) for path in (os.devnull, *said)]
    use_files(*files)
    for file in files:
        os.close(file)
    sys.argv = [what, *arguments]
    try:
        if what.endswith(".py"):
            runpy.run_path(what, run_name="__main__")
        else:
            runpy.run_module(what, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return 1
    return 0


def use_files(*files: int) -> None:
    """Let these be standard input, output and error."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115


def import_what_is_slow() -> None:
    import pyarrow.parquet  # noqa: F401
    import sentence_transformers  # noqa: F401
    import torch
    from transformers import AutoModel, AutoTokenizer, BertModel, Trainer  # noqa: F401

    if platform.machine() in ("aarch64", "arm64"):
        torch.backends.mkldnn.enabled = False  # as in conftest.py


def serve() -> None:
    import_what_is_slow()

    def answer(pid: int, options: int):
        done, status = os.waitpid(pid, options)
        return os.waitstatus_to_exitcode(status) if done else None

    gc.freeze()  # as in conftest.py
    gc.enable()
    sys.path[0] = ""
    for line in sys.stdin:
        asked = json.loads(line)
        if "poll" in asked:
            told = answer(asked["poll"], os.WNOHANG)
        elif "wait" in asked:
            told = answer(asked["wait"], 0)
        else:
            told = os.fork()
            if not told:
                code = become(**asked)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(json.dumps(told), flush=True)
    os._exit(0)  # at once: to take apart what was imported lasts a second


if __name__ == "__main__":
    serve()
