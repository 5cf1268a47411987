"""Contrast between sentences: InfoNCE as in SimCSE and LayerAttPooler, NT-Xent as in SG-BERT's baselines."""

from collections.abc import Callable
from copy import deepcopy
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder, layer_reader, read_views
from layerwise.errors import InputError
from layerwise.mixes import Mix
from layerwise.objectives import empty_places, enqueue, gather_rows, info_nce, momentum_update, nt_xent, world_size
from layerwise.train.contrastive.terms.base import TERMS, Step, Term, TermContext, TermSettings
from layerwise.train.loop.graphs import GraphedForward
from layerwise.train.loop.settings import Positive


@TERMS.register("info-nce")
class InfoNceSettings(TermSettings):
    """SimCSE: two dropout passes of a sentence, or pairs, or triples with a hard negative (eq. 6, 7, 8).

    Attributes:
        temperature: Cosines are divided by it.
        hard_negative_weight: Added to the logit of each anchor's hard negative; the authors' code of LayerAttPooler has
            1.0, its paper and SimCSE's have none.
        symmetric: The mean with the loss in the other direction.
        queue: How many embeddings of earlier sentences are further negatives (ESimCSE: 2.5 × the batch); 0: none. They
            come from a momentum encoder without dropout, which takes the room of a second encoder and a pass forward.
        momentum: How much of the momentum encoder's weights a step keeps.
    """

    reads_all_columns: ClassVar[bool] = True
    name: Literal["info-nce"] = "info-nce"
    temperature: Positive = 0.05
    hard_negative_weight: float = 0.0
    symmetric: bool = False
    queue: Annotated[int, Field(ge=0)] = 0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.995

    def check_columns(self, columns: int) -> None:
        """Check that there are hard negatives if they have a weight."""
        if self.hard_negative_weight and columns < 3:
            raise InputError("objective 'info-nce': hard_negative_weight needs a third column of hard negatives")

    @property
    def columns(self) -> int:
        """A sentence and its positive."""
        return 2

    def build(self, context: TermContext) -> "InfoNce":
        """Build the term."""
        return InfoNce(self, MomentumQueue(self, context) if self.queue else None)


class InfoNce(Term):
    """InfoNCE over the first two columns, with an optional third column of hard negatives and an optional queue."""

    def __init__(self, settings: InfoNceSettings, queue: "MomentumQueue | None" = None) -> None:
        super().__init__()
        self.settings = settings
        self.queue = queue

    def forward(self, step: Step) -> Tensor:
        """Compute the loss against all positives, hard negatives and the queue, then enqueue the anchors."""
        columns, queue = step.embeddings, self.queue
        negatives = [columns[2]] if len(columns) > 2 else []
        ignored = None
        if queue is not None:
            queue.wait()
            count = columns.shape[1] * (1 + len(negatives))
            empty = empty_places(queue.vectors, queue.count)
            ignored = torch.cat([empty.new_zeros(count), empty]).expand(columns.shape[1], -1)
            negatives.append(queue.vectors.clone())
        loss = info_nce(
            columns[0],
            columns[1],
            torch.cat(negatives) if negatives else None,
            temperature=self.settings.temperature,
            hard_negative_weight=self.settings.hard_negative_weight if len(columns) > 2 else 0.0,
            symmetric=self.settings.symmetric,
            ignored=ignored,
        )
        if queue is not None and self.training:
            queue.add(step)
        return loss

    def use_graphs(self) -> None:
        """Use CUDA graphs for the queue's copy of the encoder."""
        if self.queue is not None:
            self.queue.embed = GraphedForward(self.queue.run_pass)


class MomentumQueue(nn.Module):
    """Embeddings of the latest sentences by a momentum copy of encoder, pooler and head.

    All of it is module state, so checkpoints include it and a resumed training continues with the same queue. Each
    process encodes its rows and enqueues the rows of all processes. On a single GPU, the copy's pass runs beside the
    student's backward pass, and the next step waits for it.
    """

    vectors: Tensor
    count: Tensor

    def __init__(self, settings: InfoNceSettings, context: TermContext) -> None:
        super().__init__()
        if context.pooler is None or context.head is None:
            raise InputError("objective 'info-nce': a queue needs the pooler and head that make its embeddings")
        self.momentum = settings.momentum
        self._denoiser = (context.denoiser,)  # in a tuple, as it is a submodule of the student already
        self.poolings, self.layers = list(context.pooler.poolings), list(context.pooler.layers)
        self.register_buffer("vectors", torch.zeros(settings.queue, context.width))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.pooler = deepcopy(context.pooler)
        self._trained = _trained_modules(context.encoder, context.pooler, context.head)
        self.copies = nn.ModuleList(map(deepcopy, self._trained[:-1]))  # the encoder and the attention network, if any
        if self.pooler.is_learned:
            self.pooler = self.pooler.with_fitted(self.copies[-1])  # type: ignore[arg-type]
        self.head = deepcopy(context.head)
        self.requires_grad_(False).train(False)
        self.reader = layer_reader(self.copies[0])
        self.embed: Callable[..., Tensor] = self.run_pass
        self._stream: torch.cuda.Stream | None = None
        self.register_state_dict_pre_hook(lambda *_: self.wait())  # type: ignore[no-untyped-call]

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002
        """Stay in evaluation mode: the copy has no dropout."""
        return super().train(False)

    @torch.no_grad()
    def add(self, step: Step) -> None:
        """Update the copy and enqueue its embeddings of the first column."""
        slow = [parameter for module in (*self.copies, self.head) for parameter in module.parameters()]
        momentum_update(slow, [p for module in self._trained for p in module.parameters()], momentum=self.momentum)
        for copied, trained in zip(self.head.buffers(), self._trained[-1].buffers(), strict=True):  # of batch norm
            copied.copy_(trained)
        places = () if step.local.places is None else (step.local.places[0, :, :3],)
        inputs = (step.local.tokens[0], step.local.mask[0], *places)
        if not self.vectors.is_cuda or world_size() > 1:
            enqueue(self.vectors, self.count, gather_rows(self.embed(*inputs)))
            return
        self._stream = self._stream or torch.cuda.Stream(self.vectors.device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(self.vectors.device))
        with torch.cuda.stream(self._stream):
            enqueue(self.vectors, self.count, self.embed(*inputs))
        for tensor in inputs:
            tensor.record_stream(self._stream)  # so that its memory is not reused before

    def wait(self) -> None:
        """Let what follows on the GPU wait for the pass of the step before."""
        if self._stream is not None:
            torch.cuda.current_stream(self.vectors.device).wait_stream(self._stream)

    def run_pass(self, tokens: Tensor, mask: Tensor, places: Tensor | None = None) -> Tensor:
        """Compute the copy's embeddings of texts."""
        (denoiser,) = self._denoiser
        if denoiser is not None and places is not None:  # the first column is in the first prompt
            views = denoiser.read(self.reader, tokens, mask, self.layers, self.poolings, places)
        else:
            views = read_views(self.reader, tokens, mask, self.layers, self.poolings, places)
        with torch.autocast(views.device.type, enabled=False):
            embeddings: Tensor = self.head(self.pooler.combine(views))
        return embeddings


def _trained_modules(encoder: LayerEncoder, pooler: Mix, head: nn.Module) -> tuple[nn.Module, ...]:
    """Return the encoder, the pooler's network if any, and the head; in a tuple, so that they are not submodules."""
    network = [pooler.fitted] if pooler.is_learned and pooler.fitted is not None else []
    return (encoder.model, *network, head)


@TERMS.register("nt-xent")
class NtXentSettings(TermSettings):
    """Each of the 2n views is an anchor (SG-BERT's "Contrastive (BT)" on pairs of back-translations).

    Attributes:
        temperature: Cosines are divided by it.
    """

    name: Literal["nt-xent"] = "nt-xent"
    temperature: Positive = 0.05

    @property
    def columns(self) -> int:
        """A sentence and its positive."""
        return 2

    def build(self, context: TermContext) -> "NtXent":  # noqa: ARG002
        """Build the term."""
        return NtXent(self.temperature)


class NtXent(Term):
    """NT-Xent over the first two columns."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, step: Step) -> Tensor:
        """Compute the mean over all views."""
        return nt_xent(step.embeddings[0], step.embeddings[1], temperature=self.temperature)
