"""/healthz and /metrics of nsq-worker, for all its processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct

import pytest

from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.worker import Worker

pytestmark = pytest.mark.ours
HEALTH = "--health-address=127.0.0.1:0"


def wait_for_health(worker: Worker, status: int, text: str, path: str = "/healthz") -> None:
    def answers() -> bool:
        found, body = worker.get(path)
        return found == status and text in body

    wait_until(answers, what=f"{status} {text!r}")


def metric(worker: Worker, name: str, labels: str = "") -> float:
    """The value of a metric; with labels, those of the handler `bill`."""
    status, body = worker.get("/metrics")
    assert status == 200
    handler = f'{{channel="billing",handler="shop.bill",{labels}topic="orders"}}' if labels != "-" else ""
    found = re.search(rf"^{re.escape(name + handler)} (\S+)$", body, re.MULTILINE)
    assert found is not None, body
    return float(found[1])


def test_a_process_that_hangs_or_ends_is_not_healthy(worker: Worker) -> None:
    worker.start("--processes=2", HEALTH)
    wait_for_health(worker, 200, "OK\n")
    first, second = worker.pids()[1], worker.pids()[2]
    os.kill(second, signal.SIGSTOP)
    wait_for_health(worker, 503, f"process 2 (pid {second}) has not reported for ")
    os.kill(second, signal.SIGCONT)
    wait_for_health(worker, 200, "OK\n")
    os.kill(first, signal.SIGKILL)
    wait_for_health(worker, 503, "process 1 ")
    wait_for_health(worker, 200, "OK\n")
    assert metric(worker, "nsq_worker_restarts_total", "-") == 1
    assert worker.get("/other")[0] == 404


def test_a_handler_without_a_connection_is_not_ready_but_healthy(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start(HEALTH)
    wait_for_health(worker, 200, "OK\n", "/readyz")
    nsqd.kill()
    wait_for_health(worker, 503, "shop.bill has no connection for orders/billing\n", "/readyz")
    assert worker.get("/healthz") == (200, "OK\n")


HANGS = """
import os
from pathlib import Path
from threading import Event
from nsqd_py.work import App, Retry

app = App("shop", nsqd_tcp_addresses=os.environ["SHOP_NSQD"])


@app.handler("orders", channel="billing", concurrency=2, time_limit_s=0.5, retry=Retry(first_s=0.1, jitter=0))
def bill(number: int) -> None:
    with open("notes", "a") as notes:
        notes.write(f"began {number} in {os.getpid()}\\n")
    if number < 0 and not Path("go").exists():
        Event().wait()
"""


def test_a_process_whose_handler_hangs_in_all_places_is_replaced(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.write(HANGS)
    worker.start(HEALTH)
    first = worker.pids()[1]
    nsqd.pub("orders", b"-1")
    worker.wait_for_note(f"began -1 in {first}", 2)
    taken = f"process 1 (pid {first}): calls over their time limit take all places of shop.bill of orders/billing\n"
    wait_for_health(worker, 503, taken)
    (worker.folder / "go").touch()
    nsqd.pub("orders", b"1")
    wait_until(lambda: worker.pids()[1] != first, what="another process")
    worker.wait_for_note(f"began 1 in {worker.pids()[1]}")
    wait_for_health(worker, 200, "OK\n")
    says = (
        f"process 1 (pid {first}) is replaced: calls over their time limit take all places of shop.bill of "
    )
    assert says in worker.log()
    assert "it starts again in 0.25 s" in worker.log()
    assert "it is killed" not in worker.log()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_handler_with_a_free_place_goes_on(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.write(HANGS.replace("first_s=0.1", "first_s=600").replace("jitter=0", "most_s=600, jitter=0"))
    worker.start(HEALTH)
    first = worker.pids()[1]
    nsqd.pub("orders", b"-1")
    wait_until(lambda: metric(worker, "nsq_worker_timeouts_total") == 1, what="a call over its limit")
    nsqd.pub("orders", b"1")
    worker.wait_for_note(f"began 1 in {first}")
    assert worker.get("/healthz") == (200, "OK\n")


def test_a_worker_that_stops_says_so(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start(HEALTH)
    nsqd.pub("orders", b'{"id": 1, "wait": true}')
    worker.wait_for_note("began 1")
    worker.signal(signal.SIGTERM)
    wait_for_health(worker, 503, "the worker is stopping\n")
    (worker.folder / "go").touch()
    assert worker.wait() == 0


def test_metrics_are_the_sum_of_all_processes_and_outlive_them(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start("--processes=2", HEALTH)
    for number in range(10):
        nsqd.pub("orders", b'{"id": %d}' % number)
    nsqd.pub("orders", b'{"id": 10, "fail": "no"}', b"no JSON")
    wait_until(lambda: metric(worker, "nsq_worker_handled_total") == 10, what="10 handled")
    wait_until(lambda: metric(worker, "nsq_worker_dead_letters_total") == 2, what="2 dead letters")
    assert metric(worker, "nsq_worker_failed_total") == 2
    assert metric(worker, "nsq_worker_connections") == 2
    assert metric(worker, "nsq_worker_duration_seconds_count") == 12
    assert metric(worker, "nsq_worker_duration_seconds_bucket", 'le="+Inf",') == 12
    assert metric(worker, "nsq_worker_processes", "-") == 2

    before = worker.pids()
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not set(before.values()) & set(worker.pids().values()), what="new processes")
    assert metric(worker, "nsq_worker_handled_total") == 10


def test_head_is_get_without_a_body(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start(HEALTH)
    wait_for_health(worker, 200, "OK\n")
    assert worker.get("/healthz", "HEAD") == (200, "")
    assert worker.get("/other", "HEAD") == (404, "")


def test_clients_that_are_gone_leave_nothing_in_the_log(worker: Worker, nsqd: NsqdProcess) -> None:
    worker.start(HEALTH)
    host, _, port = worker.health_address().rpartition(":")
    for text in [b"", b"GET /metr", b"GET /metrics HTTP/1.0\r\n\r\n"] * 10:
        with socket.create_connection((host, int(port))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            client.sendall(text)
    wait_for_health(worker, 200, "OK\n")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "Traceback" not in worker.log()
    assert "HTTP: " not in worker.log().replace("HTTP: listening", "")


def test_an_address_in_use_is_said_in_one_line(worker: Worker, nsqd: NsqdProcess) -> None:
    ended = worker.run("shop:app", f"--health-address=127.0.0.1:{nsqd.tcp_port}")
    assert ended.returncode == 1
    assert ended.stderr.decode() == (
        f"nsq-worker: --health-address: cannot listen on 127.0.0.1:{nsqd.tcp_port}: Address already in use\n"
    )
