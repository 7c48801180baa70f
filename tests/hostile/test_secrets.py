"""Passwords and tokens in options: no program shows them, and they may come from files and the environment."""

from __future__ import annotations

import hashlib
import http.client
import logging
import re
import socket
import subprocess
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from nsq_apps.manual import _DAEMONS, programs
from nsqadmin_py.options import NSQADMIN
from nsqd_py.lease.store import parse_lease_url
from nsqd_py.runtime.logs.hidden import (
    hidden_path,
    hidden_spark_setting,
    hidden_url,
    hidden_value,
    without_logins,
)
from nsqd_py.server.options import NSQD
from nsqd_py.settings.declaration import BadOptions, Setting
from nsqd_py.settings.flags import config_warnings, shown_words
from nsqd_py.settings.program import Program
from tests.support.commands import runner
from tests.support.network import free_ports
from tests.support.nsqd_process import wait_until
from tests.support.secret_app import CANARY
from tests.support.sweeps import sampled
from tests.support.tool_process import ToolProcess
from tests.support.wire import auth

pytestmark = pytest.mark.ours

DAEMONS = [getattr(import_module(f"{package}.options"), name) for package, name, _ in _DAEMONS]
PROGRAMS: list[Program[Any]] = [*DAEMONS, *programs()]
LOGGING_TOOLS = [program for program in PROGRAMS if program.groups.get("Log")]
SECRETS = [(program, setting) for program in PROGRAMS for setting in program.settings if setting.kind.hide]
VALUES = (
    f"http://user:{CANARY}@127.0.0.1:1/path",
    f"http://{CANARY}@127.0.0.1:1",
    f"user:{CANARY}@127.0.0.1:1",
    f"http://127.0.0.1:1/path?token={CANARY}",
    f"etcd://user:{CANARY}@127.0.0.1:1,127.0.0.1:2/orders",
    f"http://user:a/b?{CANARY}@127.0.0.1:1/",
    f"http://user:{CANARY}@:port/",
)
NAMED = (f"auth_secret,{CANARY}", f"Authorization: Bearer {CANARY}", f"spark.secret.key={CANARY}", CANARY)

# Options whose names sound like secrets or addresses with logins, but that have none.
WITHOUT_SECRETS = re.compile(
    r".*-(file|cert|dir|format|method|policy|prefix|header|port)"
    r"|(http-client-|client-|lookupd-|lease-|standby-|)tls-key"  # names of files
    r"|(|.*-)(tcp|http|https|health|broadcast|statsd)-address|max-connections-per-address"  # host:port
    r"|content-type|conf(ig)?-?|acl-.*|http-client-token-host"
)
SUSPICIOUS = re.compile(
    r"pass|secret|token|key|auth|credential|login|ur[il]|endpoint|header|address|opt$|conf$|post|get$"
)
LISTS_OF_DAEMONS = {"lookupd-http-address", "nsqd-http-address"}


def _id(case: tuple[Program[Any], Setting]) -> str:
    return f"{case[0].command}--{case[1].name}"


def values_for(setting: Setting) -> tuple[str, ...]:
    return NAMED if setting.kind.hide is hidden_value else VALUES


# ---- the declarations


def test_an_option_that_sounds_like_a_secret_is_declared_as_one():
    open_ones = {
        f"{program.command} --{setting.name}"
        for program in PROGRAMS
        for setting in program.settings
        if "string" in setting.kind.word
        and setting.kind.hide is None
        and SUSPICIOUS.search(setting.name)
        and (setting.name in LISTS_OF_DAEMONS or not WITHOUT_SECRETS.fullmatch(setting.name))
    }
    assert not open_ones, "declare these as URL, WEBHOOK, URLS or NAMED_SECRETS, or list them here"


def test_the_name_of_a_file_that_has_a_secret_is_shown():
    (program,) = (program for program in PROGRAMS if program.command == "spark-replay")
    words = ["--conf=@/run/s3", "--producer-opt", "@/run/auth"]
    assert shown_words(words, program.settings) == words


@pytest.mark.parametrize("case", SECRETS, ids=_id)
def test_no_text_shows_a_secret(case):
    program, setting = case
    for value in values_for(setting):
        kept = (value,) if setting.kind.word.endswith("...") else value
        options = program.defaults(**{setting.attribute: kept})
        texts = [setting.kind.show(kept), options.without_secrets(f"cannot use {value}: {kept!r}")]
        if setting.key:
            texts.append(repr(options.by_config_key(setting.key)))
        for words in ([f"--{setting.name}={value}"], [f"-{setting.name}", value, "--version"]):
            texts.append(" ".join(shown_words(["python", *words], program.settings)))
        assert not [text for text in texts if CANARY in text]


@pytest.mark.parametrize(
    ("hide", "text", "shown"),
    [
        (hidden_url, "etcd://u:p@h:1,h:2/orders", "etcd://***@h:1,h:2/orders"),
        (hidden_url, "http://h/path?token=1#f", "http://h/path?***"),
        (hidden_url, "u:p@h:4161", "***@h:4161"),
        (hidden_url, "127.0.0.1:4161", "127.0.0.1:4161"),
        (hidden_path, "https://hooks.example.com/T0/B0/xyz", "https://hooks.example.com/***"),
        (hidden_path, "", ""),
        (hidden_spark_setting, "spark.executor.memory=4g", "spark.executor.memory=4g"),
        (
            hidden_spark_setting,
            "spark.hadoop.fs.s3a.endpoint=http://u:p@h:9000",
            "spark.hadoop.fs.s3a.endpoint=http://***@h:9000",
        ),
        (hidden_spark_setting, "spark.hadoop.fs.s3a.access.key=x", "spark.hadoop.fs.s3a.access.key=***"),
        (
            hidden_spark_setting,
            "spark.hadoop.fs.azure.account.key.a.net=x",
            "spark.hadoop.fs.azure.account.key.a.net=***",
        ),
        (
            hidden_spark_setting,
            "spark.hadoop.fs.s3a.aws.credentials.provider=org.Provider",
            "spark.hadoop.fs.s3a.aws.credentials.provider=org.Provider",
        ),
        (
            hidden_spark_setting,
            "spark.driver.extraJavaOptions=-Djavax.net.ssl.trustStorePassword=x",
            "spark.driver.extraJavaOptions=***",
        ),
        (hidden_value, "tls_v1,true", "tls_v1,***"),
        (hidden_value, "Authorization: Bearer x", "Authorization: ***"),
        (hidden_value, "x", "***"),
        (without_logins, "GET http://u:p@h/a@b and nsq://t@h", "GET http://***@h/a@b and nsq://***@h"),
    ],
)
def test_what_is_shown(hide, text, shown):
    assert hide(text) == shown


# ---- errors of a start


COMPLETE = {
    "nsqd": ("--data-path=/nowhere",),
    "nsqlookupd": (),
    "nsqadmin": ("--nsqd-http-address=127.0.0.1:1",),
    "nsq_tail": ("--topic=t",),
    "nsq_stat": ("--lookupd-http-address=127.0.0.1:1",),
    "nsq_to_file": ("--topic=t", "--output-dir=/nowhere"),
    "to_nsq": ("--topic=t", "--nsqd-tcp-address=127.0.0.1:1"),
    "nsq_to_http": ("--topic=t",),
    "nsq_to_nsq": ("--topic=t", "--destination-nsqd-tcp-address=127.0.0.1:1"),
    "nsq_worker": ("tests.support.secret_app:app",),
    "spark_replay": ("/nowhere", "--dry-run"),
    "spark_compact": ("/nowhere", "--output-dir=/nowhere/out"),
}


@pytest.fixture
def loud() -> Iterator[None]:
    """Let others log again: commands of Spark disable logging, which they have for themselves."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("loud")
@pytest.mark.parametrize("case", SECRETS, ids=_id)
def test_no_error_of_a_start_shows_a_secret(case, tmp_path, capfd):
    program, setting = case
    run = runner(capfd)
    is_named = setting.kind.hide is hidden_value
    bad = f"auth_secret={CANARY}" if is_named else f"http://user:{CANARY}@[bad:port/?token={CANARY}"
    config = tmp_path / "bad.yaml"
    config.write_text(f'{setting.key}: "{bad}\n  : [', "utf-8")
    for flags in ([f"--{setting.name}={bad}"], [f"--{setting.name}", bad], [f"--config={config}"]):
        ended = run(program.name, *COMPLETE[program.name], *flags)
        assert ended.returncode != 0
        assert ended.stderr
        assert CANARY not in ended.stdout + ended.stderr


# ---- running daemons


def test_a_running_nsqd_shows_no_secret(make_nsqd):
    address = f"http://user:{CANARY}@127.0.0.1:1/auth?key={CANARY}"
    without_scheme = f"--auth-http-address=user:{CANARY}@127.0.0.1:1"
    nsqd = make_nsqd("--auth-http-address", address, without_scheme, "--log-level=debug")
    with nsqd.connect() as client:
        client.ask(auth(f"secret-{CANARY}".encode()))
    assert nsqd.http("GET", "/config/auth_http_addresses").json() == [
        "http://***@127.0.0.1:1/auth?***",
        "***@127.0.0.1:1",
    ]
    paths = [
        "/config",
        "/info",
        "/stats",
        "/stats?format=json",
        "/metrics",
        "/debug/pprof/cmdline",
        "/debug/greenlets",
    ]
    shown = {path: nsqd.http("GET", path).text for path in paths} | {"log": nsqd.log_text()}
    assert "AUTH failed" in shown["log"]
    assert not [where for where, text in shown.items() if CANARY in text]


def test_a_waiting_nsqd_does_not_log_the_password_of_its_lease(tmp_path):
    lease = f"etcd://user:{CANARY}@127.0.0.1:1/orders"
    ports = (f"--tcp-address=127.0.0.1:{free_ports(1)[0]}", "--http-address=127.0.0.1:0")
    flags = (f"--data-path={tmp_path}", *ports, "--broadcast-address=127.0.0.1", f"--lease={lease}")
    with ToolProcess("nsq_apps.nsqd", *flags, log_path=tmp_path / "log") as nsqd:
        nsqd.wait_for_log("no answer from etcd")
        assert "etcd://***@127.0.0.1:1/orders" in nsqd.log_text()
        assert CANARY not in nsqd.log_text()


@pytest.mark.parametrize("with_nsqlookupd", sampled([False, True], True))
def test_nsqadmin_shows_no_secret(with_nsqlookupd, make_nsqd, make_nsqlookupd, make_nsqadmin, set_constants):
    set_constants("nsqadmin", {"nsqadmin_py.cluster.reports.BEGINS_AFTER_S": 0.5})
    nsqlookupd = make_nsqlookupd()
    registration = ("--broadcast-address=127.0.0.1", f"--lookupd-tcp-address=127.0.0.1:{nsqlookupd.tcp_port}")
    nsqd = make_nsqd(f"--auth-http-address=http://user:{CANARY}@127.0.0.1:1/", *registration)
    source = f"lookupd-http-address=user:{CANARY}@127.0.0.1:{nsqlookupd.http_port}"
    if not with_nsqlookupd:
        source = f"nsqd-http-address=user:{CANARY}@127.0.0.1:{nsqd.http_port}"
    address = f"127.0.0.1:{nsqd.http_port}"
    url = f"http://user:{CANARY}@127.0.0.1:1/{{}}?token={CANARY}"
    nsqadmin = make_nsqadmin(
        f"--{source}",
        f"--graphite-url={url.format('graphite')}",
        "--proxy-graphite",
        f"--notification-http-endpoint={url.format(CANARY)}",
        f"--attention-http-endpoint={url.format(CANARY)}",
        "--log-level=debug",
        "--history-file=",
    )
    nsqd.create("orders", "archive")
    wait_until(lambda: nsqadmin.http("GET", f"/api/v2/nodes/{address}").status == 200, what="the nsqd")
    nsqadmin.http("POST", "/api/topics/orders", b'{"action":"pause"}')
    nsqadmin.http("GET", "/api/graphite?metric=rate&target=x")
    wait_until(lambda: "failed to POST notification" in nsqadmin.log_text(), what="the notification")
    wait_until(lambda: "cannot POST to --attention-http-endpoint" in nsqadmin.log_text(), what="the report")
    keys = [setting.key for setting in NSQADMIN.settings if setting.key]
    views = ("session", "overview", "topics", "topics/orders", "attention", "nodes", "lookup", "audit")
    paths = [
        "/",
        f"/nodes/{address}",
        f"/api/v2/nodes/{address}",
        f"/api/nodes/{address}",
        "/metrics",
        "/api/topics",
        "/api/topics/orders",
        "/api/nodes",
        "/api/counter",
        "/render?target=x",
        *(f"/config/{key}" for key in keys),
        *(f"/api/v2/{view}" for view in views),
    ]
    shown = {path: nsqadmin.http("GET", path).text for path in paths} | {"log": nsqadmin.log_text()}
    assert not [where for where, text in shown.items() if CANARY in text]


@pytest.mark.parametrize("program", LOGGING_TOOLS, ids=lambda program: program.command)
def test_a_running_tool_logs_no_secret(program, tmp_path):
    known = {setting.name for setting in program.settings}
    lookupds = f"--lookupd-http-address=http://user:{CANARY}@127.0.0.1:1"
    flags = [lookupds] if "lookupd-http-address" in known else []
    flags += (
        [f"--post=http://user:{CANARY}@127.0.0.1:1/?{CANARY}", f"--header=A: {CANARY}"]
        if "post" in known
        else []
    )
    flags += [f"--{name}=auth_secret,{CANARY}" for name in ("consumer-opt", "producer-opt") if name in known]
    flags += ["--retry-timeout=1s"] if "retry-timeout" in known else []
    flags += [flag.replace("/nowhere", str(tmp_path)) for flag in COMPLETE[program.name]]
    log_path = tmp_path / "log"
    with ToolProcess(
        "nsq_apps", program.name, *flags, "--log-level=debug", log_path=log_path, stdin=subprocess.PIPE
    ) as tool:
        if tool.stdin is not None and "delimiter" in known:
            tool.stdin.write(b"message\n")
            tool.end_input()
        tool.wait_for_log("127.0.0.1:1")
        tool.signal()
        tool.wait()
        assert CANARY not in tool.log_text()


# ---- files and the environment


def test_an_option_may_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    secret, config = tmp_path / "secret", tmp_path / "nsqd.toml"
    secret.write_text("etcd://user:file@h/orders\n", "utf-8")
    assert NSQD.read([f"--lease=@{secret}"]).lease == "etcd://user:file@h/orders"
    config.write_text(f'lease = "@{secret}"\nauth_http_addresses = ["@{secret}"]\n', "utf-8")
    assert NSQD.read([f"--config={config}"]).lease == "etcd://user:file@h/orders"
    assert NSQD.read([f"--config={config}"]).auth_http_address == ("etcd://user:file@h/orders",)
    monkeypatch.setenv("NSQD_LEASE", "etcd://user:variable@h/orders")
    assert NSQD.read([f"--config={config}"]).lease == "etcd://user:variable@h/orders"
    assert NSQD.read(["--lease=etcd://h/flag"]).lease == "etcd://h/flag"
    monkeypatch.setenv("NSQD_LEASE_FILE", str(secret))
    with pytest.raises(BadOptions, match="NSQD_LEASE and NSQD_LEASE_FILE are both set"):
        NSQD.read([])
    monkeypatch.delenv("NSQD_LEASE")
    assert NSQD.read([]).lease == "etcd://user:file@h/orders"
    monkeypatch.setenv("NSQD_LEASE_FILE", "/no/such/file")
    with pytest.raises(BadOptions, match=r"NSQD_LEASE_FILE: cannot read /no/such/file: No such file"):
        NSQD.read([])


def test_a_list_in_the_environment_has_a_value_a_line(monkeypatch):
    monkeypatch.setenv("NSQADMIN_LOOKUPD_HTTP_ADDRESS", "user:a,b@a:1\nb:2")
    assert NSQADMIN.read([]).lookupd_http_address == ("user:a,b@a:1", "b:2")


def test_the_password_of_a_lease_may_come_from_a_file(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("p:w/@\n", "utf-8")
    assert parse_lease_url("etcd://user@h:1/orders", str(secret)).login == "user:p:w/@"
    for url in ("etcd://h:1/orders", "etcd://user:x@h:1/orders"):
        with pytest.raises(ValueError, match="a user and no password"):
            parse_lease_url(url, str(secret))


def test_a_config_file_with_a_secret_that_others_can_read_is_a_warning(tmp_path):
    config = tmp_path / "nsqd.toml"
    (tmp_path / "address").write_text("http://token@h/auth", "utf-8")
    lines = [
        'lease = "etcd://user:secret@127.0.0.1/orders"',
        f'auth_http_addresses = ["@{tmp_path}/address", "h:1"]',
    ]
    config.write_text("\n".join(lines), "utf-8")
    warning = "every user of this machine can read it, and lease has a secret: chmod 600"
    for mode, expected in ((0o644, [warning]), (0o600, [])):
        config.chmod(mode)
        assert config_warnings(str(config), NSQD.settings, {}) == expected


# ---- guessed tokens


def test_guesses_are_slowed_and_nothing_else_waits(make_nsqd, make_nsqadmin, tmp_path):
    accounts = tmp_path / "accounts"
    accounts.write_text(f"token:ci:{hashlib.sha256(b'right').hexdigest()}\n", "utf-8")
    nsqd = make_nsqd(f"--http-auth-file={accounts}")
    nsqadmin = make_nsqadmin(
        f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}", f"--http-auth-file={accounts}", "--history-file="
    )
    for port, path in ((nsqd.http_port, "/debug/greenlets"), (nsqadmin.http_port, "/api/topics")):
        guesses = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        for number, guess in enumerate(guesses):
            guess.sendall(
                f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {number}\r\n\r\n".encode()
            )
        other = http.client.HTTPConnection("127.0.0.1", port, source_address=("127.0.0.9", 0), timeout=40)
        other.request("GET", path, headers={"Authorization": "Bearer right"})
        assert other.getresponse().status == 200
        other.close()
        answers = [guess.recv(200).split(b" ")[1] for guess in guesses]
        assert set(answers) == {b"401", b"429"}
        for guess in guesses:
            guess.close()
    headers = {"Authorization": "Bearer right"}
    action = nsqadmin.http("POST", "/api/topics", b'{"topic":"orders"}', headers)
    assert action.status == 200, action
    assert 'by="token:ci"' in nsqadmin.log_text()
