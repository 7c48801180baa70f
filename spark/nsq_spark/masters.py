"""What the URL of a Spark master says: where its executors are, and how many tasks they work on at a time. Pure."""

from __future__ import annotations

import re

_LOCAL = re.compile(r"local(?:\[(?P<threads>\d+|\*)(?:, *\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *(?P<workers>\d+) *, *(?P<cores>\d+) *, *\d+ *\]")
_LOOPBACK = re.compile(r"spark://(?:127\.[\d.]+|localhost|\[::1\]):\d+")
_REMOTE = re.compile(r"(spark|k8s|yarn)(://.+)?")


class BadMaster(ValueError):
    """No master; the text says what one looks like."""


def check_master(master: str) -> None:
    """Raises BadMaster."""
    if not any(pattern.fullmatch(master) for pattern in (_LOCAL, _LOCAL_CLUSTER, _REMOTE)):
        raise BadMaster(
            f"{master!r} is no Spark master: local, local[4], local[*], local-cluster[2,1,1024], spark://host:7077, "
            "yarn, k8s://..."
        )


def is_local(master: str) -> bool:
    """Tasks are threads of the driver, with Python processes on the same files as ours."""
    return _LOCAL.fullmatch(master) is not None


def is_local_cluster(master: str) -> bool:
    """Workers are in the driver's JVM, and start executors on this machine."""
    return _LOCAL_CLUSTER.fullmatch(master) is not None


def is_on_loopback(master: str) -> bool:
    """Nothing of it is on another machine, so nothing needs to be reached from there."""
    return any(pattern.fullmatch(master) for pattern in (_LOCAL, _LOCAL_CLUSTER, _LOOPBACK))


def known_slots(master: str, cores: int) -> int | None:
    """How many tasks run at a time, with so many cores here; None: only the cluster knows."""
    if match := _LOCAL.fullmatch(master):
        threads = match["threads"] or "1"
        return cores if threads == "*" else int(threads)
    if match := _LOCAL_CLUSTER.fullmatch(master):
        return int(match["workers"]) * int(match["cores"])
    return None
