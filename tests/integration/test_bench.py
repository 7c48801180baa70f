"""`python -m bench` in small: one row without peers, from the servers to the tables of the page."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from bench import page, record, wire
from bench.admin import Admin
from bench.consumer import Consumer
from bench.duel import SUBJECT, Contender, Duel
from bench.peers.setups import LIMIT, OURS, REDIS, find_command
from bench.peers.standby import REPLICATED, Replicated
from bench.percentiles import summary_ms
from bench.publishing import publish
from bench.run import Amount
from bench.scenario import Scenario, Side
from bench.server import ServerProcess
from bench.workload import Workload

ROOT = Path(__file__).resolve().parent.parent.parent
WITHIN_S = 120
STALL_S, PAUSE_S = 0.2, 0.05


def test_a_row_is_measured_recorded_and_shown_beside_the_limit(tmp_path: Path) -> None:
    options = ["--quick", "--only=^latency$", "--seconds=0.2", "--no-peers", f"--results={tmp_path}"]
    command = [sys.executable, "-m", "bench", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    (path,) = tmp_path.glob("*-quick.json")
    (row,) = record.read(path)["results"]
    assert row["runs"].keys() == {"subject", "limit"}
    details = row["runs"]["subject"][0]["details"]
    assert 0 < details["p50_ms"] <= details["p99_ms"] <= details["max_ms"]
    assert "| 10,000 |" in page.parts(record.read_all(tmp_path))["latency"]


def test_an_interrupted_run_keeps_what_was_finished(tmp_path: Path) -> None:
    options = ["--only=^(size|batch)$", "--seconds=0.1", "--no-peers", f"--results={tmp_path}"]
    command = [sys.executable, "-m", "bench", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "round 1 of" in line:  # The line of a row; its record follows.
                    break
            next(process.stdout)
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=WITHIN_S)
        finally:
            process.kill()
    assert process.returncode == 130
    (path,) = tmp_path.iterdir()
    assert f"recorded in {path}" in rest
    names = [row["scenario"] for row in record.read(path)["results"]]
    assert names[0] == "16 B" and "1,000" not in names


def limit_server() -> ServerProcess:
    command = find_command(LIMIT)
    assert command is not None and LIMIT.daemon.server is not None
    return LIMIT.daemon.server(LIMIT.daemon, command)


def test_a_server_that_stalls_is_slow_for_all_that_should_have_been_sent_meanwhile() -> None:
    """It stands still most of the time. A loop that waits for answers would send, and see, few requests then."""
    is_over = threading.Event()

    def stall(pid: int) -> None:
        while not is_over.wait(PAUSE_S):
            os.kill(pid, signal.SIGSTOP)
            is_over.wait(STALL_S)
            os.kill(pid, signal.SIGCONT)

    with limit_server() as server:
        stalling = threading.Thread(target=stall, args=(server.endpoint.pid,))
        stalling.start()
        try:
            workload = Workload(connections=4, rate_per_s=1000)
            _, published = publish(server.endpoint.tcp_port, server.endpoint.pid, LIMIT.name, workload, seconds=1)
        finally:
            is_over.set()
            stalling.join()
    assert summary_ms(published.latencies_ns)["p90_ms"] > STALL_S * 1000 / 4


def test_the_limit_sends_a_consumer_as_many_messages_as_it_asks_for() -> None:
    with limit_server() as server:
        consumer = Consumer(server.endpoint.tcp_port)
        consumer.sock.settimeout(WITHIN_S)
        consumer.sock.sendall(wire.rdy(3))
        finished = 0
        while finished < 10_000:
            count = consumer.pull()
            assert count <= 3
            finished += count
        consumer.sock.close()


def test_each_setup_of_a_standby_has_one(tmp_path: Path) -> None:
    """With the flag, an OK needs a standby: a publish is answered because there is one."""
    command = [sys.executable, "-m", REPLICATED.module]
    with Replicated(REPLICATED, command, ["--standby-acks=1"], tmp_path) as server:
        assert len(Admin(server.endpoint.http_port).stats()["standbys"]["list"]) == 1
        _, published = publish(
            server.endpoint.tcp_port, server.endpoint.pid, OURS.name, Workload(connections=1), messages=10
        )
    assert published.messages == 10
    with Replicated(REPLICATED, command, [], tmp_path) as server:
        assert not Admin(server.endpoint.http_port).stats().get("standbys", {}).get("list")


def test_a_peer_that_does_not_start_is_left_out_and_named() -> None:
    side = Side(Amount(seconds=0.05, messages=1))
    scenario = Scenario("publish", "msg/s", side, side, name="row", setups=(LIMIT, REDIS), workload=Workload(batch=10))
    limit = find_command(LIMIT)
    assert limit is not None
    duel = Duel(scenario, [Contender(SUBJECT, limit, LIMIT), Contender(REDIS.name, ("false",), REDIS)], rounds=1)
    duel.run_round()
    result = duel.result
    assert duel.is_over
    assert len(result.runs[SUBJECT]) == 1
    assert result.peers == []
    assert "redis-server ended with status 1" in result.failures[REDIS.name]
