"""The clients that people use, with the lines of docs/serving.md, against a real server."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import openai
import pytest

from support.tiny import SENTENCES

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
README = Path(__file__).parents[2] / "README.md"
NEAR = {"rtol": 0, "atol": 1e-5}


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_openai_embeds_in_both_formats(client, tiny_layers):
    expected = tiny_layers.encode(SENTENCES)
    for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        response = client.embeddings.create(model="tiny", input=SENTENCES, **options)
        vectors = [item.embedding for item in response.data]
        if options.get("encoding_format") == "base64":
            vectors = [np.frombuffer(base64.b64decode(one), "<f4") for one in vectors]
        np.testing.assert_allclose(vectors, expected, **NEAR)
        assert response.usage.total_tokens == sum(tiny_layers.encoder.token_counts(SENTENCES))
    layers = client.embeddings.create(model="tiny", input=SENTENCES, dimensions=8, extra_body={"layers": "1,3"})
    cut = tiny_layers.with_mix("1,3").encode(SENTENCES, truncate_dim=8)
    np.testing.assert_allclose([item.embedding for item in layers.data], cut, **NEAR)


def test_openai_lists_models_and_knows_our_errors(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
        client.embeddings.create(model="gpt", input="a")
    with pytest.raises(openai.UnprocessableEntityError, match="There is no layer 99") as refusal:
        client.embeddings.create(model="tiny", input="a", extra_body={"layers": "99"})
    assert refusal.value.param == "layers"


def run_lines(block, server):
    """Run the lines of a page, with the address of this server and the name of its model."""
    lines = block.replace("http://127.0.0.1:8000", server.url).replace('"default"', '"tiny"')
    names = {}
    exec(compile(lines, "page.md", "exec"), names)  # noqa: S102
    return names


@pytest.mark.parametrize("block", python_blocks(DOCS), ids=lambda block: block.split()[1])
def test_the_lines_of_the_docs_run(block, server, tiny_layers, capsys):
    vectors = run_lines(block, server)["vectors"]
    model = tiny_layers.with_mix("last-2 @ mean") if "last-2 @ mean" in block else tiny_layers
    texts = re.findall(r'"(A cat sat\.|It rained\.)"', block)
    np.testing.assert_allclose(vectors, model.encode(texts), **NEAR)
    capsys.readouterr()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_line_of_the_docs_runs(server, tiny_layers):
    line, *_ = re.findall(r"^curl .*?\n```", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    line = line.removesuffix("```").replace("http://127.0.0.1:8000", server.url).replace('"default"', '"tiny"')
    answer = json.loads(subprocess.run(["bash", "-c", line], check=True, capture_output=True, timeout=60).stdout)
    expected = tiny_layers.with_mix("last-2 @ mean").encode(["A cat sat."], truncate_dim=4)
    np.testing.assert_allclose([item["embedding"] for item in answer["data"]], expected, **NEAR)


def test_the_lines_of_the_readme_run(server, tiny_layers, capsys):
    (block,) = [block for block in python_blocks(README) if "openai" in block]
    run_lines(block, server)
    assert capsys.readouterr().out == f"{tiny_layers.encoder.width}\n"
