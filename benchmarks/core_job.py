"""What a plain `pip install layerwise` promises, by the commands of an environment that has only core: `make dist`.

A tiny encoder is made from its config (there is no network, and the embedded model is an extra); it is described,
embeds a file, is searched for its best layers, saved, loaded and queried. Every step must exit with 0, and what needs
an extra must be refused with the line that installs it.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "house", "fell", "rose", "shares", "rain", "sun"]


def make_encoder(folder: Path) -> Path:
    """A BERT of three layers that knows some words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)).save_pretrained(folder)
    return folder


def layerwise(*arguments: object, code: int = 0) -> str:
    """Run the installed command."""
    command = Path(sys.executable).with_name("layerwise")
    done = subprocess.run([str(command), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def main() -> None:
    """The job."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        model = make_encoder(here / "encoder")
        texts = [" ".join(random.choice(WORDS, 6)) for _ in range(200)]
        (here / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
        rows = (f"{a},{b},{random.integers(0, 6)}" for a, b in zip(texts[:60], texts[60:120], strict=True))
        (here / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]), encoding="utf-8")
        depth = json.loads(layerwise("info", model, "--json"))["depth"]
        assert depth == 3
        layerwise("embed", model, here / "texts.txt", "-o", here / "vectors")
        layerwise("search", model, here / "pairs.csv", "--save", here / "best")
        layerwise("embed", here / "best", here / "texts.txt", "-o", here / "best.npy")
        assert np.load(here / "best.npy").shape == (200, 32)
        hits = json.loads(layerwise("query", here / "vectors", texts[7], "--json"))[0]["hits"]
        assert hits[0]["score"] > 0.999, "a text is nearest to itself"
        refused = layerwise("report", model, "-o", here / "report.html", code=2)
        assert "pip install 'layerwise[report]'" in refused
        print("Core embeds, searches, saves, loads and queries without extras.")


if __name__ == "__main__":
    main()
