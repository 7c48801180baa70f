"""The settings of nsqadmin, and how its command begins."""

from __future__ import annotations

import sys

import pytest

from nsqadmin_py.options import NSQADMIN, check_options, clean_base_path, read_options
from nsqd_py.settings.declaration import BadOptions


@pytest.mark.parametrize(
    ("given", "clean"), [("", "/"), ("/", "/"), ("a", "/a"), ("/a/b/", "/a/b"), ("//a/../b", "/b")]
)
def test_base_paths(given: str, clean: str) -> None:
    assert clean_base_path(given) == clean


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lookupd_http_address": ()}, "--nsqd-http-address or --lookupd-http-address required"),
        ({"nsqd_http_address": ("b:2",)}, "use --nsqd-http-address or --lookupd-http-address not both"),
        ({"lookupd_http_address": ("a:b:c",)}, "failed to resolve --lookupd-http-address .a:b:c."),
        (
            {"http_client_tls_key": "x"},
            "--http-client-tls-cert and --http-client-tls-key must be given together",
        ),
        ({"http_client_tls_root_ca_file": "/nowhere"}, "cannot use --http-client-tls-root-ca-file /nowhere"),
        ({"lookupd_http_address": ("10.0.0.300:4161",)}, '"10.0.0.300" is not a host'),
        ({"acl_http_header": "X User"}, "--acl-http-header must be the name of a header, got .X User."),
        ({"acl_groups_http_header": "Groups:"}, "--acl-groups-http-header must be the name of a header"),
        ({"allow_config_from_cidr": "nonsense"}, "failed to parse --allow-config-from-cidr .nonsense."),
        (
            {"acl_http_header_from": ("unix", "10.0.0.0/33")},
            "failed to parse --acl-http-header-from .10.0.0.0/33.",
        ),
        (
            {"topic_permission": ("view orders.*",)},
            "failed to parse --topic-permission .view orders.\\*. - expected",
        ),
        ({"topic_permission": ("see * ada",)}, "unknown permission see"),
        ({"topic_permission": ("view * group:",)}, "the group has no name"),
        (
            {"topic_permission": ("view * ada",)},
            "--topic-permission needs --acl-http-header-from or --http-auth-file",
        ),
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
