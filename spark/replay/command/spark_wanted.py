"""Which Spark is asked for, of the settings. Pure, and imported fast: Spark starts while the rest is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nsqd_py.settings import Options
from spark.masters import BadMaster, check_master
from tools.cli import BadUsage


@dataclass(frozen=True)
class SparkWanted:
    """`is_light`: its JVM only hands bytes on."""

    master: str
    conf: Mapping[str, str]
    is_light: bool


def spark_of(options: Options) -> SparkWanted:
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
    return SparkWanted(master, conf, is_light=not (options.where or options.dedupe))


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
