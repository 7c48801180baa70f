"""Which Spark is asked for, of the settings. Imported fast: Spark starts while the rest is imported."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import iglob
from typing import TYPE_CHECKING

from nsq_tools.cli import BadUsage

from nsq_spark.masters import BadMaster, check_master

if TYPE_CHECKING:
    from nsq_spark.replay.options import ReplayOptions

# With the optimising compiler and G1, a replay with a predicate takes 21 s of processor time to its first message, and
# 11 s without; then 4 us a message that Spark SQL looks at, and 7 us without: even at 3 million messages. Less than
# that are in an archive of this size, unless it is compressed well.
_SMALL_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class SparkWanted:
    """`is_light`: its JVM computes little, so that it need not compute fast."""

    master: str
    conf: Mapping[str, str]
    is_light: bool


def spark_of(options: ReplayOptions) -> SparkWanted:
    """Raises BadUsage."""
    try:
        check_master(options.master)
    except BadMaster as error:
        raise BadUsage(f"--master: {error}") from None
    conf, master = parse_conf(options.conf), options.master
    if options.parallelism and master == "local[*]":
        master = f"local[{options.parallelism}]"
    if options.parallelism and master.startswith("spark:"):
        conf.setdefault("spark.cores.max", str(options.parallelism))
    conf.setdefault("spark.app.name", "spark-replay")
    return SparkWanted(master, conf, not _computes_much(options))


def _computes_much(options: ReplayOptions) -> bool:
    if not (options.where or options.dedupe) or _is_small(options.archive):
        return False
    from nsq_spark.replay.sieve import sieve_of  # 0.3 s

    return bool(options.dedupe) or not sieve_of(options.where, options.json_schema or None).sets


def _is_small(paths: Sequence[str]) -> bool:
    """True if the archive is on this machine and is known to be small."""
    total_bytes = 0
    for path in paths:
        if "://" in path:
            return False
        for size_bytes in _sizes(path):
            total_bytes += size_bytes
            if total_bytes > _SMALL_BYTES:
                return False
    return total_bytes > 0


def _sizes(path: str) -> Iterator[int]:
    """Of the files that it stands for. Those that cannot be read are left out: their reader will say so."""
    for found in [path] if os.path.exists(path) else iglob(path):
        for directory, _, names in os.walk(found):
            yield from map(_size, (os.path.join(directory, name) for name in names))
        if os.path.isfile(found):
            yield _size(found)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def parse_conf(given: Sequence[str]) -> dict[str, str]:
    """The values of --conf. Raises BadUsage."""
    conf = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise BadUsage(f"--conf {text!r} is no setting of Spark: spark.name=value")
        conf[name] = value
    if "spark.master" in conf:
        raise BadUsage("use --master in place of --conf spark.master")
    return conf
