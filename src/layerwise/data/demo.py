"""The graded pairs and the small corpus that come with the package: a demonstration, not a benchmark."""

from dataclasses import dataclass
from importlib import resources

from layerwise.data.rows import RowSource, text_of


@dataclass(frozen=True)
class DemoPair:
    """Two sentences and how similar they are, from 0 (unrelated) to 5 (same meaning)."""

    sentence1: str
    sentence2: str
    score: float
    topic: str
    kind: str


def demo_pairs() -> list[DemoPair]:
    """Graded pairs written for this project, over several topics and kinds of similarity."""
    with resources.as_file(resources.files(__package__) / "demo_pairs.csv") as path:
        source = RowSource.of(str(path), ("sentence1", "sentence2", "score", "topic", "kind"))
        rows = [[text_of(source, row, column) for column in range(5)] for row in source]
    return [DemoPair(a, b, float(score), topic, kind) for a, b, score, topic, kind in rows]


def demo_corpus() -> list[str]:
    """Short passages to search in."""
    text = (resources.files(__package__) / "demo_corpus.txt").read_text(encoding="utf-8")
    return text.splitlines()
