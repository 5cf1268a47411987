"""Transformations fitted on embeddings (whitening, flow, removed components), and records of that text."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.postprocess.base import Postprocess
    from layerwise.postprocess.fitted_on import ENCODER, LAYERS, FittedOn, Hashes, read_records, write_records
    from layerwise.postprocess.flow import Flow
    from layerwise.postprocess.flow_network import Coupling, FlowNetwork
    from layerwise.postprocess.linear import RemoveComponents, Whitening

__getattr__, __dir__, __all__ = door(__name__, __file__)
