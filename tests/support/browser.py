"""A headless Chromium to look at pages with, spoken to in the DevTools protocol through two pipes.

No port is opened and nothing is installed: the browser reads JSON messages, each ended by a NUL, from its descriptor 3
and answers on 4. One thread; every wait has an end.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
HOW_TO_GET = "no browser: install Debian's chromium or set LAYERWISE_BROWSER"
# A container has no sandbox, no GPU and a small /dev/shm.
OPTIONS = (
    *(
        "--headless=new",
        "--remote-debugging-pipe",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-zygote",
    ),
    *(
        "--no-first-run",
        "--no-default-browser-check",
        "--disable-extensions",
        "--disable-sync",
        "--disable-component-update",
    ),
    *("--disable-background-networking", "--disable-default-apps", "--hide-scrollbars", "--mute-audio"),
)
KEYS = {
    **{"Enter": (13, "\r"), " ": (32, " "), "Tab": (9, ""), "Escape": (27, ""), "Home": (36, ""), "End": (35, "")},
    **{"ArrowLeft": (37, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, "")},
}


class BrowserError(RuntimeError):
    """The browser did not do what was asked, or not in time."""


def find_browser() -> str | None:
    """`$LAYERWISE_BROWSER`, else the first known name on the path."""
    given = os.environ.get("LAYERWISE_BROWSER")
    return shutil.which(given) if given else next(filter(None, map(shutil.which, NAMES)), None)


class Connection:
    """Calls and events over the two pipes."""

    def __init__(self, reads: int, writes: int, *, timeout: float) -> None:
        self.reads, self.writes, self.timeout = reads, writes, timeout
        self.events: list[dict[str, Any]] = []
        self._rest, self._last = b"", 0

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to one command; events that come before it are kept."""
        self._last += 1
        number = self._last
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            for answer in self._messages(deadline, method):
                if answer.get("id") == number:
                    if "error" in answer:
                        raise BrowserError(f"{method}: {answer['error']['message']}")
                    return answer["result"]

    def _messages(self, deadline: float, waiting_for: str) -> Iterator[dict[str, Any]]:
        ready, _, _ = select.select([self.reads], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise BrowserError(f"{waiting_for}: no answer within {self.timeout:g} s")
        came = os.read(self.reads, 1 << 20)
        if not came:
            raise BrowserError(f"{waiting_for}: the browser has ended")
        *whole, self._rest = (self._rest + came).split(b"\0")
        messages = [json.loads(one) for one in whole]
        self.events += [message for message in messages if "method" in message]
        yield from messages


class Tab:
    """One page, with all that it complained of and asked for."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.target = connection.call("Target.createTarget", url="about:blank")["targetId"]
        attached = connection.call("Target.attachToTarget", targetId=self.target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.connection.call(method, self.session, **parameters)

    def look(self, *, width: int = 1280, height: int = 900, scheme: str = "light", phone: bool = False) -> None:
        """Set the window and the preferred colour scheme."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **sizes)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def script_off(self) -> None:
        self.call("Emulation.setScriptExecutionDisabled", value=True)

    def open(self, path: Path) -> None:
        """Load a file and wait until it is whole."""
        gone = self.call("Page.navigate", url=path.resolve().as_uri())
        if gone.get("errorText"):
            raise BrowserError(f"{path}: {gone['errorText']}")
        self.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait_for(self, condition: str) -> None:
        deadline = time.monotonic() + self.connection.timeout
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise BrowserError(f"{condition} did not become true within {self.connection.timeout:g} s")
            time.sleep(0.02)

    def middle(self, selector: str) -> tuple[float, float]:
        """Scrolls an element into view; the middle of its box in the window."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        # Scroll events, and the layout of what comes into view, come with the next frame: measure after them.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        box = self.evaluate(
            f"[{element}.getBoundingClientRect()].map(b => [b.left + b.width / 2, b.top + b.height / 2])[0]"
        )
        return box[0], box[1]

    def hover(self, selector: str) -> None:
        x, y = self.middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def tap(self, selector: str) -> None:
        x, y = self.middle(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str) -> None:
        code, text = KEYS[key]
        what = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **what, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **what)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    @property
    def problems(self) -> list[str]:
        """Exceptions, errors logged by the page, and errors logged by the browser about it."""
        found = []
        for event in self._own_events():
            method, parameters = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert", "warning"):
                found.append(str([one.get("value", one.get("description")) for one in parameters["args"]]))
        return found

    @property
    def requests(self) -> list[str]:
        """All addresses that were asked for, `data:` apart, which hold what they name."""
        asked = (
            one["params"]["request"]["url"]
            for one in self._own_events()
            if one["method"] == "Network.requestWillBeSent"
        )
        return [address for address in asked if not address.startswith("data:")]

    def _own_events(self) -> list[dict[str, Any]]:
        self.evaluate("0")  # what happened before has been told by then
        return [event for event in self.connection.events if event.get("sessionId") == self.session]

    def close(self) -> None:
        self.connection.call("Target.closeTarget", targetId=self.target)


class Browser:
    """A running browser."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @contextmanager
    def tab(self, path: Path | None = None, **look: Any) -> Iterator[Tab]:
        """A tab, with a file opened in it, that is closed at the end."""
        tab = Tab(self.connection)
        try:
            tab.look(**look)
            if path is not None:
                tab.open(path)
            yield tab
        finally:
            tab.close()


@contextmanager
def running_browser(program: str, *, timeout: float = 30.0) -> Iterator[Browser]:
    """Starts the browser with a profile of its own; at the end it is asked to close, and if need be made to."""
    with TemporaryDirectory(prefix="layerwise-browser-", ignore_cleanup_errors=True) as folder:
        process, connection = _spawn(program, Path(folder), timeout)
        try:
            connection.call("Browser.getVersion")
            yield Browser(connection)
        finally:
            _shut_down(process, connection)


def _spawn(program: str, folder: Path, timeout: float) -> tuple[int, Connection]:
    its_end, writes = _high_pipe()
    reads, its_other_end = _high_pipe()
    # Not subprocess: only a spawn's file actions put the pipes at exactly 3 and 4, whatever is open here.
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(folder / "log"), os.O_WRONLY | os.O_CREAT, 0o600),
        (os.POSIX_SPAWN_DUP2, its_end, 3),
        (os.POSIX_SPAWN_DUP2, its_other_end, 4),
    ]
    command = [program, *OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    process = os.posix_spawn(program, command, os.environ, file_actions=actions, setpgroup=0)
    os.close(its_end)
    os.close(its_other_end)
    return process, Connection(reads, writes, timeout=timeout)


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends are far from 3 and 4, so that neither is written over."""
    low = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64) for end in low]
    for end in low:
        os.close(end)
    return high[0], high[1]


def _shut_down(process: int, connection: Connection) -> None:
    connection.timeout = 5.0
    with suppress(BrowserError, OSError):  # gone already, or deaf: the signal below reaches it
        connection.call("Browser.close")
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        if os.waitpid(process, os.WNOHANG)[0]:
            break
        time.sleep(0.02)
    else:
        os.killpg(process, signal.SIGKILL)  # its own group: the browser and its children
        os.waitpid(process, 0)
    os.close(connection.reads)
    os.close(connection.writes)
