"""Steps to train on: the schedule's rows of every task, tokenised ahead in a thread and padded.

The order is a function of seed and epoch, so that a resumed training sees what an uninterrupted one would have seen.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from layerwise.encoder import ahead
from layerwise.encoder.batches import padded_texts
from layerwise.encoder.tokens import SentenceTokenizer
from layerwise.errors import InputError
from layerwise.multitask.rows import TrainingTask
from layerwise.multitask.schedule import TaskBatch, schedule, steps
from layerwise.multitask.settings import MixingSettings

Batch = dict[str, Tensor]
Step = dict[str, Batch]  # by the task's name


class MultitaskBatches:
    """An epoch's steps each time it is iterated; a step has a batch for each task that is in it.

    A batch has `input_ids` and `attention_mask`, int64 (columns·b, t): the b rows of the first column, then those of
    the second; `targets` (b,), int64 for classes and float32 for scores; `kept` (b,), False for rows of padding. t is
    the longest text of the batch. A batch of padding alone is left out.

    Args:
        tasks: Those that are trained, with their rows.
        tokenizers: By the task's name; each cuts texts to its task's length.
        batch_size: Rows of a task's batch.
        mixing: How the tasks go together.
        pad_id: What texts are padded with.
        seed: Of the order, with the epoch.
    """

    def __init__(
        self,
        tasks: Sequence[TrainingTask],
        tokenizers: Mapping[str, SentenceTokenizer],
        *,
        batch_size: int,
        mixing: MixingSettings,
        pad_id: int,
        seed: int,
    ) -> None:
        self.tasks = tuple(tasks)
        self.tokenizers = dict(tokenizers)
        self.mixing = mixing
        self.pad_id = pad_id
        self.seed = seed
        self.epoch = 0
        self._skip = 0
        self._texts, self._cut = Counter[str](), Counter[str]()
        self._sizes = [len(task.parts["train"]) for task in self.tasks]
        self._batch_sizes = [batch_size] * len(self.tasks)

    def __len__(self) -> int:
        """Steps an epoch."""
        return steps(self._sizes, self._batch_sizes, self.mixing.iteration)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is."""
        if epoch < 0:
            raise InputError(f"epoch is {epoch}; epochs count from 0")
        self.epoch = epoch

    def skip(self, count: int) -> None:
        """Begin the next iteration, and only that, after this many steps."""
        if not 0 <= count <= len(self):
            raise InputError(f"{count} steps to skip; an epoch has {len(self)}: were it other files or batch sizes?")
        self._skip = count

    def cut_shares(self) -> dict[str, float]:
        """Task -> the share of its texts so far that were longer than its `max_length`, and were cut."""
        return {name: self._cut[name] / count for name, count in self._texts.items()}

    def __iter__(self) -> Iterator[Step]:
        skip, self._skip = self._skip, 0
        planned = schedule(
            self._sizes,
            self._batch_sizes,
            iteration=self.mixing.iteration,
            seed=self.seed,
            epoch=self.epoch,
            temperature=self.mixing.temperature,
        )
        return ahead(self._step, islice(planned, skip, None))

    def _step(self, planned: Sequence[TaskBatch]) -> Step:
        return {
            self.tasks[batch.task].name: self._batch(self.tasks[batch.task], batch)
            for batch in planned
            if not batch.is_padding
        }

    def _batch(self, task: TrainingTask, planned: TaskBatch) -> Batch:
        rows = task.parts["train"]
        texts = [column[row] for column in rows.columns for row in planned.rows.tolist()]
        found = self.tokenizers[task.name](texts)
        self._texts[task.name] += len(texts)
        self._cut[task.name] += found.truncated
        tokens, mask = padded_texts(found.ids, self.pad_id)
        targets = torch.from_numpy(rows.targets[planned.rows])
        return {
            "input_ids": tokens,
            "attention_mask": mask,
            "targets": targets if task.setup.task.has_classes else targets.float(),
            "kept": torch.from_numpy(planned.kept),
        }
