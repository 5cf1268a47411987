"""Where things go that can be made or fetched again."""

import os
from pathlib import Path


def default_cache_folder() -> Path:
    """`$LAYERWISE_CACHE`, or the user's cache folder."""
    given = os.environ.get("LAYERWISE_CACHE")
    if given:
        return Path(given).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("layerwise"))
