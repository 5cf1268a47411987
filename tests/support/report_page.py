"""A report in a browser: opened at some width and in some theme, with all that it complains of and asks for."""

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field

HOW_TO_GET = "no browser: install Debian's chromium, or name another Chromium in LAYERWISE_BROWSER"
OPTIONS = (  # a container has no sandbox and no GPU; nothing is asked of the network
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 390, "height": 844, "phone": True}


def find_browser():
    """`$LAYERWISE_BROWSER`, else the first known name on the path."""
    program = os.environ.get("LAYERWISE_BROWSER")
    names = [program] if program else ["chromium", "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


@dataclass
class Log:
    """Errors and warnings of a tab, and every address that it asked for, `data:` apart, which loads nothing."""

    problems: list = field(default_factory=list)
    requests: list = field(default_factory=list)

    def listen(self, tab):
        tab.on("pageerror", lambda error: self.problems.append(str(error)))
        tab.on("console", self._add_message)
        tab.on("request", self._add_request)

    def _add_message(self, message):
        if message.type in ("error", "warning", "assert"):
            self.problems.append(message.text)

    def _add_request(self, request):
        if not request.url.startswith("data:"):
            self.requests.append(request.url)


@contextmanager
def opened(browser, file=None, *, width=1280, height=900, scheme="light", phone=False, **options):
    """A tab with a file opened in it, and its log; closed at the end."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        is_mobile=phone,
        has_touch=phone,
        device_scale_factor=2 if phone else 1,
        **options,
    )
    tab, log = context.new_page(), Log()
    log.listen(tab)
    try:
        if file is not None:
            open_file(tab, file)
        yield tab, log
    finally:
        context.close()


def open_file(tab, file):
    tab.goto(file.resolve().as_uri())


def hover(tab, selector):
    """Points lie on top of each other: the pointer goes to the middle of the element, whatever covers it."""
    scroll_to(tab, selector)
    tab.hover(selector, force=True)


def tap(tab, selector):
    scroll_to(tab, selector)
    tab.tap(selector, force=True)


def scroll_to(tab, selector):
    """Scroll an element to the middle; scroll events, and the layout of what comes into view, come with a frame."""
    tab.evaluate(
        "selector => document.querySelector(selector).scrollIntoView({block: 'center', behavior: 'instant'})", selector
    )
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def text(tab, selector):
    return tab.evaluate("selector => document.querySelector(selector).textContent", selector)


def shown_tooltip(tab):
    return tab.evaluate(
        "(() => {const t = document.querySelector('.tooltip'); return t.hidden ? null : t.textContent})()"
    )


def fits(tab):
    return tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def column(tab, number):
    return tab.evaluate(f"[...document.querySelectorAll('#measures tbody tr')].map(r => r.cells[{number}].textContent)")
