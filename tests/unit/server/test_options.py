"""The settings of nsqd, and how its command begins."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nsq_apps import nsqd as nsqd_command
from nsqd_py.net.tls_options import TLS_NOT_REQUIRED, TLS_REQUIRED, TLS_REQUIRED_EXCEPT_HTTP
from nsqd_py.server.options import NSQD, BadOptions, Options, check_options, default_node_id, read_options

SECOND_NS = 1_000_000_000


# Every key and default of Go's nsqd, but for those that hang on the machine.
NSQD_DEFAULTS = {
    "auth_http_addresses": (),
    "auth_http_request_method": "get",
    "broadcast_http_port": 0,
    "broadcast_tcp_port": 0,
    "data_path": "",
    "deflate": True,
    "e2e_processing_latency_percentiles": (),
    "e2e_processing_latency_window_time": 600 * SECOND_NS,
    "enable_experiment": (),
    "http_address": "0.0.0.0:4151",
    "http_client_connect_timeout": 2 * SECOND_NS,
    "http_client_request_timeout": 5 * SECOND_NS,
    "https_address": "0.0.0.0:4152",
    "log_level": 2,
    "log_prefix": "[nsqd] ",
    "max_body_size": 5242880,
    "max_bytes_per_file": 104857600,
    "max_channel_consumers": 0,
    "max_channels_per_topic": 10_000,
    "max_topics": 50_000,
    "max_new_topics_per_second": 100,
    "max_deflate_level": 6,
    "max_heartbeat_interval": 60 * SECOND_NS,
    "max_msg_size": 1048576,
    "max_msg_timeout": 900 * SECOND_NS,
    "max_output_buffer_size": 65536,
    "max_output_buffer_timeout": 30 * SECOND_NS,
    "max_rdy_count": 2500,
    "max_req_timeout": 3600 * SECOND_NS,
    "mem_queue_size": 10000,
    "min_output_buffer_timeout": 25_000_000,
    "msg_timeout": 60 * SECOND_NS,
    "nsqlookupd_tcp_addresses": (),
    "output_buffer_timeout": 250_000_000,
    "queue_scan_selection_count": 20,
    "queue_scan_worker_pool_max": 4,
    "snappy": True,
    "statsd_address": "",
    "statsd_exclude_ephemeral": False,
    "statsd_interval": 60 * SECOND_NS,
    "statsd_mem_stats": True,
    "statsd_prefix": "nsq.%s",
    "statsd_udp_packet_size": 508,
    "sync_every": 2500,
    "sync_timeout": 2 * SECOND_NS,
    "tcp_address": "0.0.0.0:4150",
    "tls_cert": "",
    "tls_client_auth_policy": "",
    "tls_key": "",
    "tls_min_version": 769,
    "tls_required": 0,
    "tls_root_ca_file": "",
    "topology_region": "",
    "topology_zone": "",
}


def read_line(directory: Path, line: str) -> Options:
    """nsqd's options from a config file with one line."""
    path = directory / "nsqd.cfg"
    path.write_text(line, "utf-8")
    return read_options(["--config", str(path)])


def test_defaults_are_those_of_go() -> None:
    options = NSQD.defaults()
    assert {key: options.by_config_key(key) for key in NSQD_DEFAULTS} == NSQD_DEFAULTS
    check_options(options)


def test_help_lists_a_hundred_flags_at_most() -> None:
    """Go's nsqd has 57. What no one changes is a constant, and what has no effect is not listed.

    The eight of the store came after the hundred were full: where it is, how often it is checked and how long it is waited for,
    and what it keeps differ from user to user, and none of them can follow from another setting.
    """
    groups = dict(NSQD.groups)
    assert len(groups.pop("Store")) <= 8
    assert sum(map(len, groups.values())) <= 100


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--write-timeout=5s", "--write-timeout was removed: it is always 1m"),
        ("--http-idle-timeout=5s", "--http-idle-timeout was removed: it is always 11m"),
        ("--check-format=json", "--check-format was removed: use --log-format=json"),
    ],
)
def test_a_removed_flag_is_answered_by_a_sentence(
    flag: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_options([flag])
    assert sentence in capsys.readouterr().err
    name, _, value = flag.removeprefix("--").partition("=")
    with pytest.raises(BadOptions, match="was removed: (it is always|use)"):
        read_line(tmp_path, f'{name.replace("-", "_")} = "{value}"')


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--store=bucket"],
            "--store=bucket: must be s3://bucket/prefix, gs://…, az://container/prefix or file:///directory",
        ),
        (["--store=s3:///x"], "--store=s3:///x: must name a bucket: s3://bucket/prefix"),
        (["--store=file://x"], "must name a directory by its absolute path"),
        (["--store=file:x"], "--store=file:x: must name a directory by its absolute path"),
        (
            ["--store=file:///x", "--data-path=/x"],
            "--store=file:///x and --data-path=/x must be two directories",
        ),
        (["--store=file:///x/y", "--data-path=/x/"], "of which none is in the other one"),
        (["--store=file:///x", "--data-path=/y/../x/y"], "of which none is in the other one"),
        (["--store=memory://"], "--store=memory://: it would end with this process"),
        (["--store-acks=1"], "--store-acks needs --store"),
        (["--store=file:///x", "--store-acks=2"], "--store-acks must be 0 or 1: there is one store, got 2"),
        (
            ["--store=file:///x", "--store-interval=1ms"],
            "--store-interval must be at least 50ms: each one costs a request",
        ),
        (["--store=file:///x", "--store-timeout=0s"], "--store-timeout must be positive, got 0s"),
        (
            ["--store=file:///x", "--store-retention-time=t=-1s"],
            "--store-retention-time must not be negative",
        ),
    ],
)
def test_the_settings_of_the_store(flags: list[str], sentence: str) -> None:
    with pytest.raises(BadOptions) as refused:
        check_options(read_options(flags))
    assert sentence in str(refused.value)


def test_the_node_id_of_a_host_is_that_of_go() -> None:
    # What Go's nsqd v1.3.0 logs as its ID on a host of this name.
    assert default_node_id("vm") == 617
    assert default_node_id("vm", "0a1b2c3d4e5f6071") not in (617, default_node_id("vm", "f6071d4e5c3b2a10"))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--tls-required", TLS_REQUIRED),
        ("-tls-required=true", TLS_REQUIRED),
        ("--tls-required=TCP-HTTPS", TLS_REQUIRED_EXCEPT_HTTP),
        ("--tls-required=0", TLS_NOT_REQUIRED),
        ("--tls-client-auth-policy=require", TLS_REQUIRED),
    ],
)
def test_tls_required(flag: str, value: int) -> None:
    assert read_options([flag]).tls_required == value


@pytest.mark.parametrize("line", ["2", "[]", '"maybe"', '""'])
def test_tls_required_is_no_other_word(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadOptions, match="tls_required"):
        read_line(tmp_path, f"tls_required = {line}")


@pytest.mark.parametrize(("word", "value"), [("tls1.2", 771), ("TLS1.3", 772), ("", 769)])
def test_tls_min_version(tmp_path: Path, word: str, value: int) -> None:
    assert read_options([f"--tls-min-version={word}"]).tls_min_version == value
    assert read_line(tmp_path, f'tls_min_version = "{word}"').tls_min_version == value


def test_deferrals_are_as_long_as_requeue_delays_unless_told() -> None:
    assert read_options(["--max-req-timeout=2h"]).max_defer_timeout_ns == 7200 * SECOND_NS
    assert read_options(["--max-req-timeout=2h", "--max-defer-timeout=24h"]).max_defer_timeout_ns == (
        86400 * SECOND_NS
    )


BAD_OPTIONS = [
    (["--node-id=1024"], r"^--node-id must be \[0,1024\), got -?\d+$"),
    (["--node-id=-1"], r"^--node-id must be \[0,1024\), got -?\d+$"),
    (["--mem-queue-size=-1"], "^--mem-queue-size must not be negative, got -1$"),
    (["--msg-timeout=0s"], "^--msg-timeout must be positive, got 0s$"),
    (["--max-msg-size=-5"], "^--max-msg-size must be positive, got -5"),
    (["--max-body-size=0"], "^--max-body-size must be positive, got 0"),
    (["--max-rdy-count=0"], "^--max-rdy-count must be positive, got 0$"),
    (["--drain-timeout=-1s"], "^--drain-timeout must not be negative, got -1s$"),
    (["--max-deflate-level=0"], "^--max-deflate-level must be"),
    (["--max-deflate-level=10"], "^--max-deflate-level must be"),
    (["--tls-client-auth-policy=requires"], "must be require or require-verify"),
    (["--tls-client-auth-policy=require-verify"], "needs --tls-cert and --tls-key"),
    (["--tls-required"], "needs --tls-cert and --tls-key"),
    (["--tls-required=tcp-https"], "needs --tls-cert and --tls-key"),
    (["--tls-cert=/nonexistent.pem"], "must be given together"),
    (["--tls-key=/nonexistent.pem"], "must be given together"),
    (["--tls-cert=/nonexistent.pem", "--tls-key=/nonexistent.key"], "nonexistent.key: No such file"),
    (["--tls-root-ca-file=/nonexistent.pem"], "nonexistent.pem: No such file"),
    (["--e2e-processing-latency-percentile=0.9,1.5"], "in .0,1., got 1.5,0.9"),
    (["--e2e-processing-latency-percentile=0"], "in .0,1., got 0.0"),
    (["--e2e-processing-latency-percentile=nan"], "in .0,1., got nan"),
    (
        ["--e2e-processing-latency-percentile=0.9", "--e2e-processing-latency-window-time=0s"],
        "^--e2e-processing-latency-window-time must be above 0s",
    ),
    (["--tcp-address=999.1.1.1:1"], '"999.1.1.1" is not an IPv4 address'),
    (
        ["--lookupd-tcp-address=10.0.0:4160", "--statsd-address=1.2.3.4.5:1"],
        '"1.2.3.4.5" is not an IPv4 address',
    ),
    (["--auth-http-address=http://10.0.0.256/"], '"10.0.0.256" is not a host'),
    ([f"--unix-socket=/tmp/{'x' * 103}"], "has 108 bytes, and the path of a unix socket at most 107"),
    (["--broadcast-address=10.0.0.1:4150"], '^--broadcast-address must be a host .*, got "10.0.0.1:4150"$'),
    (["--broadcast-address=a b"], "^--broadcast-address must be a host"),
    (["--enable-experiment=nope"], "^--enable-experiment must be topology-aware-consumption, got nope$"),
    (["--max-msg-timeout=0s"], "^--max-msg-timeout must be positive"),
    (["--max-req-timeout=-1s"], "^--max-req-timeout must not be negative"),
    (["--max-defer-timeout=-1s"], "^--max-defer-timeout must not be negative"),
    (["--max-heartbeat-interval=-1s"], "^--max-heartbeat-interval must not be negative"),
    (["--max-output-buffer-size=-1"], "^--max-output-buffer-size must not be negative"),
    (["--max-output-buffer-timeout=-1s"], "^--max-output-buffer-timeout must not be negative"),
    (["--max-channel-consumers=-1"], "^--max-channel-consumers must not be negative"),
    (["--max-bytes-per-file=-1"], "^--max-bytes-per-file must not be negative"),
    (["--sync-timeout=-1s"], "^--sync-timeout must not be negative"),
    (["--store-endpoint=minio:9000"], "^--store-endpoint: a URL must begin with http"),
]


@pytest.mark.parametrize(("argv", "complaint"), BAD_OPTIONS, ids=lambda case: str(case))
def test_nsqd_refuses(argv: list[str], complaint: str) -> None:
    options = read_options(argv)
    with pytest.raises(BadOptions, match=complaint):
        check_options(options)


@pytest.mark.parametrize(
    "argv",
    [
        ["--node-id=0", "--max-deflate-level=1"],
        ["--node-id=1023", "--max-deflate-level=9"],
        ["--auth-http-request-method=post", "--e2e-processing-latency-percentile=1.0,0.001"],
        ["--tcp-address=127.1:0", "--http-address=0:1", "--statsd-address=1e100.net:1"],
        [f"--unix-socket=/tmp/{'x' * 102}", "--enable-experiment=topology-aware-consumption"],
        ["--broadcast-address=::1"],
        ["--broadcast-address="],
        ["--sync-timeout=0s", "--max-bytes-per-file=0", "--max-req-timeout=0s"],
    ],
)
def test_nsqd_takes_the_limits(argv: list[str]) -> None:
    check_options(read_options(argv))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate of this test")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "1",
    ]
    subprocess.run([*make, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_nsqd_takes_a_certificate_and_refuses_what_is_none(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    check_options(read_options([f"--tls-cert={cert}", f"--tls-key={key}", "--tls-required"]))
    check_options(read_options([f"--tls-root-ca-file={cert}"]))
    with pytest.raises(BadOptions, match="cannot use --tls-cert .*: expected PEM: a certificate"):
        check_options(read_options([f"--tls-cert={key}", f"--tls-key={cert}"]))
    with pytest.raises(BadOptions, match="cannot use --tls-root-ca-file"):
        check_options(read_options([f"--tls-root-ca-file={key}"]))


def test_nsqd_does_not_ask_for_the_password_of_a_key(certificate: tuple[str, str], tmp_path: Path) -> None:
    cert, key = certificate
    locked = str(tmp_path / "locked.pem")
    lock = ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", key, "-out", locked]
    subprocess.run(lock, check=True, capture_output=True)
    # In a session of its own there is no terminal: OpenSSL would ask on stderr.
    done = subprocess.run(
        [sys.executable, "-m", "nsq_apps.nsqd", f"--tls-cert={cert}", f"--tls-key={locked}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=40,
        start_new_session=True,
        check=False,
    )
    assert (done.returncode, "pass phrase" in done.stderr) == (2, False)
    assert "its private key without a password" in done.stderr


FATAL_LINE = r"\[nsqd\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} FATAL: "


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("--node-id=1024", r"failed to instantiate nsqd - --node-id must be \[0,1024\), got 1024\n"),
        ("--config=/nonexistent", r"failed to load config file /nonexistent - No such file or directory\n"),
    ],
)
def test_a_refusal_is_a_fatal_line_and_status_2(
    flag: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert nsqd_command.main([flag]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(FATAL_LINE + line, err)
