"""BERT-flow (Li et al. 2020): an invertible network that maps embeddings to a normal distribution."""

import copy
import logging
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.postprocess.base import Exact, Postprocess
from layerwise.postprocess.flow_network import Coupling, FlowNetwork

log = logging.getLogger(__name__)
FlowProgress = Callable[[int, float], object]
_BATCH_ROWS = 8192
_WARM_UP = 0.1  # share of the steps with a rising learning rate, which then decays to 0 along a cosine


class Flow(Postprocess):
    """A flow trained on embeddings by maximum likelihood, with a standard normal prior.

    The loss is the mean negative log-likelihood in nats per dimension. The seed determines weights, permutations and
    batches; torch's global random state is not changed.

    Args:
        blocks: The number of blocks of ActNorm, permutation and coupling.
        hidden: The width of each coupling's MLP.
        coupling: "additive" as in the paper, or "affine".
        epochs: The number of epochs.
        batch_size: The number of embeddings per step.
        learning_rate: The maximum learning rate of Adam.
        seed: The random seed.
        progress: Called after every epoch with its number (from 1) and its mean loss.

    Attributes:
        network_: The fitted `FlowNetwork`.
        losses_: The mean loss of each epoch.
    """

    name = "flow"
    network_: FlowNetwork
    losses_: tuple[float, ...]

    def __init__(
        self,
        *,
        blocks: int = 6,
        hidden: int = 128,
        coupling: Coupling = "additive",
        epochs: int = 5,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        seed: int = 0,
        progress: FlowProgress | None = None,
    ) -> None:
        self.blocks = blocks
        self.hidden = hidden
        self.coupling: Coupling = coupling
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.progress = progress

    def module(self) -> FlowNetwork:
        """A copy of the fitted network."""
        self.check_fitted()
        return copy.deepcopy(self.network_)

    def inverse_transform(self, embeddings: Exact) -> Exact:
        """Invert `transform`: (sentences, width) -> (sentences, width)."""
        self.check_fitted()
        return self._run(self.network_.inverse, embeddings)

    def _fit(self, embeddings: Exact) -> None:
        rows, width = embeddings.shape
        if self.epochs < 1 or self.batch_size < 2 or not 0 < self.learning_rate < math.inf:
            raise InputError(
                f"A flow needs 1 epoch, 2 rows a batch and a learning rate above 0, or more; these are {self.epochs}, "
                f"{self.batch_size} and {self.learning_rate}"
            )
        if rows < width:
            raise InputError(f"{rows} embeddings of {width} numbers are too few for a flow; give {width} or more")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = FlowNetwork(width, blocks=self.blocks, hidden=self.hidden, coupling=self.coupling)
            vectors = torch.from_numpy(embeddings).float()
            network.start_at(vectors)
            self.losses_ = self._train(network, vectors)
        self.network_ = network.requires_grad_(False).eval()

    def _train(self, network: FlowNetwork, vectors: Tensor) -> tuple[float, ...]:
        batches = math.ceil(len(vectors) / self.batch_size)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        steps = self.epochs * batches
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate_factor(step, steps))
        losses = []
        for epoch in range(1, self.epochs + 1):
            total = 0.0
            for batch in torch.split(torch.randperm(len(vectors)), self.batch_size):
                loss = -network.log_likelihood(vectors[batch]).mean() / network.width
                if not math.isfinite(loss.item()):
                    raise InputError(
                        f"The flow's loss became {loss.item()} in epoch {epoch}: it went astray; lower learning_rate "
                        f"({self.learning_rate}), or look for embeddings far from all others"
                    )
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                total += loss.item() * len(batch)
            losses.append(total / len(vectors))
            log.info("Flow: epoch %d of %d, %.4f nats a dimension", epoch, self.epochs, losses[-1])
            if self.progress is not None:
                self.progress(epoch, losses[-1])
        return tuple(losses)

    def _transform(self, embeddings: Exact) -> Exact:
        return self._run(self.network_, embeddings)

    def _run(self, function: Callable[[Tensor], Tensor], embeddings: Exact) -> Exact:
        """Compute in float32, as the module of a saved model does."""
        with torch.inference_mode():
            parts = torch.split(torch.from_numpy(embeddings).float(), _BATCH_ROWS)
            return np.concatenate([function(part).double().numpy() for part in parts])


def _rate_factor(step: int, steps: int) -> float:
    """The learning rate of a step relative to the maximum."""
    warm_up = max(1, int(_WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
