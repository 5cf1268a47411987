"""What is fitted on embeddings and changes them: whitening, flow, removed components; and what it was fitted on."""

from layerwise.postprocess.base import Postprocess
from layerwise.postprocess.fitted_on import FittedOn
from layerwise.postprocess.flow import Flow
from layerwise.postprocess.linear import RemoveComponents, Whitening

__all__ = ["FittedOn", "Flow", "Postprocess", "RemoveComponents", "Whitening"]
