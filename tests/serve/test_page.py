"""The page in a real browser: drawn, quiet, at any width, in both themes, and asking nobody but its server."""

import json
import shutil
import subprocess

import numpy as np
import openai
import pytest

from support.report_page import PHONE, fits, opened, text
from support.serving import KEY, behind_a_key, running, with_index
from support.slow_cases import one_in
from support.tiny import SENTENCES


def compared(tab, server, *, go=True):
    if go:
        tab.goto(server.url)
    tab.fill("#sentences", "The river rose.\nRain.\nWho left the door open?")
    tab.click("#compare button")
    tab.wait_for_selector("#result:not([hidden])")


@pytest.mark.parametrize(
    "look", one_in(3, [{"scheme": "light"}, {"scheme": "dark"}, PHONE]), ids=["light", "dark", "phone"]
)
def test_sentences_are_compared_in_every_layer(browser, server, tiny_layers, look):
    with opened(browser, **look) as (tab, log):
        compared(tab, server)
        assert tab.locator("#heat tbody tr").count() == 3
        assert tab.locator("#heat tbody tr").first.locator("td").count() == tiny_layers.encoder.depth + 1
        left, right = tiny_layers.with_mix("last").encode(["The river rose.", "Rain."])
        expected = float(tiny_layers.similarity_pairwise(left[None], right[None])[0])
        assert tab.locator("#heat tbody tr").first.locator("td").last.inner_text() == f"{expected:.2f}"
        assert tab.locator("#mixes tbody tr").first.locator("td").first.inner_text() == f"{expected:.3f}"
        assert tab.locator("#curves path").count() == 3
        tab.locator("#heat tbody button").nth(1).click()
        assert tab.locator("#curves path.marked").count() == 1
        assert tab.locator("tr[aria-selected=true]").count() == 1
        assert fits(tab)
        assert log.problems == []
        assert all(address.startswith(server.url) for address in log.requests)


def test_a_mistake_is_told_with_its_remedy(browser, server):
    with opened(browser) as (tab, _):
        tab.goto(server.url)
        tab.wait_for_selector("#python_code:not(:empty)")
        tab.fill("#mix_a", "lsat")
        tab.click("#compare button")
        tab.wait_for_selector("#problem:not([hidden])")
        assert "'lsat' is not a layer" in text(tab, "#problem")


CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def copied(tab, name):
    """The clipboard after a press of the button beside some lines."""
    tab.click(f"[data-copy={name}]")
    tab.wait_for_selector(f"[data-copy={name}]:text-is('Copied')")
    return tab.evaluate("navigator.clipboard.readText()")


def by_curl(lines):
    """The vector that the lines give in a shell."""
    done = subprocess.run(["bash", "-c", lines], check=True, capture_output=True, timeout=60)
    return json.loads(done.stdout)["data"][0]["embedding"]


def by_python(lines):
    names = {}
    exec(compile(lines, "page.html", "exec"), names)  # noqa: S102
    return names["response"].data[0].embedding


@pytest.mark.slow
def test_the_lines_to_copy_give_the_numbers_of_mix_b(browser, server, tiny_layers, capsys):
    """With the pooling that was chosen before the page compared."""
    with opened(browser, **CLIPBOARD) as (tab, log):
        compared(tab, server)
        tab.select_option("#pooling", "cls")
        tab.fill("#mix_b", "1-3")
        curl, python = copied(tab, "curl_code"), copied(tab, "python_code")
        tab.fill("#mix_b", "1,2 @ max")  # which names another
        other = copied(tab, "python_code")
        assert tab.locator("#searching").is_hidden()
        assert log.problems == []
    expected = tiny_layers.with_mix("1-3 @ cls").encode("A sentence.")
    if shutil.which("curl"):
        np.testing.assert_allclose(by_curl(curl), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(by_python(python), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(by_python(other), tiny_layers.with_mix("1,2 @ max").encode("A sentence."), atol=1e-5)
    assert [len(line.split(", ")) for line in capsys.readouterr().out.splitlines()] == [4, 4]


def test_two_mixes_and_their_difference_are_shown(browser, server, tiny_layers):
    with opened(browser) as (tab, _):
        tab.goto(server.url)
        tab.wait_for_selector("#python_code:not(:empty)")
        tab.select_option("#pooling", "max")
        tab.fill("#mix_a", "0,2")
        tab.fill("#mix_b", "3 @ cls")
        compared(tab, server, go=False)
        shown = tab.locator("#mixes tbody tr").first.locator("td").all_inner_texts()
    similarities = []
    for mix in ("0,2 @ max", "3 @ cls"):
        left, right = tiny_layers.with_mix(mix).encode(["The river rose.", "Rain."])
        similarities.append(float(tiny_layers.similarity_pairwise(left[None], right[None])[0]))
    np.testing.assert_allclose([float(cell) for cell in shown[:2]], similarities, rtol=0, atol=6e-4)
    assert float(shown[2]) == pytest.approx(similarities[1] - similarities[0], abs=6e-4)


@pytest.mark.slow
def test_a_page_behind_keys_works_with_one_and_says_where_it_belongs(browser, tiny_layers, tmp_path):
    user = {"http_credentials": {"username": "anyone", "password": KEY}}  # what the browser asks for
    with behind_a_key({"tiny": tiny_layers}, tmp_path) as server:
        with opened(browser, **user, **CLIPBOARD) as (tab, _):
            compared(tab, server)
            assert tab.locator("#heat tbody tr").count() == 3
            curl, python = copied(tab, "curl_code"), copied(tab, "python_code")
            assert "If the server requires keys, write one in place of none." in text(tab, ".note")
        expected = tiny_layers.with_mix("first-last").encode("A sentence.")
        np.testing.assert_allclose(by_python(python.replace("none", KEY)), expected, rtol=0, atol=1e-5)
        if shutil.which("curl"):
            np.testing.assert_allclose(by_curl(curl.replace("none", KEY)), expected, rtol=0, atol=1e-5)
        with pytest.raises(openai.AuthenticationError, match="a key is missing or wrong"):
            by_python(python)


def test_the_api_page_lists_every_address(browser, server):
    with opened(browser, **PHONE) as (tab, log):
        tab.goto(f"{server.url}/docs")
        tab.wait_for_selector("main section")
        titles = tab.locator("h2").all_inner_texts()
        assert {"POST /v1/embeddings", "POST /v1/search", "GET /readyz"} <= set(titles)
        assert fits(tab)
        assert log.problems == []


def test_an_index_is_searched(browser, tiny_layers):
    with running(with_index(tiny_layers)) as server, opened(browser) as (tab, log):
        tab.goto(server.url)
        tab.fill("#query", SENTENCES[3])
        tab.click("#search button")
        tab.wait_for_selector("#hits li")
        assert tab.locator("#hits li").first.inner_text() == f"1.000 {SENTENCES[3]}"
        assert tab.locator("#hits li").count() == len(SENTENCES)
        assert log.problems == []
