"""Tables of Delta and Iceberg that nsq-to-file commits to, and what other engines read in them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import fs

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

TABLE = "nsq.messages"
# Through Arrow: the extensions of DuckDB for these tables come from the network. A process, since duckdb complains at its end.
_DUCKDB = """
import os, sys, duckdb
flag, root, name = sys.argv[1:]
if flag == "delta":
    from deltalake import DeltaTable
    rows = DeltaTable(root).to_pyarrow_dataset()
else:
    from pyiceberg.catalog import load_catalog
    rows = load_catalog().load_table(name).scan().to_arrow()
query = "SELECT body FROM rows WHERE timestamp > TIMESTAMPTZ '2020-01-01' ORDER BY body"
for (body,) in duckdb.sql(query).fetchall():
    print(body.decode())
sys.stdout.flush()
os._exit(0)  # threads of duckdb may abort a process that ends: "terminate called without an active exception"
"""


@dataclass(frozen=True)
class Table:
    """A table below an output-dir; `flag` is the value of --table."""

    flag: str
    root: str
    catalog: Catalog

    def files(self) -> list[str]:
        """The paths of its files below the root, each as often as it is in the table."""
        if self.flag == "delta":
            uris = DeltaTable(self.root).file_uris() if DeltaTable.is_deltatable(self.root) else []
        elif self.catalog.table_exists(TABLE):
            uris = self.catalog.load_table(TABLE).inspect.files()["file_path"].to_pylist()
        else:
            uris = []
        return sorted(uri.removeprefix(f"{self.root}/") for uri in uris)

    def stored(self) -> list[str]:
        """The paths of the Parquet files that are there, in the table or not."""
        files, root = fs.FileSystem.from_uri(self.root)
        found = files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        return sorted(info.path.removeprefix(f"{root}/") for info in found if info.path.endswith(".parquet"))

    def arrow(self) -> pa.Table:
        if self.flag == "delta":
            return DeltaTable(self.root).to_pyarrow_table()
        return self.catalog.load_table(TABLE).scan().to_arrow()

    def by_polars(self) -> list[bytes]:
        import polars

        table = self.catalog.load_table(TABLE) if self.flag != "delta" else None
        frame = polars.scan_iceberg(table) if table else polars.scan_delta(self.root)
        return sorted(
            frame.filter(polars.col("timestamp") > polars.datetime(2020, 1, 1, time_zone="UTC")).collect()[
                "body"
            ]
        )

    def by_duckdb(self) -> list[bytes]:
        done = subprocess.run(
            [sys.executable, "-c", _DUCKDB, self.flag, self.root, TABLE], capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.splitlines()


def make_table(directory: Path, flag: str, root: str, environment: pytest.MonkeyPatch) -> Table:
    """In a directory, or in a store of `environment_of`; the catalog is a file of SQLite. Processes started later use it too."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    warehouse = root if "://" in root else f"file://{root}"
    settings = {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"{warehouse}/_iceberg",
    }
    if "://" in root:
        settings |= {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": os.environ["AWS_REGION"]}
    environment.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # another one is a package of its own
    for name, value in settings.items():
        environment.setenv(f"PYICEBERG_CATALOG__DEFAULT__{name.upper().replace('.', '__')}", value)
    environment.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once, when it is imported
    return Table(flag, root, load_catalog())
