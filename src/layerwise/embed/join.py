"""Shards into one file."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from layerwise.errors import InputError


def join_shards(shards: Sequence[Path], out: Path) -> None:
    """Write one file of all shards' rows in order, under another name first."""
    building = out.with_name(f".{out.name}.building")
    try:
        (_join_npy if out.suffix.lower() == ".npy" else _join_parquet)(shards, building)
        building.replace(out)
    except OSError as error:
        building.unlink(missing_ok=True)
        raise InputError(
            f"{out}: can't be written: {error.strerror or error}; the shards in {shards[0].parent} are complete: "
            f"make room and run the same command again"
        ) from error
    shutil.rmtree(shards[0].parent)


def _join_npy(shards: Sequence[Path], building: Path) -> None:
    first = np.load(shards[0], mmap_mode="r", allow_pickle=False)
    shape = (sum(len(np.load(shard, mmap_mode="r", allow_pickle=False)) for shard in shards), first.shape[1])
    if first.dtype.itemsize * shape[0] * shape[1] > shutil.disk_usage(building.parent).free:
        raise OSError(28, "No space left on device")  # a memory map would die without a word
    joined = np.lib.format.open_memmap(building, mode="w+", dtype=first.dtype, shape=shape)
    start = 0
    for shard in shards:
        part = np.load(shard, allow_pickle=False)
        joined[start : start + len(part)] = part
        start += len(part)
    joined.flush()


def _join_parquet(shards: Sequence[Path], building: Path) -> None:
    import pyarrow.parquet as pq

    schema = pq.read_schema(shards[0]).remove_metadata()
    with pq.ParquetWriter(building, schema, compression="none", use_dictionary=False) as writer:
        for shard in shards:
            writer.write_table(pq.read_table(shard).replace_schema_metadata(None).cast(schema))
