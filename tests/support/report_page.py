"""What a browser shows of a report."""

PHONE = {"width": 390, "height": 844, "phone": True}


def text(tab, selector):
    return tab.evaluate(f"document.querySelector({selector!r}).textContent")


def shown_tooltip(tab):
    return tab.evaluate(
        "(() => {const t = document.querySelector('.tooltip'); return t.hidden ? null : t.textContent})()"
    )


def fits(tab):
    return tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def column(tab, number):
    return tab.evaluate(f"[...document.querySelectorAll('#measures tbody tr')].map(r => r.cells[{number}].textContent)")
