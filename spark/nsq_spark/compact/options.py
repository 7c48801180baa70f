"""The settings of spark-compact."""

from __future__ import annotations

from importlib.util import find_spec

from nsqd_py.settings.declaration import BadOptions, Options, positive, setting, string, strings, switch
from nsqd_py.settings.program import ProgramOptions, ToolError
from nsqd_py.settings.types import SIZE, SPARK_SETTINGS, STRING
from nsqd_py.stores.commits import ICEBERG, check_table_name, package_of

_MIB = 1024 * 1024
_PACKAGES = ("pyspark", "pyarrow", "pandas")


class _Store(Options, title="Store"):
    store: tuple[str, ...] = strings(
        "Store of nsqd (--store), also as a plain word (may be given several times), as s3a://bucket/prefix, gs://… or a "
        "directory. It is read without nsqd, with the settings that --conf gives."
    )
    topic: tuple[str, ...] = strings(
        "Topic to compact (may be given several times); all by default.", short="t"
    )
    skip_damaged: bool = switch(
        "Leave out damaged records and rounds, and count the records by file; otherwise damage is an error."
    )


class _Table(Options, title="Table"):
    output_dir: str = string(
        "Directory of the Parquet files, or of the Delta table; also in an object store, as s3a://bucket/path. An Iceberg table "
        "has its files where it is."
    )
    table: str = string(
        "Table to add the files to: delta, a Delta table in the output-dir, or iceberg:namespace.table, an Iceberg table of "
        "pyiceberg's default catalog. The table is made if it is missing. Without this, there are Parquet files only.",
        check=check_table_name,
    )
    file_size: int = setting(
        SIZE,
        512 * _MIB,
        "Bytes of log files that become one Parquet file, which is compressed with zstd: bodies of JSON mostly take a quarter.",
        check=positive,
    )


class _Spark(Options, title="Spark"):
    master: str = setting(
        STRING, "local[*]", "URL of the Spark master: local[4], spark://host:7077, yarn, k8s://..."
    )
    conf: tuple[str, ...] = setting(
        SPARK_SETTINGS, (), "Setting of Spark as name=value (may be given several times)."
    )


class CompactOptions(ProgramOptions, _Store, _Table, _Spark):
    """The options of spark-compact."""


def check(options: CompactOptions) -> None:
    """Raise BadOptions for wrong options, and ToolError if packages are missing."""
    if not options.store:
        raise BadOptions("name a store: spark-compact s3a://bucket/prefix, or --store=s3a://bucket/prefix")
    if options.table.startswith(ICEBERG) == bool(options.output_dir):
        needed = "has its own directory" if options.output_dir else "is required"
        raise BadOptions(f"--output-dir {needed} with --table={options.table or '(none)'}")
    extras = dict.fromkeys(_PACKAGES, "spark")
    if options.table:
        package, extra = package_of(options.table)
        extras[package] = f"spark,{extra}"
    missing = [name for name in extras if find_spec(name) is None]
    if missing:
        raise ToolError(f"it needs {', '.join(missing)}: pip install 'nsqd-py[{extras[missing[-1]]}]'")
