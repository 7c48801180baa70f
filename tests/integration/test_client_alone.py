"""The client library works where nothing of what the servers and tools need is installed."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.metadata import files
from pathlib import Path

import pytest

from tests.support.nsqd_process import REPOSITORY

pytestmark = pytest.mark.ours

Run = Callable[[str], "subprocess.CompletedProcess[str]"]
GEVENT = ("gevent", "greenlet", "zope.event", "zope.interface")


_ROUND_TRIP = """
from CLIENT import Consumer, Producer
with Producer(ADDRESS) as producer:
    producer.publish(TOPIC, b"hello")
    producer.multi_publish(TOPIC, [b"how", b"are you"])
bodies = []
for message in Consumer(TOPIC, "readers", nsqd_tcp_addresses=[ADDRESS], **OPTIONS):
    bodies.append(message.body)
    if len(bodies) == 3:
        break
print(sorted(bodies))
"""


@pytest.fixture(scope="module")
def make_run(tmp_path_factory) -> Callable[..., Run]:
    def make(*distributions):
        """Run code in a new virtual environment, in which only this project and these distributions are installed."""
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, symlinks=True)
        packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        (packages / "nsqd_py.pth").write_text(f"{REPOSITORY}\n")
        for path in {path.parts[0]: path for name in distributions for path in files(name) or ()}.values():
            if path.parts[0] != "..":
                (packages / path.parts[0]).symlink_to(
                    Path(str(path.locate())).parents[len(path.parts) - 1] / path.parts[0]
                )

        def run(code):
            command = [str(folder / "bin" / "python"), "-I", "-c", code]
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)

        return run

    return make


@pytest.mark.parametrize(
    ("module", "distributions"),
    [("nsqd_py.client.gevent", GEVENT), ("nsqd_py.client", ())],
    ids=["gevent", "threads"],
)
def test_a_round_trip_needs_no_more_than_gevent(nsqd, make_run, module, distributions):
    code = _ROUND_TRIP.replace("CLIENT", module)
    given = f"ADDRESS, TOPIC, OPTIONS = '127.0.0.1:{nsqd.tcp_port}', 'orders', {{}}\n"
    done = make_run(*distributions)(given + code)
    assert (done.stdout, done.stderr) == ("[b'are you', b'hello', b'how']\n", "")


def test_answers_of_nsqlookupds_are_read_with_the_standard_library(make_run):
    code = """
from nsqd_py.runtime.documents import load_foreign_json
print(load_foreign_json(b'{"producers": [1, 2]}'))
for bad in (b"", b"{", b"[" * 500_000):
    try:
        load_foreign_json(bad)
    except ValueError:
        print("refused")
"""
    done = make_run()(code)
    assert (done.stdout, done.stderr) == ("{'producers': [1, 2]}\n" + "refused\n" * 3, "")


def test_snappy_says_which_package_it_needs(nsqd, make_run):
    code = f"from nsqd_py.client import Producer\nProducer('127.0.0.1:{nsqd.tcp_port}', snappy=True).publish('t', b'x')"
    done = make_run()(code)
    assert done.returncode == 1
    assert "cramjam" in done.stderr.splitlines()[-1]
