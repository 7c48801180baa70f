"""What `pip install nsqd-py` brings without an extra: the daemons and tools run, and a flag says which extra it needs."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.support.nsqd_process import REPOSITORY, wait_until

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("wheel")]

TO_FILE = ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1"]
FLAGS = [
    ("nsqd", "auth", ["--http-auth-file=passwords"]),
    ("nsqlookupd", "auth", ["--http-auth-file=passwords"]),
    ("nsqd", "tls", ["--tls-client-auth-policy=require", "--tls-cert=c", "--tls-key=k"]),
    ("nsqd", "regex", ["--auth-http-address=127.0.0.1:1"]),
    ("nsq_to_file", "regex", [*TO_FILE, "--topic-pattern=t", "--check-config"]),
    ("nsq_to_file", "parquet", [*TO_FILE, "--format=parquet"]),
    ("nsq_to_file", "parquet", [*TO_FILE, "--output-dir=s3://bucket/path"]),
    ("nsq_to_file", "delta", [*TO_FILE, "--format=parquet", "--table=delta"]),
    ("nsq_to_file", "iceberg", [*TO_FILE, "--format=parquet", "--table=iceberg:nsq.messages"]),
    ("nsqd", "latency", ["--e2e-processing-latency-percentile=0.9"]),
    ("nsqadmin", "admin", ["--nsqd-http-address=127.0.0.1:4151"]),
]


def requirements() -> list[str]:
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", "utf-8")
    return [line.partition(">")[0] for line in setup["options"]["install_requires"].split()]


def needed(names: list[str]) -> set[str]:
    """Return the names of distributions with what they need, without extras."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            lines = [line for line in distribution(name).requires or () if "extra ==" not in line]
            names += [re.match(r"[\w.-]+", line)[0] for line in lines if "win32" not in line]  # type: ignore[index]
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> dict[str, str]:
    """The environment of an interpreter (`python -S`) that finds only these distributions and the checkout."""
    folder = tmp_path_factory.mktemp("packages")
    for name in needed(requirements()):
        for file in distribution(name).files or ():
            top = Path(file).parts[0]
            target = Path(str(distribution(name).locate_file(top)))
            if not top.endswith((".dist-info", "..")) and not (folder / top).exists() and target.exists():
                (folder / top).symlink_to(target)
    paths = [str(folder), *(str(REPOSITORY / name) for name in (".", "apps", "tools", "spark"))]
    return {"PYTHONPATH": os.pathsep.join(paths), "PATH": os.environ["PATH"]}


def run(
    bare: dict[str, str], directory: Path, command: str, *flags: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-S", "-m", "nsq_apps", command, *flags]
    return subprocess.run(
        words, cwd=directory, env=bare, input=stdin, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def nsqd(bare, tmp_path) -> Iterator[tuple[str, str]]:
    """The addresses of an nsqd for TCP and HTTP."""
    flags = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", f"--data-path={tmp_path}")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-S", "-m", "nsq_apps.nsqd", *flags], env=bare, stderr=log
        )
    try:
        pattern = r"TCP: listening on (\S+)[\s\S]*HTTP: listening on (\S+)\n"
        found = wait_until(lambda: re.search(pattern, (tmp_path / "log").read_text()), 40, "nsqd to listen")
        yield found[1], found[2]
    finally:
        process.terminate()
        assert process.wait(40) == 0


def test_there_are_few_requirements():
    assert len(requirements()) <= 8


def test_messages_pass_and_metrics_name_their_extra(bare, nsqd, tmp_path):
    address = f"--nsqd-tcp-address={nsqd[0]}"
    assert run(bare, tmp_path, "to_nsq", "--topic=orders", address, stdin="first\nsecond\n").returncode == 0
    tail = run(
        bare,
        tmp_path,
        "nsq_tail",
        "--topic=orders",
        "--channel=me",
        "--n=2",
        address,
        "--consumer-opt=snappy",
    )
    assert (tail.stdout, tail.returncode) == ("first\nsecond\n", 0), tail.stderr
    to_file = run(
        bare, tmp_path, "nsq_to_file", "--topic=orders", address, f"--output-dir={tmp_path}", "--check-config"
    )
    assert (to_file.returncode, to_file.stderr) == (0, "")
    with pytest.raises(HTTPError) as error:
        urllib.request.urlopen(f"http://{nsqd[1]}/metrics")
    assert error.value.code == 501
    assert "pip install 'nsqd-py[metrics]'" in error.value.read().decode()


@pytest.mark.parametrize(
    ("command", "extra", "flags"), FLAGS, ids=[f"{command} {extra}" for command, extra, _ in FLAGS]
)
def test_a_flag_says_which_extra_it_needs(bare, tmp_path, command, extra, flags):
    (tmp_path / "passwords").write_text("ann:$2y$10$zkcRkqXz0hCzjUu9sN6Eb.Aa9xPCcWPcLmAYIXwsRmA4BhyVFK5TW\n")
    refused = run(bare, tmp_path, command, *flags)
    assert refused.returncode in (1, 2)
    assert f"pip install 'nsqd-py[{extra}]'" in refused.stderr.splitlines()[-1]
