"""One Spark for all tests of a process, since it takes long to start. Skipped without PySpark, or a Java for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.archived_topic import Place

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def java_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Java that Spark runs on."""
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    from nsq_spark import session

    try:
        return session.java_home(os.environ, tmp_path_factory.mktemp("java"))
    except session.SessionFailed as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark_environment(java_home: str) -> dict[str, str]:
    """Return the environment of processes that start their own Spark."""
    return {
        **os.environ,
        "JAVA_HOME": java_home,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in (".", "tools", "spark")),
    }


@pytest.fixture(scope="session")
def spark(spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SparkSession on local[2] that knows `nsq`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment.items():
            patch.setenv(name, value)
        session = _session(tmp_path_factory.mktemp("spark"))
        from nsq_spark import register

        register(session)
        yield session
        session.stop()


def _session(directory: Path) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.minBatchesToRetain": "2",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An archive that nsq-to-file writes, and that Spark's source reads."""
    from tests.support.archived_topic import Place  # not above: it needs PySpark

    return Place(tmp_path)
