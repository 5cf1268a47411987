"""Pretrains a small BERT by masked language modelling: an encoder such as wiki-mlm-12x384, which the benchmarks use.

    python benchmarks/pretrain.py wikipedia.txt --out FOLDER [--tokenizer bert-base-uncased] [--steps N]

TEXT has a paragraph a line. Paragraphs are cut into pieces of --length tokens and packed end to end, so that no token
is padding. Everything of the loop is Hugging Face's Trainer; a killed run resumes by the same command.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

READ_AT_ONCE = 1000  # lines


def pieces(text: Path, tokenizer: PreTrainedTokenizerBase, length: int) -> Iterator[dict[str, list[int]]]:
    """The text as [CLS] … [SEP] of `length` tokens each; the rest at the end is left out."""
    waiting: list[int] = []
    inner = length - 2
    with text.open(encoding="utf-8") as lines:
        while some := [line.strip() for _, line in zip(range(READ_AT_ONCE), lines, strict=False)]:
            filled = [line for line in some if line]
            if not filled:
                continue
            for tokens in tokenizer(filled, add_special_tokens=False)["input_ids"]:
                waiting += tokens
                while len(waiting) >= inner:
                    yield {"input_ids": [tokenizer.cls_token_id, *waiting[:inner], tokenizer.sep_token_id]}
                    waiting = waiting[inner:]


def main() -> None:
    """Read, train, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", default="bert-base-uncased", help="a folder or hub name")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--length", type=int, default=128, help="tokens of a piece")
    parser.add_argument("--positions", type=int, default=256, help="of the model")
    parser.add_argument("--epochs", type=float, default=19)
    parser.add_argument("--steps", type=int, default=-1, help="instead of epochs")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.text.is_file():
        sys.exit(f"{options.text}: no such file; give a text file, one paragraph a line")
    if options.length > options.positions:
        sys.exit(f"--length {options.length} is more than the model's --positions {options.positions}")
    train(options)


def train(options: argparse.Namespace) -> None:
    """Masked language modelling from fresh weights."""
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    reading = {"text": options.text.resolve(), "tokenizer": tokenizer, "length": options.length}
    rows = Dataset.from_generator(pieces, gen_kwargs=reading, cache_dir=str(options.out / "pieces"))
    if not len(rows):
        sys.exit(f"{options.text}: fewer than {options.length} tokens; give more text, or a smaller --length")
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=options.width,
        num_hidden_layers=options.blocks,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.width,
        max_position_embeddings=options.positions,
        pad_token_id=tokenizer.pad_token_id,
    )
    arguments = TrainingArguments(
        output_dir=str(options.out / "checkpoints"),
        num_train_epochs=options.epochs,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        warmup_steps=0.02,
        weight_decay=0.01,
        save_steps=2000,
        save_total_limit=1,
        logging_steps=100,
        report_to=[],
        seed=options.seed,
    )
    model = BertForMaskedLM(config)
    masking = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    trainer = Trainer(model, arguments, data_collator=masking, train_dataset=rows)
    folder = Path(arguments.output_dir)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) if folder.is_dir() else None)
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"wrote {options.out}: {model.num_parameters():,} weights, {len(rows) * options.length:,} tokens of text")


if __name__ == "__main__":
    main()
