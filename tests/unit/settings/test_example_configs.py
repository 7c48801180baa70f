"""The configuration files in contrib/config are those of the declarations, and the programs take them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from nsq_apps.manual import PRINTED_BY
from nsqadmin_py import options as nsqadmin_options
from nsqd_py import options as nsqd_options
from nsqd_py.runtime.logs import DEBUG, ERROR
from nsqd_py.settings.declaration import Options
from nsqd_py.settings.docs import FORMATS, example
from nsqd_py.settings.flags import config_warnings
from nsqd_py.settings.program import Program
from nsqlookupd_py import options as nsqlookupd_options

CONFIGS = Path(__file__).resolve().parents[3] / "contrib" / "config"


class Example(NamedTuple):
    program: Program
    command: str
    read: Callable[[Sequence[str]], Options]
    check: Callable[[Options], None]
    file_format: str

    @property
    def path(self) -> Path:
        return CONFIGS / f"{self.program.name}.{self.file_format}"

    def uncommented(self) -> str:
        """The file with every setting in effect."""
        return re.sub(r"^#(?=\w)", "", self.path.read_text("utf-8"), flags=re.MULTILINE)


def check_nsqadmin(options: Options) -> None:
    """It cannot start without somebody to ask, which no default names."""
    nsqadmin_options.check_options(options.replace(lookupd_http_address=("127.0.0.1:4161",)))


PROGRAMS = (
    (nsqd_options.NSQD, PRINTED_BY, nsqd_options, nsqd_options.check_options),
    (nsqlookupd_options.NSQLOOKUPD, PRINTED_BY, nsqlookupd_options, nsqlookupd_options.check_options),
    (nsqadmin_options.NSQADMIN, PRINTED_BY, nsqadmin_options, check_nsqadmin),
)
EXAMPLES = [
    Example(program, command, module.read_options, check, file_format)
    for program, command, module, check in PROGRAMS
    for file_format in FORMATS
]
examples = pytest.mark.parametrize("example_file", EXAMPLES, ids=lambda e: e.path.name)


@examples
def test_the_file_is_fresh(example_file: Example) -> None:
    program, command, _, _, file_format = example_file
    assert example_file.path.read_text("utf-8") == example(program, command, file_format), f"run: {command}"


@examples
def test_as_it_is_it_changes_nothing(example_file: Example) -> None:
    assert vars(example_file.read(["--config", str(example_file.path)])) == vars(example_file.read([])) | {
        "config": str(example_file.path)
    }


@examples
def test_every_setting_is_in_it_once(example_file: Example) -> None:
    text = example_file.uncommented()
    settings = tomllib.loads(text) if example_file.file_format == "toml" else yaml.safe_load(text)
    assert list(settings) == [setting.key for setting in example_file.program.settings if setting.key]


@examples
def test_it_loads_with_every_line_uncommented(example_file: Example, tmp_path: Path) -> None:
    path = tmp_path / example_file.path.name
    path.write_text(example_file.uncommented(), "utf-8")
    options = example_file.read(["--config", str(path)])
    example_file.check(options)
    defaults = example_file.read([])
    changed = {
        setting.name
        for setting in example_file.program.settings
        if getattr(options, setting.attribute) != getattr(defaults, setting.attribute)
    }
    assert changed == {"config"} | {s.name for s in example_file.program.settings if s.key and s.default_text}


@examples
def test_every_setting_has_its_help(example_file: Example) -> None:
    words = " ".join(example_file.path.read_text("utf-8").replace("\n# ", " ").split())
    missing = [s.name for s in example_file.program.settings if s.key and " ".join(s.full_help.split()) not in words]
    assert missing == []


# --- the example files of NSQ's own releases

_TLS = "tls_cert tls_key tls_required tls_root_ca_file tls_client_auth_policy tls_min_version"
_NSQD = f"""
    broadcast_address data_path deflate http_address https_address max_body_size max_bytes_per_file
    max_deflate_level max_heartbeat_interval max_msg_size max_msg_timeout max_output_buffer_size
    max_output_buffer_timeout max_rdy_count max_req_timeout mem_queue_size msg_timeout nsqlookupd_tcp_addresses
    snappy statsd_address statsd_interval statsd_mem_stats statsd_prefix sync_every sync_timeout tcp_address
    {_TLS} e2e_processing_latency_percentiles e2e_processing_latency_window_time http_client_connect_timeout
    http_client_request_timeout statsd_udp_packet_size id log_level
"""
_NSQLOOKUPD = "broadcast_address http_address tcp_address inactive_producer_timeout tombstone_lifetime log_level"
_NSQADMIN = """graphite_url http_address notification_http_endpoint nsqd_http_addresses nsqlookupd_http_addresses
    proxy_graphite statsd_counter_format statsd_gauge_format statsd_interval statsd_prefix log_prefix base_path
    http_client_connect_timeout http_client_request_timeout http_client_tls_insecure_skip_verify
    http_client_tls_root_ca_file http_client_tls_cert http_client_tls_key allow_config_from_cidr acl_http_header
    admin_users log_level"""
# Keys with another spelling, and keys without effect, whose values may be wrong today, with the lines that users read.
_EVERYWHERE = {"log-level": "is read as log_level; use this spelling", "verbose": "has no effect: use log_level"}
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
    [
        (nsqd_options.NSQD, _NSQD, _OLD_NSQD),
        (nsqlookupd_options.NSQLOOKUPD, _NSQLOOKUPD, _EVERYWHERE),
        (nsqadmin_options.NSQADMIN, _NSQADMIN, _OLD_NSQADMIN),
    ],
)
def test_the_keys_of_every_release_of_nsq_are_accepted(program: Program, keys: str, old: dict[str, str], tmp_path: Path) -> None:
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
    assert nsqd_options.NSQD.read(["--config", str(path)]).log_level == ERROR
