"""Joins shards into one file."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from layerwise.embed.record_paths import portable, resolved
from layerwise.embed.shard_files import loaded_numbers
from layerwise.embed.shards import MANIFEST
from layerwise.files import atomic_file, new_mapped_array, read_json
from layerwise.stores import Place, StorePath, open_array, readable, remove

EMBEDDED = b"layerwise.embed"  # the manifest's key in the metadata of a joined Parquet file


def join_shards(shards: Sequence[Place], out: Place) -> None:
    """Write the rows of all shards in order into one file, then remove the shards. Parquet includes the manifest."""
    folder = shards[0].parent
    for path in out.parent.glob(f".*{out.suffix}") if isinstance(out, Path) else ():  # leftovers of a killed run
        if re.fullmatch(rf"\.{re.escape(out.stem)}\.\d+{re.escape(out.suffix)}", path.name):
            path.unlink()
    remedy = f"the shards in {folder} are complete: free some space and run the same command again"
    with atomic_file(out, remedy=remedy) as building:
        if out.suffix.lower() == ".npy":
            _join_npy(shards, building)
        else:
            _join_parquet(shards, building, out.parent)
    if isinstance(folder, StorePath):
        remove(path for path in folder.iterdir() if path.size is not None)
    else:
        shutil.rmtree(folder)


def _join_npy(shards: Sequence[Place], building: Path) -> None:
    first = open_array(shards[0])
    shape = (sum(len(open_array(shard)) for shard in shards), first.shape[1])
    if first.dtype.itemsize * shape[0] * shape[1] > shutil.disk_usage(building.parent).free:
        raise OSError(28, "No space left on device")
    joined = new_mapped_array(building, dtype=first.dtype, shape=shape)
    start = 0
    for shard in shards:
        part = loaded_numbers(shard)
        joined[start : start + len(part)] = part
        start += len(part)
    joined.flush()


def _join_parquet(shards: Sequence[Place], building: Path, folder: Place) -> None:
    import pyarrow.parquet as pq

    manifest = portable(resolved(read_json(shards[0].parent / MANIFEST), shards[0].parent), folder)
    for key in ("shards", "checksums"):  # they describe the removed shards
        manifest.pop(key, None)
    schema = pq.read_schema(readable(shards[0])).with_metadata({EMBEDDED: json.dumps(manifest)})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(building, schema, **options) as writer:
        for shard in shards:
            writer.write_table(pq.read_table(readable(shard)).cast(schema))
