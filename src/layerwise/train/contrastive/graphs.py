"""CUDA graphs: the encoder's pass forward and backward launched as a whole.

A step of sentence training runs hundreds of small kernels, and on a fast GPU most of its time goes into launching them
one by one. Recorded once for each shape and replayed, they take a fraction of it. Dropout stays random: the graph
reads the generator's state at every replay.
"""

import logging
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layerwise.train.contrastive.student import Encoded, Student

log = logging.getLogger(__name__)

STEP = 8  # lengths are padded to a multiple of this, so that there are few shapes
_WARM_UPS = 3


class GraphedEncode:
    """`Student.encode` by CUDA graphs, for batches of the usual number of rows; others run without.

    Args:
        student: Its `encode` is recorded.
        rows: Rows of a whole batch, all columns.
        longest: Lengths are not padded beyond it.
        bf16: Run under autocast. (The host's autocast caches casts between calls, which a graph cannot.)
    """

    def __init__(self, student: Student, *, rows: int, longest: int, bf16: bool) -> None:
        self.student = student
        self.rows = rows
        self.longest = longest
        self.bf16 = bf16
        self._graphs: dict[int, Any] = {}
        self._pool: Any = None
        self._works = True

    def padded(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """A batch with its length rounded up, while it is still in this machine's memory."""
        length = batch["input_ids"].shape[1]
        more = min(-length % STEP, max(0, self.longest - length))
        if not more:
            return batch
        pad = self.student.encoder.tokenizer.pad_token_id or 0
        tokens = F.pad(batch["input_ids"], (0, more), value=int(pad))
        return batch | {"input_ids": tokens, "attention_mask": F.pad(batch["attention_mask"], (0, more))}

    def __call__(self, tokens: Tensor, mask: Tensor) -> Encoded:
        """As `Student.encode`."""
        with torch.autocast(tokens.device.type, enabled=False):
            graph = self._graph(tokens, mask) if len(tokens) == self.rows else None
            if graph is not None:
                return dict(zip(self.student.encoded_names, graph(tokens, mask), strict=True))
        return self.student.encode(tokens, mask)

    def _graph(self, tokens: Tensor, mask: Tensor) -> Any:
        """The graph of a length, recorded on first use; None once recording has failed."""
        length = tokens.shape[1]
        if self._works and length not in self._graphs:
            self._works = self._record(length, tokens, mask)
        return self._graphs.get(length) if self._works else None

    def _record(self, length: int, tokens: Tensor, mask: Tensor) -> bool:
        """Record a shape; the state of the random generator is restored."""
        state = torch.cuda.get_rng_state(tokens.device)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            self._graphs[length] = torch.cuda.make_graphed_callables(
                _Pass(self.student, self.bf16),
                (tokens.clone(), mask.clone()),
                num_warmup_iters=_WARM_UPS,
                allow_unused_input=True,
                pool=self._pool,
            )
        except RuntimeError as error:  # a model whose control flow depends on values cannot be recorded
            log.warning("no CUDA graphs for this encoder (%s); training continues without", str(error).splitlines()[0])
            return False
        finally:
            torch.cuda.set_rng_state(state, tokens.device)
        return True


class _Pass(nn.Module):
    """What is recorded: tokens to tensors. Its submodules are the student's, so that their gradients are recorded."""

    def __init__(self, student: Student, bf16: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part for part in (student.backbone, student.attention, student.head) if part)
        self._student = (student,)
        self._bf16 = bf16

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """The tensors of `Student.encode` in the order of `Student.encoded_names`."""
        student = self._student[0]
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=self._bf16, cache_enabled=False):
            encoded = student.encode(tokens, mask)
        return tuple(encoded[name] for name in student.encoded_names)
