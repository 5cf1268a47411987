"""Processes of their own that need not wait for imports: one process has imported what is slow, and forks for each.

It has never imported this package: its forks do, or show that a model loads without it.
"""

import gc
import json
import os
import runpy
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

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

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)

    @property
    def stdout(self) -> str:
        return self.said[0].read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self.said[1].read_text(encoding="utf-8")


@dataclass
class Forks:
    """The process that forks; started when it is first asked."""

    folder: Path
    count: int = 0
    server: subprocess.Popen | None = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.server is not None:
            self.server.__exit__(None, None, None)  # its input ends, and so does it

    def ask(self, **question):
        if self.server is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.server = subprocess.Popen([sys.executable, __file__], env=os.environ | ONE_THREAD, **pipes)
        try:
            self.server.stdin.write(json.dumps(question) + "\n")
            self.server.stdin.flush()
            return json.loads(self.server.stdout.readline())
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
    for number, path in zip((0, 1, 2), (os.devnull, *said), strict=True):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
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


def serve() -> None:
    import pyarrow.parquet  # noqa: F401
    import sentence_transformers  # noqa: F401
    from transformers import AutoModel, AutoTokenizer, BertModel  # noqa: F401

    def answer(pid: int, options: int):
        done, status = os.waitpid(pid, options)
        return os.waitstatus_to_exitcode(status) if done else None

    gc.freeze()  # as in conftest.py
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
