"""What is fitted on embeddings and changes them (whitening, flow, removed components), and the record of its text."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.postprocess.base import Postprocess as Postprocess
    from layerwise.postprocess.fitted_on import ENCODER as ENCODER
    from layerwise.postprocess.fitted_on import FittedOn as FittedOn
    from layerwise.postprocess.fitted_on import Hashes as Hashes
    from layerwise.postprocess.fitted_on import read_records as read_records
    from layerwise.postprocess.fitted_on import write_records as write_records
    from layerwise.postprocess.flow import Flow as Flow
    from layerwise.postprocess.flow_network import Coupling as Coupling
    from layerwise.postprocess.flow_network import FlowNetwork as FlowNetwork
    from layerwise.postprocess.linear import RemoveComponents as RemoveComponents
    from layerwise.postprocess.linear import Whitening as Whitening

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "Coupling": ".flow_network",
        "ENCODER": ".fitted_on",
        "FittedOn": ".fitted_on",
        "Flow": ".flow",
        "FlowNetwork": ".flow_network",
        "Hashes": ".fitted_on",
        "Postprocess": ".base",
        "RemoveComponents": ".linear",
        "Whitening": ".linear",
        "read_records": ".fitted_on",
        "write_records": ".fitted_on",
    },
)
