"""The type of views and embeddings, in a module that imports no torch."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
