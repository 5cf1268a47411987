"""Object stores: URLs (s3://, gs://, hf://, memory://) as an alternative to local paths.

`place_of` makes a `Path` or a `StorePath` of what a user gives; both have the methods that files are read and written
by, so that the rooms above need not tell them apart. A URL of file:// is a path.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.stores.arrays import open_array
    from layerwise.stores.failures import without_secrets
    from layerwise.stores.lock import StoreLock
    from layerwise.stores.paths import Place, StorePath, is_url, place_of, readable, refuse_url, remove

__getattr__, __dir__, __all__ = door(__name__, __file__)
