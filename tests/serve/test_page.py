"""The page in a real browser: drawn, quiet, at any width, in both themes, and asking nobody but its server."""

import pyarrow as pa
import pytest

from layerwise.index import ExactIndex
from layerwise.serve import ServedModel
from layerwise.serve.load import Served, served_index
from support.report_page import PHONE, fits, opened, text
from support.serving import running
from support.tiny import SENTENCES


def compared(tab, server):
    tab.goto(server.url)
    tab.fill("#sentences", "The river rose.\nRain.\nWho left the door open?")
    tab.click("#compare button")
    tab.wait_for_selector("#result:not([hidden])")


@pytest.mark.parametrize("look", [{"scheme": "light"}, {"scheme": "dark"}, PHONE], ids=["light", "dark", "phone"])
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


def test_the_lines_to_copy_name_this_server_and_its_model(browser, server):
    with opened(browser) as (tab, log):
        tab.goto(server.url)
        tab.wait_for_selector("#python_code:not(:empty)")
        tab.fill("#mix_b", "1-3 @ cls")
        for code in ("#curl_code", "#python_code"):
            assert f"{server.url}/v1" in text(tab, code)
            assert "1-3 @ cls" in text(tab, code)
        tab.click("[data-copy=curl_code]")
        tab.wait_for_selector("[data-copy=curl_code]:text-is('Copied')")
        assert tab.locator("#searching").is_hidden()
        assert log.problems == []


def test_the_api_page_lists_every_address(browser, server):
    with opened(browser, **PHONE) as (tab, log):
        tab.goto(f"{server.url}/docs")
        tab.wait_for_selector("main section")
        titles = tab.locator("h2").all_inner_texts()
        assert {"POST /v1/embeddings", "POST /v1/search", "GET /readyz"} <= set(titles)
        assert fits(tab)
        assert log.problems == []


def test_an_index_is_searched(browser, tiny_layers):
    table = pa.table({"row": range(len(SENTENCES)), "text": SENTENCES})
    index = ExactIndex(tiny_layers.encode(SENTENCES), table=table)
    model = ServedModel("tiny", tiny_layers)
    served = Served({"tiny": model}, {"mine": served_index("mine", index, [model], "mine")})
    with running(served) as server, opened(browser) as (tab, log):
        tab.goto(server.url)
        tab.fill("#query", SENTENCES[3])
        tab.click("#search button")
        tab.wait_for_selector("#hits li")
        assert tab.locator("#hits li").first.inner_text() == f"1.000 {SENTENCES[3]}"
        assert tab.locator("#hits li").count() == len(SENTENCES)
        assert log.problems == []
