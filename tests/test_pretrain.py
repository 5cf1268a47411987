"""benchmarks/pretrain.py: the text is packed whole, and a few steps give a model that is read as any other."""

import importlib.util
from argparse import Namespace
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "pretrain.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("pretrain", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def text(tmp_path, sentences):
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(sentences * 8) + "\n", encoding="utf-8")
    return file


def test_pieces_hold_the_text_without_gap_or_overlap(script, text, tiny_bert):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    pieces = [piece["input_ids"] for piece in script.pieces(text, tokenizer, 12)]
    lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line]
    tokens = [token for line in lines for token in tokenizer(line, add_special_tokens=False)["input_ids"]]
    assert all(len(piece) == 12 for piece in pieces)
    assert all((piece[0], piece[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id) for piece in pieces)
    packed = [token for piece in pieces for token in piece[1:-1]]
    assert packed == tokens[: len(packed)]
    assert len(tokens) - len(packed) < 10


@pytest.mark.slow
def test_a_few_steps_give_an_encoder_whose_layers_are_read(script, text, tiny_bert, tmp_path, monkeypatch):
    import torch

    from layerwise import LayerEncoder

    out = tmp_path / "encoder"
    sizes = {"blocks": 2, "width": 16, "heads": 2, "length": 12, "positions": 32}
    how = {"epochs": 1.0, "steps": 2, "batch_size": 2, "learning_rate": 1e-3, "seed": 0}
    script.train(Namespace(text=text, out=out, tokenizer=str(tiny_bert), **sizes, **how))
    encoder = LayerEncoder(out, device="cpu")
    views = torch.as_tensor(encoder.encode_layers(["A cat sat."]))
    assert views.shape == (1, 3, 16)
    assert torch.isfinite(views).all()


def test_mistakes_are_one_line(script, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["pretrain.py", str(tmp_path / "none.txt"), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"none\.txt: no such file; give a text file"):
        script.main()
    (tmp_path / "a.txt").write_text("a\n")
    monkeypatch.setattr("sys.argv", ["x", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out"), "--length", "512"])
    with pytest.raises(SystemExit, match="--length 512 is more than the model's --positions 256"):
        script.main()
