"""--tls-security-level: short keys and TLS 1.0 are refused by default with a word on the setting, and taken with it."""

from __future__ import annotations

import ssl
import subprocess
import sys
import warnings

import pytest

from nsqd_py.client import Producer
from tests.support.certificates import Certificates, make_weak_certificates
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until
from tests.support.transports import TransportClient
from tests.support.wire import Closed

pytestmark = pytest.mark.ours

OPEN = "--tls-security-level=0"
ADVICE = "--tls-security-level=0"


@pytest.fixture(scope="module")
def weak(tmp_path_factory) -> Certificates:
    return make_weak_certificates(tmp_path_factory.mktemp("weak"))


def open_context(
    weak: Certificates, *, version: ssl.TLSVersion | None = None, shows: bool = False
) -> ssl.SSLContext:
    """What a client has that takes anything; only this version of the protocol, if given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_verify_locations(weak.authority)
    if version is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # old versions are what this is about
            context.minimum_version = context.maximum_version = version
    if shows:
        context.load_cert_chain(weak.client_certificate, weak.client_key)
    return context


def publishes(nsqd: NsqdProcess, context: ssl.SSLContext) -> bool:
    try:
        with TransportClient(nsqd.tcp_port) as client:
            client.upgrade(context)
            client.pub("orders", b"hello")
    except (OSError, Closed):
        return False
    return True


COMMANDS = ("nsqd", "nsqlookupd", "nsqadmin")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refusal_names_the_setting(weak, tmp_path, command):
    flags = {"nsqd": f"--data-path={tmp_path}", "nsqadmin": "--lookupd-http-address=127.0.0.1:1"}.get(
        command, ""
    )
    done = subprocess.run(
        [sys.executable, "-m", "nsq_apps", command, *weak.server_flags, *filter(None, [flags])],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert done.returncode == 2
    assert f"cannot use --tls-cert {weak.server_certificate}" in done.stderr
    assert "key too small" in done.stderr
    assert ADVICE in done.stderr


def test_short_keys_on_both_sides(make_nsqd, weak):
    verify = ("--tls-client-auth-policy=require-verify", f"--tls-root-ca-file={weak.authority}")
    nsqd = make_nsqd(*weak.nsqd_flags, *verify, OPEN)
    assert publishes(nsqd, open_context(weak, shows=True))
    assert not publishes(nsqd, open_context(weak))


def test_short_keys_where_any_certificate_is_taken(make_nsqd, weak):
    nsqd = make_nsqd(*weak.nsqd_flags, "--tls-client-auth-policy=require", OPEN)
    assert publishes(nsqd, open_context(weak, shows=True))
    assert publishes(nsqd, open_context(weak, shows=True, version=ssl.TLSVersion.TLSv1))


@pytest.mark.parametrize("policy", ["require-verify", "require"])
def test_a_weak_client_is_refused_and_the_log_names_the_setting(make_nsqd, weak, certificates, policy):
    """The server's certificate is strong; the client's is not. With `require` nobody looks who signed it."""
    root = f"--tls-root-ca-file={weak.authority}"
    nsqd = make_nsqd(*certificates.nsqd_flags, f"--tls-client-auth-policy={policy}", root)
    context = open_context(weak, shows=True)
    context.load_verify_locations(certificates.authority)
    taken = publishes(nsqd, context)
    if not taken:
        wait_until(lambda: ADVICE in nsqd.log_text(), what="the log to name the setting")
    nsqd = make_nsqd(*certificates.nsqd_flags, f"--tls-client-auth-policy={policy}", root, OPEN)
    assert publishes(nsqd, context)
    assert not taken or policy == "require"


def test_tls_1_0(make_nsqd, weak, certificates):
    context = open_context(certificates, version=ssl.TLSVersion.TLSv1)
    nsqd = make_nsqd(*certificates.nsqd_flags)
    assert not publishes(nsqd, context)
    wait_until(lambda: ADVICE in nsqd.log_text(), what="the log to name the setting")
    assert publishes(make_nsqd(*certificates.nsqd_flags, OPEN), context)
    old_and_weak = make_nsqd(*weak.nsqd_flags, OPEN, "--tls-min-version=tls1.0")
    assert publishes(old_and_weak, open_context(weak, version=ssl.TLSVersion.TLSv1))
    assert not publishes(make_nsqd(*certificates.nsqd_flags, OPEN, "--tls-min-version=tls1.2"), context)


def test_nsqd_registers_with_a_weak_nsqlookupd(make_nsqd, make_nsqlookupd, weak):
    lookupd = make_nsqlookupd(*weak.server_flags, OPEN)
    flags = (
        f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",
        "--lookupd-tls",
        f"--lookupd-tls-root-ca-file={weak.authority}",
    )
    refusing = make_nsqd(*flags)
    wait_until(lambda: ADVICE in refusing.log_text(), what="the log to name the setting")
    nsqd = make_nsqd(*flags, OPEN)
    nsqd.create("orders")
    wait_until(lambda: lookupd.lookup("orders"), what="nsqd to register")


def test_a_client_of_the_library(make_nsqd, weak):
    nsqd = make_nsqd(*weak.nsqd_flags, OPEN)
    files = {"tls_v1": True, "tls_root_ca_file": str(weak.authority)}
    address = f"127.0.0.1:{nsqd.tcp_port}"
    with Producer(address, tls_security_level=0, **files) as producer:
        producer.publish("orders", b"hello")
    assert nsqd.topic_stats("orders")["depth"] == 1  # type: ignore[index]
    with pytest.raises(Exception, match="tls_security_level,0"), Producer(address, **files) as producer:
        producer.publish("orders", b"hello")
