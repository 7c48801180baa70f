"""The settings of the store, and their check."""

from __future__ import annotations

import os
from typing import Any

from nsqd_py.settings.declaration import BadOptions, Options, check_package, not_negative, positive, setting
from nsqd_py.settings.durations import MILLISECOND_NS, SECOND_NS
from nsqd_py.settings.kinds import ByTopic, by_topic
from nsqd_py.settings.types import DURATION, INT, SIZE, URL

_SHORTEST_NS = 50 * MILLISECOND_NS


def _check_interval(value: int) -> str | None:
    if value >= _SHORTEST_NS:
        return None
    return "must be at least 50ms: each one costs a request"


def _check_acks(value: int) -> str | None:
    return None if value in (0, 1) else "must be 0 or 1: there is one store"


def _check_endpoint(url: str) -> None:
    if url:
        from nsqd_py.net.http import parse_url  # slow to import; only some stores have an endpoint

        parse_url(url)


def _check_limits(limits: ByTopic[int]) -> str | None:
    return next((problem for problem in map(not_negative, limits.values) if problem), None)


class StoreOptions(Options, title="Store"):
    """The settings of a store in a bucket or directory, which has the messages too."""

    store: str = setting(
        URL,
        "",
        "Bucket (s3://bucket/prefix, gs://..., az://container/prefix) or directory (file:///...) that gets a copy of all "
        "messages, from which they outlive this machine. Credentials are those of the environment.",
    )
    store_endpoint: str = setting(
        URL,
        "",
        "URL of the server of --store and --lease, if it is not the cloud's own: MinIO, Ceph, R2.",
        check=_check_endpoint,
    )
    store_interval_ns: int = setting(
        DURATION,
        SECOND_NS,
        "Time between two writes to the store; nothing is written if there is nothing new.",
        check=_check_interval,
    )
    store_acks: int = setting(
        INT,
        0,
        "With 1, a publisher gets OK when the store has its message; with 0, before.",
        check=_check_acks,
    )
    store_timeout_ns: int = setting(
        DURATION,
        30 * SECOND_NS,
        "Maximum time that a publisher waits for --store-acks; then it gets an error.",
        check=positive,
    )
    store_scrub_requests: int = setting(
        INT,
        10_000,
        "Maximum number of requests a day with which nsqd checks the objects of the store again and again; 0 turns that off.",
        check=not_negative,
    )
    store_retention_time_ns: ByTopic[int] = setting(
        by_topic(DURATION, 0),
        ByTopic(0),
        "Time for which the store keeps finished messages, if that is longer than --retention-time. By topic as that one.",
        check=_check_limits,
    )
    store_retention_bytes: ByTopic[int] = setting(
        by_topic(SIZE, 0),
        ByTopic(0),
        "Bytes of the newest messages that the store keeps after they are finished, if that is more than "
        "--retention-bytes. By topic as that one.",
        check=_check_limits,
    )


def check_store(options: Any) -> None:
    """Raise BadOptions if nsqd's --store cannot be used, or contradicts other options."""
    if not options.store:
        if options.store_acks:
            raise BadOptions("--store-acks needs --store")
        return
    from nsqd_py.objects.opening import parse_store_url  # only a store needs it

    try:
        scheme, _, path = parse_store_url(options.store)
    except ValueError as error:
        raise BadOptions(f"--store={options.store}: {error}") from error
    if scheme == "memory":
        raise BadOptions(f"--store={options.store}: it would end with this process")
    if scheme == "file":
        _check_place(options.store, path, options.data_path or ".")
    else:
        check_package("obstore", "store", "--store")


def _check_place(url: str, store: str, data_path: str) -> None:
    """Raise BadOptions if the directory of a store and the data path are the same, or one of them is in the other one."""
    places = os.path.realpath(store), os.path.realpath(data_path)
    if os.path.commonpath(places) in places:
        raise BadOptions(
            f"--store={url} and --data-path={data_path} must be two directories of which none is in the other one: choose a "
            "--store on another disk, which the loss of this one leaves"
        )
