"""The engines by name."""

from collections.abc import Sequence

from layerwise.embed.engine import Engine, ThisProcess
from layerwise.errors import InputError
from layerwise.registry import check_known

ENGINE_CHOICES = ("local", "ray")


def choose_engine(
    name: str, *, processes: int | None = None, devices: Sequence[str] = (), address: str | None = None
) -> Engine:
    """Create an engine by name: "local" with one or several processes, or "ray"; raise for a missing extra."""
    check_known(name, ENGINE_CHOICES, "engine")
    if processes is not None and processes < 1:
        raise InputError(f"processes must be 1 or more, not {processes}")
    if name == "ray":
        from layerwise.embed.ray_engine import RayCluster

        return RayCluster.of(processes=processes, devices=devices, address=address)
    if address is not None:
        raise InputError(f"the address {address!r} is that of a Ray cluster; pass --engine ray too")
    if processes in (None, 1):
        return ThisProcess(devices[0] if devices else None)
    from layerwise.embed.processes import Processes

    return Processes(processes or 1, tuple(devices))
