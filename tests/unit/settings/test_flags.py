"""Config files of NSQ's own releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsqadmin_py.options import NSQADMIN
from nsqd_py.runtime.logs.daemon_log import DEBUG, ERROR
from nsqd_py.server.options import NSQD
from nsqd_py.settings.flags import config_warnings
from nsqd_py.settings.program import Program
from nsqlookupd_py.options import NSQLOOKUPD

_TLS = "tls_cert tls_key tls_required tls_root_ca_file tls_client_auth_policy tls_min_version"
_NSQD = f"""
    broadcast_address data_path deflate http_address https_address max_body_size max_bytes_per_file
    max_deflate_level max_heartbeat_interval max_msg_size max_msg_timeout max_output_buffer_size
    max_output_buffer_timeout max_rdy_count max_req_timeout mem_queue_size msg_timeout nsqlookupd_tcp_addresses
    snappy statsd_address statsd_interval statsd_mem_stats statsd_prefix sync_every sync_timeout tcp_address
    {_TLS} e2e_processing_latency_percentiles e2e_processing_latency_window_time http_client_connect_timeout
    http_client_request_timeout statsd_udp_packet_size id log_level
"""
_NSQLOOKUPD = (
    "broadcast_address http_address tcp_address inactive_producer_timeout tombstone_lifetime log_level"
)
_NSQADMIN = """graphite_url http_address notification_http_endpoint nsqd_http_addresses nsqlookupd_http_addresses
    proxy_graphite statsd_counter_format statsd_gauge_format statsd_interval statsd_prefix log_prefix base_path
    http_client_connect_timeout http_client_request_timeout http_client_tls_insecure_skip_verify
    http_client_tls_root_ca_file http_client_tls_cert http_client_tls_key allow_config_from_cidr acl_http_header
    admin_users log_level"""
# Keys with another spelling, and keys without effect, whose values may be wrong today, with the lines that users read.
_EVERYWHERE = {
    "log-level": "is read as log_level; use this spelling",
    "verbose": "has no effect: use log_level",
}
_OLD_NSQD = _EVERYWHERE | {
    "node_id": "is read as id; use this spelling",
    "worker_id": "has no effect: use id",
    "worker-id": "has no effect: use id",
    "max_message_size": "has no effect: use max_msg_size",
}
_OLD_NSQADMIN = _EVERYWHERE | {
    "template_dir": "has no effect: the page is part of nsqadmin",
    "use_statsd_prefixes": "has no effect: set statsd_counter_format",
}


@pytest.mark.parametrize(
    ("program", "keys", "old"),
    [(NSQD, _NSQD, _OLD_NSQD), (NSQLOOKUPD, _NSQLOOKUPD, _EVERYWHERE), (NSQADMIN, _NSQADMIN, _OLD_NSQADMIN)],
)
def test_the_keys_of_every_release_of_nsq_are_accepted(
    program: Program, keys: str, old: dict[str, str], tmp_path: Path
) -> None:
    """Releases v0.2.15 to v1.3.0."""
    assert {setting.key for setting in program.settings} >= set(keys.split())
    values = {"log-level": "debug", "node_id": 7}
    path = tmp_path / "old.cfg"
    path.write_text("".join(f"{key} = {json.dumps(values.get(key, 5150))}\n" for key in old), "utf-8")
    options = program.read(["--config", str(path)])
    assert (options.log_level, getattr(options, "node_id", 7)) == (DEBUG, 7)
    lines = config_warnings(str(path), program.settings, options.obsolete_keys)
    assert lines == [f"{key} {line}" for key, line in old.items()]


def test_the_spelling_of_the_manual_overrides_others(tmp_path: Path) -> None:
    path = tmp_path / "both.cfg"
    path.write_text('log_level = "error"\nlog-level = "debug"\n', "utf-8")
    assert NSQD.read(["--config", str(path)]).log_level == ERROR
