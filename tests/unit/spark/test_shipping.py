"""What executors on other machines are sent, and what the URL of a master tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nsq_spark.session import is_local, is_on_loopback, zip_packages


def test_the_packages_are_imported_from_the_zip_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = zip_packages(tmp_path / "ours.zip")
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import nsq_spark.archive.read;"
        "import nsqd_py.client.blocking.publishing_core;"
        "print(nsq_spark.archive.read.__file__); print([name for name in sys.modules if name.startswith('gevent')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{path}/nsq_spark/archive/read.py", "[]"]


@pytest.mark.parametrize(
    ("given", "expected"), [({}, sys.executable), ({"PYSPARK_PYTHON": "/other"}, "/other"), ({"PYSPARK_GATEWAY_PORT": "1"}, None)]
)
def test_spark_gets_this_python_also_if_its_environment_is_not_activated(given: dict[str, str], expected: str | None) -> None:
    """Under spark-submit, Java has started the Python, and its settings say which."""
    code = "import os, nsq_spark; print(os.environ.get('PYSPARK_PYTHON'))"
    done = subprocess.run([sys.executable, "-c", code], env={"PATH": "", **given}, capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected}\n"


def test_users_import_the_data_source_from_the_package() -> None:
    pytest.importorskip("pyspark")
    code = (
        "import sys, nsq_spark; print([name for name in sys.modules if name.startswith('nsq_spark.')]);"
        "print('pyspark' in sys.modules);"
        "from nsq_spark import NsqDataSource, register; import nsq_spark.source.data_source as home;"
        "print(NsqDataSource is home.NsqDataSource, register is home.register)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False", "True True"]


@pytest.mark.parametrize(
    ("master", "here", "loopback"),
    [
        ("local", True, True),
        ("local[*]", True, True),
        ("local[3]", True, True),
        ("local[2,3]", True, True),
        ("local-cluster[2,3,1024]", False, True),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://localhost:7077", False, True),
        ("spark://10.0.0.1:7077", False, False),
        ("yarn", False, False),
        ("k8s://https://10.0.0.1:6443", False, False),
    ],
)
def test_what_a_master_tells(master: str, here: bool, loopback: bool) -> None:
    assert (is_local(master), is_on_loopback(master)) == (here, loopback)
