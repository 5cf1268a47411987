"""What is a text and what is not."""


def has_lone_surrogate(text: str) -> bool:
    """Half a surrogate pair, as broken JSON gives it: it can't be encoded as UTF-8, so no tokenizer takes it."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
