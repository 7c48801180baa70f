"""The client library works where nothing of what the servers and tools need is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.nsqd_process import REPOSITORY, NsqdProcess

pytestmark = pytest.mark.ours

# Refuses every import from site-packages, except for the names given.
_REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED | {"nsqd_py"} | sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""
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
GEVENT = {"gevent", "greenlet", "zope", "cffi", "_cffi_backend", "pycparser"}


def run_without(allowed: set[str], code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"ALLOWED = {allowed!r}\n{_REFUSE}\n{code}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("module", "allowed"), [("nsqd_py.client.gevent", GEVENT), ("nsqd_py.client", set())], ids=["gevent", "threads"]
)
def test_a_round_trip_needs_no_more_than_gevent(nsqd: NsqdProcess, module: str, allowed: set[str]) -> None:
    code = _ROUND_TRIP.replace("CLIENT", module)
    given = f"ADDRESS, TOPIC, OPTIONS = '127.0.0.1:{nsqd.tcp_port}', 'orders', {{}}\n"
    done = run_without(allowed, given + code)
    assert (done.stdout, done.stderr) == ("[b'are you', b'hello', b'how']\n", "")


def test_answers_of_nsqlookupds_are_read_with_the_standard_library() -> None:
    code = """
from nsqd_py.runtime.documents import load_foreign_json
print(load_foreign_json(b'{"producers": [1, 2]}'))
for bad in (b"", b"{", b"[" * 500_000):
    try:
        load_foreign_json(bad)
    except ValueError:
        print("refused")
"""
    done = run_without(set(), code)
    assert (done.stdout, done.stderr) == ("{'producers': [1, 2]}\n" + "refused\n" * 3, "")


def test_snappy_says_which_package_it_needs(nsqd: NsqdProcess) -> None:
    code = f"from nsqd_py.client import Producer\nProducer('127.0.0.1:{nsqd.tcp_port}', snappy=True).publish('t', b'x')"
    done = run_without(set(), code)
    assert done.returncode == 1
    assert "cramjam" in done.stderr.splitlines()[-1]
