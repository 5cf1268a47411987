"""The ONNX graphs of a served model, and which of them a batch runs.

Two graphs exist before the first request: the model's own mix, and all layers with all token poolings. Graphs of fewer
blocks are exported in a thread when a batch first needs only low layers; until then, such batches run all blocks.
"""

import logging
import math
from collections.abc import Iterable
from threading import Lock, Thread

import torch

from layerwise.encoder import MASK, POOLINGS
from layerwise.errors import LayerwiseError
from layerwise.serve.batch_plan import Needs
from layerwise.serve.served_model import ServedModel
from layerwise.threads import within_cores

log = logging.getLogger(__name__)
_CLOSE_SECONDS = 5.0
_SHARES = (1 / 3, 2 / 3)  # of the blocks that the shallow graphs run; each graph holds its weights in memory


class ServedGraphs:
    """The graphs of a model on ONNX.

    Args:
        served: The model.
        cores: The number of cores of a text that is alone.
        batch_cores: The number of cores of each batch under load; a graph is loaded once for each of both.
    """

    def __init__(self, served: ServedModel, *, cores: int, batch_cores: int) -> None:
        self._encoder = served.encoder
        self._cores = {cores, batch_cores}
        self._poolings = [name for name in POOLINGS if name != MASK]
        mix, depth = served.model.mix, served.encoder.depth
        self._own: Needs = (sorted(mix.layers), list(mix.poolings))
        self._all = self._up_to(depth)
        self._depths = sorted({math.ceil(share * depth) for share in _SHARES} - {depth})
        self._ready: list[Needs] = []
        self._threads: dict[int, Thread] = {}
        self._exporting = Lock()  # one at a time, as each takes a core
        self._closed = False
        self._load(self._own, self._cores)
        self._load(self._all, {cores})

    def covering(self, layers: Iterable[int], poolings: Iterable[str]) -> Needs | None:
        """Return the cheapest graph with these views; None if no graph has them, as with views in prompts."""
        wanted = set(layers), set(poolings)
        fitting = [graph for graph in self._ready if wanted[0] <= set(graph[0]) and wanted[1] <= set(graph[1])]
        if not fitting:
            return None
        graph = min(fitting, key=lambda graph: (max(graph[0]), len(graph[0]) * len(graph[1])))
        depth = next((depth for depth in self._depths if max(wanted[0]) <= depth < max(graph[0])), None)
        if depth is not None and depth not in self._threads:
            thread = Thread(target=self._add, args=(depth,), name=f"graph-{depth}", daemon=True)
            self._threads[depth] = thread
            thread.start()
        return graph

    def close(self) -> None:
        """Wait briefly for a graph that is being exported; no more are."""
        self._closed = True
        for thread in list(self._threads.values()):
            thread.join(_CLOSE_SECONDS)

    def _up_to(self, depth: int) -> Needs:
        return list(range(depth + 1)), self._poolings

    def _add(self, depth: int) -> None:
        with self._exporting:
            if self._closed:
                return
            try:
                self._load(self._all, self._cores)  # or a batch that needs it would wait for the export
                self._load(self._up_to(depth), self._cores)
            except Exception as error:  # noqa: BLE001 - nobody waits for it: batches go on with the other graphs
                reason = error if isinstance(error, LayerwiseError) else type(error).__name__
                log.warning("%s: layers up to %d run all blocks: %s", self._encoder.name, depth, reason)

    def _load(self, graph: Needs, cores: Iterable[int]) -> None:
        """Export a graph unless it is cached, load it for these numbers of cores, and use it from then on."""
        tokens = torch.ones(1, 2, dtype=torch.int64)
        for count in cores:
            with within_cores(count):
                self._encoder.read(tokens, tokens, *graph)
        if graph not in self._ready:
            self._ready.append(graph)
