"""Check the request of a search before any work is done, and read pairs as queries with their candidates."""

from collections.abc import Mapping, Sequence

from layerwise.data import TaskRows, relevant_passages
from layerwise.encoder import parse_pooling
from layerwise.errors import InputError
from layerwise.model import Head, LayerModel
from layerwise.search.choose import check_method
from layerwise.search.layer_search import LayerSearch, retrieval_metric
from layerwise.search.metrics import FEWEST_PAIRS, as_metric, check_gold, check_seed
from layerwise.search.select import random_splits


def check_request(
    path: str, pairs: TaskRows, poolings: Sequence[str], search: LayerSearch, *, head: bool = False
) -> None:
    """Refuse what cannot be searched before a model is loaded; an error about the rows names the file.

    A search without a metric is one without labels.
    """
    check_method(search.method)
    for pooling in poolings:
        parse_pooling(pooling)
    retrieval = retrieval_metric(search.metric)
    if head and retrieval:
        raise InputError(f"A head is searched with pair metrics, not with {retrieval.name}; leave --head out")
    if search.method == "weights" and (retrieval or search.metric is None):
        raise InputError("Layer weights need pairs with scores or labels; take another --method")
    if search.metric is not None and not retrieval:
        as_metric(search.metric)
    check_seed(search.seed)
    try:
        _check_rows(pairs, search)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def as_retrieval(pairs: TaskRows) -> tuple[list[str], list[str], list[Mapping[int, float]]]:
    """The first texts as queries, the second texts as candidates, and the relevance grades of each query.

    If the task declares a corpus, its texts are the candidates.
    """
    candidates = {text: number for number, text in enumerate(dict.fromkeys(pairs.corpus.values() or pairs.right))}
    grades = pairs.labels or [1.0] * len(pairs)
    relevance = relevant_passages(zip(pairs.left, pairs.right, grades, strict=True), candidates)
    return list(relevance), list(candidates), list(relevance.values())


def only_head(model: LayerModel) -> Head:
    """The model's only head, to search with; refuses a model with none or several."""
    if len(model.heads) != 1:
        count = "no head" if not model.heads else f"{len(model.heads)} heads"
        raise InputError(f"{model.encoder.name}: has {count} after its mix; --head needs just one, so leave it out")
    (head,) = model.heads
    if not isinstance(head, Head):
        raise InputError(f"{model.encoder.name}: its head is no linear layer, which --head needs; leave --head out")
    if head.linear.in_features != model.encoder.width:
        raise InputError(
            f"{model.encoder.name}: its head takes {head.linear.in_features} numbers, but a mean of layers has "
            f"{model.encoder.width}; leave --head out"
        )
    return head


def _check_rows(pairs: TaskRows, search: LayerSearch) -> None:
    if search.metric is None:
        if len(pairs) < FEWEST_PAIRS:
            raise InputError(f"{len(pairs)} sentences are too few to choose layers by; give {FEWEST_PAIRS} or more")
        return
    retrieval = retrieval_metric(search.metric)
    if not retrieval:
        check_gold(pairs.labels, as_metric(search.metric))
    units = len(as_retrieval(pairs)[0]) if retrieval else len(pairs)
    if not units:
        raise InputError("no row is relevant, for no score is above 0; a query needs a relevant passage")
    for part in search.parts or ():
        if min(map(len, part)) < FEWEST_PAIRS:
            raise InputError(
                f"{len(part[0])} pairs choose and {len(part[1])} report, which are too few; give {FEWEST_PAIRS} or "
                f"more of each"
            )
    if search.parts is not None:
        return
    random_splits(units, 0.5 if search.dev is None else search.dev, search.splits, search.seed)
