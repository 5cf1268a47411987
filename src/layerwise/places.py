"""The cache folder, for files that can be recreated or downloaded again."""

import os
from pathlib import Path


def default_cache_folder() -> Path:
    """Return `$LAYERWISE_CACHE` or the user's cache folder."""
    path = os.environ.get("LAYERWISE_CACHE")
    if path:
        return Path(path).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("layerwise"))
