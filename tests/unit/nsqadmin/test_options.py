"""The settings of nsqadmin, and how its command begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nsq_apps import nsqadmin as nsqadmin_command
from nsqadmin_py.options import NSQADMIN, check_options, clean_base_path, read_options
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.version import version_string

SECOND_NS = 1_000_000_000

# Every key and default of Go's nsqadmin.
DEFAULTS = {
    "acl_http_header": "X-Forwarded-User",
    "admin_users": (),
    "allow_config_from_cidr": "127.0.0.1/8",
    "base_path": "/",
    "dev_static_dir": "",
    "graphite_url": "",
    "http_address": "0.0.0.0:4171",
    "http_client_connect_timeout": 2 * SECOND_NS,
    "http_client_request_timeout": 5 * SECOND_NS,
    "http_client_tls_cert": "",
    "http_client_tls_insecure_skip_verify": False,
    "http_client_tls_key": "",
    "http_client_tls_root_ca_file": "",
    "log_level": 2,
    "log_prefix": "[nsqadmin] ",
    "notification_http_endpoint": "",
    "nsqd_http_addresses": (),
    "nsqlookupd_http_addresses": (),
    "proxy_graphite": False,
    "statsd_counter_format": "stats.counters.%s.count",
    "statsd_gauge_format": "stats.gauges.%s",
    "statsd_interval": 60 * SECOND_NS,
    "statsd_prefix": "nsq.%s",
}
OURS = {
    "topic_permissions",
    "acl_groups_http_header",
    "acl_http_header_from",
    "history_file",
    "http_allowed_hosts",
    "http_auth_file",
    "http_client_token_file",
    "http_client_token_host",
    "log_format",
    "max_connections",
    "poll_interval",
    "read_only",
    "tls_cert",
    "tls_key",
    "tls_security_level",
}


def test_defaults() -> None:
    options = NSQADMIN.defaults()
    assert {key: options.by_config_key(key) for key in DEFAULTS} == DEFAULTS
    assert {setting.key for setting in NSQADMIN.settings} - DEFAULTS.keys() == OURS | {""}
    check_options(NSQADMIN.defaults(lookupd_http_address=("127.0.0.1:4161",)))


def test_a_config_file_of_gos_nsqadmin_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nsqadmin.cfg"
    lines = ['nsqlookupd_http_addresses = ["a:1", "b:2"]', 'admin_users = ["bob"]', 'base_path = "admin/"']
    path.write_text("\n".join(lines), "utf-8")
    options = read_options(["-config", str(path), "--statsd-interval=10s"])
    assert options.lookupd_http_address == ("a:1", "b:2")
    assert options.admin_user == ("bob",)
    assert options.base_path == "/admin"
    assert options.statsd_interval_ns == 10 * SECOND_NS


@pytest.mark.parametrize(("given", "clean"), [("", "/"), ("/", "/"), ("a", "/a"), ("/a/b/", "/a/b"), ("//a/../b", "/b")])
def test_base_paths(given: str, clean: str) -> None:
    assert clean_base_path(given) == clean


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lookupd_http_address": ()}, "--nsqd-http-address or --lookupd-http-address required"),
        ({"nsqd_http_address": ("b:2",)}, "use --nsqd-http-address or --lookupd-http-address not both"),
        ({"lookupd_http_address": ("a:b:c",)}, "failed to resolve --lookupd-http-address .a:b:c."),
        ({"http_client_tls_cert": "x"}, "--http-client-tls-key must be specified with --http-client-tls-cert"),
        ({"http_client_tls_key": "x"}, "--http-client-tls-cert must be specified with --http-client-tls-key"),
        ({"http_client_tls_root_ca_file": "/nowhere"}, "cannot use --http-client-tls-root-ca-file /nowhere"),
        ({"allow_config_from_cidr": "nonsense"}, "failed to parse --allow-config-from-cidr .nonsense."),
        ({"acl_http_header_from": ("unix", "10.0.0.0/33")}, "failed to parse --acl-http-header-from .10.0.0.0/33."),
        ({"topic_permission": ("view orders.*",)}, "failed to parse --topic-permission .view orders.\\*. - expected"),
        ({"topic_permission": ("see * ada",)}, "unknown permission see"),
        ({"topic_permission": ("view * group:",)}, "the group has no name"),
        ({"topic_permission": ("view * ada",)}, "--topic-permission needs --acl-http-header-from or --http-auth-file"),
        ({"proxy_graphite": True}, "failed to parse --graphite-url"),
        ({"notification_http_endpoint": "x"}, "failed to parse --notification-http-endpoint .x."),
        ({"poll_interval_ns": 1}, "--poll-interval must be at least 250ms"),
        ({"tls_cert": "/nowhere.pem"}, "must be given together"),
        ({"http_auth_file": "/nowhere"}, "--http-auth-file /nowhere"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, object], words: str) -> None:
    options = NSQADMIN.defaults(**{"lookupd_http_address": ("127.0.0.1:4161",)} | changes)
    with pytest.raises(Exception, match=words) as refusal:
        check_options(options)
    assert type(refusal.value).__name__ in ("BadOptions", "BadAuthFile")


def test_a_flag_that_was_removed_says_what_to_use(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(["--client-opt=x"])
    assert "--client-opt was removed: dead letters are requeued over HTTP" in capfd.readouterr().err


def test_without_its_packages_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "werkzeug", None)
    with pytest.raises(BadOptions, match=r"needs werkzeug: pip install 'nsqd-py\[admin\]'"):
        check_options(NSQADMIN.defaults(lookupd_http_address=("127.0.0.1:4161",)))


def test_version_and_help_wait_for_nothing() -> None:
    code = (
        "import sys; from nsq_apps.nsqadmin import main\n"
        "for flag in ('--version', '--help'):\n"
        "    try: main([flag])\n"
        "    except SystemExit: pass\n"
        "print([name for name in ('gevent', 'werkzeug') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    lines = run.stdout.splitlines()
    assert lines[0] == version_string("nsqadmin")
    assert lines[-1] == "[]"


def test_a_refusal_is_a_fatal_line_and_status_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert nsqadmin_command.main([]) == 2
    assert "FATAL: failed to instantiate nsqadmin - --nsqd-http-address or" in capfd.readouterr().err
