"""What a CUDA graph cannot hold, seen without a GPU: copies of Python numbers, and values that are read back."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_NEW = ("aten.lift_fresh",)  # a tensor made of Python numbers, which on a GPU is copied there
_READ = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.is_nonzero", "aten.equal")
_READ += ("aten._linalg_eigh", "aten._linalg_svd")  # which ask whether they went well


class CaptureCheck(TorchDispatchMode):
    """Collects in `refused` the operations that no CUDA graph allows, forward and backward, while it is open."""

    def __init__(self):
        super().__init__()
        self.refused = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        by_mask = str(func).startswith("aten.index.") and any(
            index.dtype == torch.bool for index in args[1] if index is not None
        )
        if by_mask or str(func).startswith((*_NEW, *_READ)):
            self.refused.append(str(func))
        return func(*args, **kwargs or {})
