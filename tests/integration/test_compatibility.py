"""What docs/compatibility.md lists and no other test covers: flags, errors and keys of Go's nsqd."""

from __future__ import annotations

import json
import re
import resource
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import wire
from tests.support.module_servers import module_nsqd
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.transports import TransportClient
from tests.support.wire import ERROR, OK, Client, Closed, Frame, int32

SECOND_NS = 1_000_000_000

# --- limits that flags set

LIMITS = [
    "--max-heartbeat-interval=5s",
    "--max-output-buffer-size=1000",
    "--min-output-buffer-timeout=100ms",
    "--output-buffer-timeout=200ms",
    "--max-output-buffer-timeout=1s",
    "--max-rdy-count=7",
    "--max-msg-size=100",
    "--max-body-size=200",
    "--max-deflate-level=3",
]


limited = module_nsqd(*LIMITS)  # for all tests of these limits


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (wire.identify(heartbeat_interval=5001), b"E_BAD_BODY IDENTIFY heartbeat interval (5001) is invalid"),
        (wire.identify(output_buffer_size=1001), b"E_BAD_BODY IDENTIFY output buffer size (1001) is invalid"),
        (
            wire.identify(output_buffer_timeout=99),
            b"E_BAD_BODY IDENTIFY output buffer timeout (99) is invalid",
        ),
        (
            wire.identify(output_buffer_timeout=1001),
            b"E_BAD_BODY IDENTIFY output buffer timeout (1001) is invalid",
        ),
        (wire.pub("t", b"x" * 101), b"E_BAD_MESSAGE PUB message too big 101 > 100"),
        (wire.dpub("t", 0, b"x" * 101), b"E_BAD_MESSAGE DPUB message too big 101 > 100"),
        (wire.mpub("t", [b"x" * 101]), b"E_BAD_MESSAGE MPUB message too big 101 > 100"),
        (wire.mpub("t", [b"x" * 91] * 2 + [b"xxx"]), b"E_BAD_BODY MPUB body too big 201 > 200"),
    ],
)
def test_more_than_a_flag_allows_is_refused(limited, sent, error):
    with limited.connect() as client:
        client.send(sent)
        assert client.rest() == [Frame(ERROR, error)]


def test_as_much_as_a_flag_allows_is_taken(limited):
    with limited.connect(
        heartbeat_interval=5000, output_buffer_size=1000, output_buffer_timeout=100
    ) as client:
        client.pub("limits", b"x" * 100)
        client.mpub("limits", [b"x" * 92] * 2)  # 4 bytes, and 4 for each
        client.sub("limits", "c", 7)
        assert client.ask(wire.rdy(8)) == Frame(ERROR, b"E_INVALID RDY count 8 out of range 0-7")


def test_limits_are_told_to_clients(limited):
    with limited.connect() as client:
        reported = client.identify(deflate=True, deflate_level=9)
    assert (reported["max_rdy_count"], reported["output_buffer_timeout"]) == (7, 200)
    assert (reported["deflate"], reported["deflate_level"], reported["max_deflate_level"]) == (True, 3, 3)
    info = limited.http("GET", "/info").json()
    limits = {
        "max_heartbeat_interval": 5 * SECOND_NS,
        "max_output_buffer_size": 1000,
        "max_output_buffer_timeout": SECOND_NS,
        "max_deflate_level": 3,
    }
    assert limits.items() <= info.items()


def test_an_option_has_the_size_of_a_message_at_most(limited):
    assert limited.http("PUT", "/config/log_level", b"x" * 101).refusal == "413 INVALID_VALUE"


def test_compression_can_be_turned_off(make_nsqd):
    nsqd = make_nsqd("--deflate=false", "--snappy=false")
    with nsqd.connect() as client:
        reported = client.identify(deflate=True, snappy=True)
        assert (reported["deflate"], reported["snappy"]) == (False, False)
        client.pub("plain", b"x")


@pytest.mark.ours
def test_publishes_may_be_deferred_longer_than_requeued(make_nsqd):
    nsqd = make_nsqd("--max-req-timeout=1s", "--max-defer-timeout=10s")
    for path in ("/pub", "/mpub"):
        nsqd.post(f"{path}?topic=t&defer=10000", b"x")
        assert nsqd.http("POST", f"{path}?topic=t&defer=10001", b"x").refusal == "400 INVALID_DEFER"
    with nsqd.connect() as client:
        client.dpub("t", 10_000, b"x")
        assert (
            client.ask(wire.dpub("t", 10_001, b"x")).data
            == b"E_INVALID DPUB timeout 10001 out of range 0-10000"
        )


# --- IDENTIFY

TOPOLOGY_KEYS = {"topology_region", "topology_zone"}  # since v1.3.0


def test_the_answer_to_identify_has_the_keys_of_go(nsqd):
    with nsqd.connect() as client:
        reported = client.identify()
    assert {key: value for key, value in reported.items() if key not in TOPOLOGY_KEYS} == {
        "max_rdy_count": 2500,
        "version": nsqd.http("GET", "/info").json()["version"],
        "max_msg_timeout": 900_000,
        "msg_timeout": 60_000,
        "tls_v1": False,
        "deflate": False,
        "deflate_level": 6,
        "max_deflate_level": 6,
        "snappy": False,
        "sample_rate": 0,
        "auth_required": False,
        "output_buffer_size": 16_384,
        "output_buffer_timeout": 250,
    }


@pytest.mark.ours  # Go's nsqd v1.3.0 has no topology
def test_topology_is_told_and_kept(make_nsqd):
    nsqd = make_nsqd("--topology-region=r", "--topology-zone=z")
    with nsqd.connect() as client:
        reported = client.identify(topology_region="mine", topology_zone="here")
        assert (reported["topology_region"], reported["topology_zone"]) == ("r", "z")
        client.sub("t", "c", 1)
        client.pub("t", b"x")
        client.message()
        stats = nsqd.wait_for_channel("t", "c", in_flight_count=1, global_msg_count=1)
        (row,) = stats["clients"]
        assert (row["topology_region"], row["topology_zone"]) == ("mine", "here")
        assert not {"zone_local_msg_count", "region_local_msg_count", "global_msg_count"} & row.keys()
    info = nsqd.http("GET", "/info").json()
    assert (info["topology_region"], info["topology_zone"]) == ("r", "z")


# --- rows of clients in /stats


def row_of(nsqd: NsqdProcess, client: Client) -> dict[str, Any]:
    """What /stats says of a client that is the only one of its channel."""
    client.sub("rows", "c")
    (row,) = nsqd.wait_for_channel("rows", "c", client_count=1)["clients"]
    return dict(row)


@pytest.mark.parametrize("compression", ["snappy", "deflate"])
def test_a_row_tells_of_tls_and_compression(make_nsqd, certificates, compression):
    nsqd = make_nsqd(*certificates.nsqd_flags)
    with TransportClient(nsqd.tcp_port) as client:
        client.upgrade(certificates.client_context(), sample_rate=5, **{compression: True})
        row = row_of(nsqd, client)
    assert (row["snappy"], row["deflate"]) == (compression == "snappy", compression == "deflate")
    assert (row["tls"], row["tls_version"], row["sample_rate"]) == (True, "TLS1.3", 5)
    assert row["tls_cipher_suite"] != ""
    assert (row["tls_negotiated_protocol"], row["tls_negotiated_protocol_is_mutual"]) == ("", True)


def topics_of(nsqd: NsqdProcess) -> set[str]:
    return {topic["topic_name"] for topic in nsqd.stats()["topics"]}


def test_an_mpub_makes_its_topic_before_its_body_is_read(nsqd):
    refused = {
        "no-size": int32(0),
        "no-messages": int32(4) + int32(0),
        "empty-message": int32(13) + int32(2) + int32(1) + b"x" + int32(0),
        "too-large": int32(1 << 30),
    }
    commands = [b"MPUB %s\n" % topic.encode() + body for topic, body in refused.items()]
    # A PUB makes it when its body is there.
    for command in (*commands, b"MPUB not/valid\n", b"PUB not-read\n" + int32(0)):
        with nsqd.connect() as client:
            assert client.ask(command).kind == ERROR
    assert topics_of(nsqd) == set(refused)
    assert nsqd.stats()["topics"][0]["message_count"] == 0
    with nsqd.connect() as client:
        client.send(b"MPUB unfinished\n" + int32(100))
        wait_until(lambda: "unfinished" in topics_of(nsqd), what="the topic of an MPUB on its way")


@pytest.mark.parametrize(("in_memory", "backend_depths"), [(0, (100,)), (10, (90, 89))])
def test_what_is_not_in_memory_is_backend_depth(make_nsqd, in_memory, backend_depths):
    nsqd = make_nsqd(f"--mem-queue-size={in_memory}")
    nsqd.create("rows", "c")
    nsqd.mpub("rows", [b"x" * (1 + n % 3) for n in range(100)])
    channel = nsqd.wait_for_channel("rows", "c", depth=100)
    assert channel["backend_depth"] in backend_depths, (
        "Go's nsqd holds one on its way from topic to channel, perhaps"
    )


@pytest.mark.ours  # Go's nsqd answers behind the handshake that failed, in plain text
def test_a_tls_handshake_that_fails_has_no_answer(make_nsqd, certificates):
    nsqd = make_nsqd(*certificates.nsqd_flags)
    with nsqd.connect() as client:
        assert client.identify(tls_v1=True)["tls_v1"]
        client.send(wire.pub("plain", b"no handshake"))
        assert client.rest() == []
    assert nsqd.topic_stats("plain") is None


# --- HTTP


def test_plain_http_is_told_where_tls_is(make_nsqd, certificates):
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-required")
    (https_port,) = re.findall(r"HTTPS: listening on 127\.0\.0\.1:(\d+)", nsqd.log_text())
    for method, path in (("GET", "/ping"), ("POST", "/pub?topic=t"), ("GET", "/nothing")):
        answer = nsqd.http(method, path)
        assert (answer.status, answer.json()) == (
            403,
            {"message": "TLS_REQUIRED", "https_port": int(https_port)},
        )


def test_tcp_https_leaves_plain_http_open(make_nsqd, certificates):
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-required=tcp-https")
    assert nsqd.is_healthy()
    with nsqd.connect() as client:
        assert client.ask(wire.NOP).data == b"E_INVALID cannot NOP in current state (TLS required)"


# As it is read over HTTP, under its key in the configuration file. Durations are in ns.
OPTIONS = """
auth_http_addresses=[]
broadcast_address=127.0.0.1
deflate=true
e2e_processing_latency_percentiles=[]
e2e_processing_latency_window_time=600000000000
http_address=127.0.0.1:0
http_client_connect_timeout=2000000000
http_client_request_timeout=5000000000
https_address=0.0.0.0:4152
id=77
log_level=2
log_prefix=[mine]
max_body_size=5242880
max_bytes_per_file=104857600
max_channel_consumers=0
max_deflate_level=6
max_heartbeat_interval=60000000000
max_msg_size=1048576
max_msg_timeout=900000000000
max_output_buffer_size=65536
max_output_buffer_timeout=30000000000
max_rdy_count=2500
max_req_timeout=3600000000000
mem_queue_size=10000
min_output_buffer_timeout=25000000
msg_timeout=60000000000
nsqlookupd_tcp_addresses=[]
output_buffer_timeout=250000000
queue_scan_selection_count=5
queue_scan_worker_pool_max=2
snappy=true
statsd_address=
statsd_exclude_ephemeral=false
statsd_interval=60000000000
statsd_mem_stats=true
statsd_udp_packet_size=508
sync_every=2500
sync_timeout=3000000000
tcp_address=127.0.0.1:0
tls_cert=
tls_client_auth_policy=
tls_key=
tls_min_version=769
tls_required=0
tls_root_ca_file=
"""
# Go keeps the last two, and gives them no effect; ours has none for the scan either.
CHANGED = [
    "--node-id=77",
    "--log-prefix=[mine]",
    "--sync-timeout=3s",
    "--queue-scan-selection-count=5",
    "--queue-scan-worker-pool-max=2",
    "--verbose",
    "--worker-id",
]


def test_every_option_is_told_under_its_key(make_nsqd):
    nsqd = make_nsqd(*CHANGED)
    expected = dict(line.split("=") for line in OPTIONS.split())
    assert {key: nsqd.http("GET", f"/config/{key}").text for key in expected} == expected
    assert nsqd.http("GET", "/config/data_path").text == str(nsqd.data_path)
    together = nsqd.http("GET", "/config").json()
    assert together.keys() >= expected.keys()
    assert (together["data_path"], together["msg_timeout"]) == (f'"{nsqd.data_path}"', "1m0s")
    prefix = f"nsq.127_0_0_1_{nsqd.http_port}."
    assert nsqd.http("GET", "/config/statsd_prefix").text == prefix
    for key in ("verbose", "worker_id", "config", "version"):
        assert nsqd.http("GET", f"/config/{key}").json() == {"message": "INVALID_OPTION"}


# --- log


LOG_LINE = r"\[mine\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} (INFO|WARNING): .+"


def test_the_log_has_its_prefix_and_its_level_may_change(make_nsqd):
    nsqd = make_nsqd("--log-prefix=[mine] ")
    assert nsqd.http("PUT", "/config/log_level", b"ERROR").body == b"4"
    nsqd.http("GET", "/silent")
    assert nsqd.http("PUT", "/config/log_level", b"info").body == b"2"
    nsqd.http("GET", "/loud")
    wait_until(lambda: "/loud" in nsqd.log_text(), what="the next line")
    assert "/silent" not in nsqd.log_text()
    lines = nsqd.log_text().splitlines()
    assert [line for line in lines if not re.fullmatch(LOG_LINE, line)] == []


# --- addresses


def get_over(path: Path, request_path: str) -> bytes:
    """The body of an answer that comes over a unix socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(40)
        sock.connect(str(path))
        sock.sendall(f"GET {request_path} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: sock.recv(65536), b"")).partition(b"\r\n\r\n")[2]


def test_addresses_may_be_paths_and_a_level_silences(tmp_path):
    tcp, http = tmp_path / "tcp.sock", tmp_path / "http.sock"
    nsqd = NsqdProcess(
        tmp_path / "nsqd", f"--tcp-address={tcp}", f"--http-address={http}", "--log-level=error"
    )
    nsqd.launch()
    with nsqd:
        wait_until(http.exists, 40, "the socket")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(tcp))
            sock.sendall(wire.MAGIC + wire.pub("path", b"x"))
            assert sock.recv(100) == b"\0\0\0\6\0\0\0\0OK"
        info = json.loads(get_over(http, "/info"))
        assert (info["tcp_port"], info["http_port"]) == (-1, -1)
        (topic,) = json.loads(get_over(http, "/stats?format=json"))["topics"]
        assert (topic["topic_name"], topic["message_count"]) == ("path", 1)
        assert get_over(http, "/config/log_level") == b"4"
        assert nsqd.log_text() == ""
        assert nsqd.stop() == 0


def test_an_auth_server_has_its_time_to_take_a_connection(make_nsqd):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        host, port = listener.getsockname()
        times = ("--http-client-connect-timeout=300ms", "--http-client-request-timeout=60s")
        # When its queue is full, the kernel drops what others ask for.
        with (
            socket.create_connection((host, port)),
            make_nsqd(f"--auth-http-address={host}:{port}", *times).connect() as client,
        ):
            assert client.ask(wire.auth(b"secret"), deadline_s=40).data == b"E_AUTH_FAILED AUTH failed"


# --- a disk that takes nothing


@pytest.mark.ours  # Go keeps messages in memory, and a limit of file sizes ends it
@pytest.mark.parametrize(
    ("verb", "sent"),
    [("PUB", wire.pub("t", b"x")), ("MPUB", wire.mpub("t", [b"x"])), ("DPUB", wire.dpub("t", 9, b"x"))],
)
def test_a_publish_that_cannot_be_written_is_refused(nsqd, verb, sent):
    nsqd.create("t", "c")
    _, hard = resource.prlimit(nsqd.pid, resource.RLIMIT_FSIZE)
    with nsqd.connect() as client:
        client.pub("t", b"before")
        resource.prlimit(nsqd.pid, resource.RLIMIT_FSIZE, (1, hard))
        answer = client.ask(sent)
        assert (answer.kind, answer.data[: len(verb) * 2 + 18]) == (
            ERROR,
            f"E_{verb}_FAILED {verb} failed ".encode(),
        )
        with pytest.raises(Closed):
            client.frame()
    ping = nsqd.http("GET", "/ping")
    assert (ping.status, ping.body[:6]) == (500, b"NOK - ")
    assert nsqd.http("POST", "/pub?topic=t", b"x").json() == {"message": "PUB_FAILED: File too large"}
    resource.prlimit(nsqd.pid, resource.RLIMIT_FSIZE, (hard, hard))
    with nsqd.connect() as client:
        assert client.ask(wire.pub("t", b"after")) == OK
    assert nsqd.is_healthy()
    assert nsqd.wait_for_channel("t", "c", message_count=2)["depth"] == 2


@pytest.mark.ours  # the statistics are those of /metrics
def test_a_log_is_synced_after_its_time(make_nsqd):
    nsqd = make_nsqd("--sync-timeout=50ms")

    def syncs():
        return int(
            re.search(
                r"^nsqd_log_sync_duration_seconds_count (\d+)", nsqd.http("GET", "/metrics").text, re.M
            )[1]
        )

    nsqd.create("t")
    began_s = time.monotonic()
    with nsqd.connect() as client:
        for _ in range(25):  # with the two seconds of the default they would take 50 s
            before = syncs()
            client.pub("t", b"one of 2500")
            wait_until(lambda: syncs() > before, what="a sync")  # noqa: B023
            assert time.monotonic() - began_s < 40
