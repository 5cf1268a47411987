"""Tasks of mteb's that need no network."""

from collections.abc import Mapping, Sequence
from typing import Any


def mteb_sts_task(name: str, columns: Mapping[str, Sequence[Any]], *, highest: float = 1):
    """Pairs with scores from 0 to `highest`, in the columns sentence1, sentence2 and score, as a task of mteb's."""
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    unknown = ("date", "domains", "task_subtypes", "license", "annotations_creators", "dialect", "sample_creation")

    class Pairs(AbsTaskSTS):
        metadata = TaskMetadata(
            name=name,
            description="Pairs of a test",
            reference=None,
            dataset={"path": "none/none", "revision": "1"},
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
            bibtex_citation=None,
            **dict.fromkeys(unknown),
        )
        min_score, max_score = 0, highest

        def load_data(self, **_):
            self.dataset = {"test": Dataset.from_dict(columns)}
            self.data_loaded = True

    return Pairs()
