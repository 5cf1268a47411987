"""Batches of several tasks: tokenises the scheduled rows of every task ahead in a thread, and pads them.

The order is a function of seed and epoch, so all processes of a training agree on it without communication, and a
resumed training sees the same batches as an uninterrupted one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from layerwise.encoder import SentenceTokenizer, ahead, padded
from layerwise.errors import InputError
from layerwise.train.multitask.rows import TrainingTask
from layerwise.train.multitask.schedule import TaskBatch, schedule, steps
from layerwise.train.multitask.settings import MixingSettings

Batch = dict[str, Tensor]
Step = dict[str, Batch]  # by the task's name


class MultitaskBatches:
    """Iterates over the steps of an epoch; a step has a batch for each of its tasks.

    A batch has `input_ids` and `attention_mask`, int64 (columns·b, t): the b rows of the first column, then those of
    the second; `targets` (b,), int64 for classes and float32 for scores; `row_mask` (b,), False for padding rows. t is
    the longest text of the batch. A batch of only padding is left out.

    Args:
        tasks: The trained tasks with their rows.
        tokenizers: By the task's name; each truncates texts to its task's length.
        batch_size: Rows per task and process.
        mixing: How the tasks are trained together.
        pad_id: The token that texts are padded with.
        seed: Determines the order, together with the epoch.
        rank: The rank of this process.
        world: The number of processes. A joint batch has batch_size·world rows, each process takes a contiguous part,
            padded with rows that have no loss where they are fewer.
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
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.tasks = tuple(tasks)
        self.tokenizers = dict(tokenizers)
        self.mixing = mixing
        self.pad_id = pad_id
        self.seed = seed
        self.rank = rank
        self.world = world
        self.epoch = 0
        self._skip = 0
        self._texts, self._truncated = Counter[str](), Counter[str]()
        self._sizes = [len(task.parts["train"]) for task in self.tasks]
        self._batch_sizes = [batch_size * world] * len(self.tasks)

    def __len__(self) -> int:
        """Steps per epoch."""
        return steps(self._sizes, self._batch_sizes, self.mixing.iteration)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        if epoch < 0:
            raise InputError(f"epoch is {epoch}; epochs count from 0")
        self.epoch = epoch

    def skip(self, count: int) -> None:
        """Skip this many steps in the next iteration only."""
        if not 0 <= count <= len(self):
            raise InputError(f"{count} steps to skip; an epoch has {len(self)}: were there other rows or batch sizes?")
        self._skip = count

    def resume_at(self, step: int) -> None:
        """Start the next iteration after this many steps of training."""
        self.skip(step % len(self))

    def truncated_shares(self) -> dict[str, float]:
        """Return, by task, the share of texts that this process has truncated to the task's `max_length`."""
        return {name: self._truncated[name] / count for name, count in self._texts.items()}

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
            self.tasks[batch.task].name: self._batch(self.tasks[batch.task], batch.part(self.rank, self.world))
            for batch in planned
            if not batch.is_padding
        }

    def _batch(self, task: TrainingTask, planned: TaskBatch) -> Batch:
        rows = task.parts["train"]
        texts = [column[row] for column in rows.columns for row in planned.rows.tolist()]
        tokenised = self.tokenizers[task.name](texts)
        self._texts[task.name] += len(texts)
        self._truncated[task.name] += tokenised.truncated
        tokens, mask = padded(tokenised.numbers, tokenised.lengths, self.pad_id)
        targets = torch.from_numpy(rows.targets[planned.rows])
        return {
            "input_ids": tokens,
            "attention_mask": mask,
            "targets": targets if task.setup.task.has_classes else targets.float(),
            "row_mask": torch.from_numpy(planned.row_mask),
        }
