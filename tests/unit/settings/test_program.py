"""--check-config and --print-config: what a start would say, without a start; and the settings in effect, as a file."""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nsq_apps.manual import programs
from nsqadmin_py.options import NSQADMIN
from nsqd_py.server.options import NSQD
from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.flags import effective_config
from nsqd_py.settings.kinds import ByTopic
from nsqd_py.settings.program import Program
from nsqlookupd_py.options import NSQLOOKUPD
from tests.support.commands import Run, runner

PROGRAMS = [NSQD, NSQLOOKUPD, NSQADMIN, *programs()]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.command)


def other_value(setting: Setting) -> Any:
    """A value that is not the default, and that is hard to write."""
    value = setting.default
    if setting.name == "tls-required":
        return setting.kind.parse("tcp-https")
    if setting.kind.choices:
        return setting.kind.join([setting.kind.parse(setting.kind.choices[-1])])
    match value:
        case bool():
            return not value
        case ByTopic():
            return ByTopic(value.otherwise, (("or*ers", type(value.otherwise)(17)), ("?x", value.otherwise)))
        case int() | None:
            return 1_234_567_890
        case float():
            return 0.25
        case tuple():
            return (
                (0.5, 0.25) if setting.usage.endswith("float,...") else ('a "b"', "c,\\d", "é\x7f\U0001f600")
            )
    return 'a "quoted" \\ tab\t, é\x7f\U0001f600\n'


@each_program
@pytest.mark.parametrize("changes", [False, True], ids=["defaults", "every setting"])
def test_what_is_printed_is_read_again(program: Program, changes: bool, tmp_path: Path) -> None:
    wanted = {s.attribute: other_value(s) for s in program.settings if changes and s.key and not s.kind.hide}
    options = program.defaults(**wanted)
    path = tmp_path / "printed.toml"
    path.write_text(effective_config(options), "utf-8")
    assert vars(program.read(["--config", str(path)])) == vars(options) | {"config": str(path)}
    printed = path.read_text("utf-8")
    shown = [one for one in program.settings if one.key and (changes or not one.hidden)]
    assert all(one.full_help in printed for one in shown)
    assert changes or not any(one.full_help in printed for one in program.hidden)


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capfd)


LOOKUPD = "--lookupd-http-address=http://user:pass4567@127.0.0.1:4161/?k=pass4567"
# A command line that each program accepts, with what must not be shown.
ACCEPTED = {
    "nsqd": ("--auth-http-address=user:pass4567@127.0.0.1:4180", "--msg-timeout=90s"),
    "nsqlookupd": ("--http-address=127.0.0.1:0",),
    "nsqadmin": (LOOKUPD, "--notification-http-endpoint=http://127.0.0.1/?key=pass4567"),
    "nsq_tail": (
        LOOKUPD,
        "--topic=orders",
        "--consumer-opt=auth_secret,pass4567",
        "--consumer-opt=msg_timeout,30s",
    ),
    "nsq_stat": ("--lookupd-http-address=127.0.0.1:4161",),
    "nsq_to_file": (LOOKUPD, "--topic=orders", "--output-dir=."),
    "nsq_to_http": (
        LOOKUPD,
        "--topic=orders",
        "--post=http://127.0.0.1/?key=pass4567",
        "--header=A: pass4567",
    ),
    "nsq_to_nsq": (LOOKUPD, "--topic=orders", "--destination-nsqd-tcp-address=127.0.0.1:4150"),
    "nsq_worker": ("shop.work:app", "--nsqd-http-address=http://user:pass4567@127.0.0.1:4151"),
    "to_nsq": ("--topic=orders", "--nsqd-tcp-address=127.0.0.1:4150", "--producer-opt=auth_secret,pass4567"),
    "spark_replay": (
        "--dry-run",
        "--topic=orders",
        "--conf=spark.hadoop.fs.s3a.secret.key=pass4567",
        "archive",
    ),
}


@pytest.mark.parametrize(("command", "flags"), ACCEPTED.items(), ids=ACCEPTED)
def test_what_is_accepted_is_printed_without_secrets_and_accepted_again(
    run: Run, command: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Nothing is written, and a port that is taken does not matter."""
    (tmp_path / "archive").mkdir()
    checked = run(command, *flags, "--check-config")
    assert (checked.returncode, checked.stdout.count("\n")) == (0, 1), checked.stderr
    printed = run(command, *flags, "--print-config")
    assert printed.returncode == 0, printed.stderr
    assert "pass4567" not in printed.stdout + printed.stderr + checked.stdout + checked.stderr
    assert ("***" in printed.stdout) == ("pass4567" in str(flags))
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    tomllib.loads(printed.stdout)
    (tmp_path / "again.toml").write_text(printed.stdout, "utf-8")
    words = [flag for flag in flags if not flag.startswith("--")]
    again = run(command, "--config=again.toml", *words, "--print-config")
    assert (again.returncode, again.stdout) == (0, printed.stdout), again.stderr


REFUSED = {
    "a flag that is wrong": ("nsqd", ("--msg-timeout=x",), "Invalid value"),
    "a value that a check refuses": ("nsqd", ("--max-connections=-1",), "--max-connections"),
    "a file that is not there": ("nsqd", ("--tls-cert=none.pem", "--tls-key=none.pem"), "none.pem"),
    "no data path": ("nsqd", ("--data-path=none",), "none"),
    "no directory of a socket": ("nsqd", ("--unix-socket=none/nsqd.sock",), "none is not a directory"),
    "standbys without a proof": ("nsqd", ("--accept-standbys",), "--standby-secret-file"),
    "one address twice": ("nsqd", ("--tcp-address=:4151",), "--tcp-address and --http-address are the same"),
    "an unknown key": ("nsqlookupd", ("--config=bad.toml",), 'unknown key "nonsense"'),
    "no source": ("nsqadmin", (), "required"),
    "no token": ("nsqadmin", ("--nsqd-http-address=a:1", "--http-client-token-file=none"), "none"),
    "no topic": ("nsq_tail", ("--nsqd-tcp-address=a:1",), "--topic required"),
}


@pytest.mark.parametrize(("command", "flags", "says"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("asked", ["--check-config", "--print-config"])
def test_what_a_start_refuses_is_refused(
    run: Run, command: str, flags: tuple[str, ...], says: str, asked: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text("nonsense = 1\n", "utf-8")
    refused = run(command, *flags, asked)
    assert (refused.returncode, refused.stdout) == (2, ""), refused.stderr
    assert says in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_running_nsqd_is_no_obstacle(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"--tcp-address=127.0.0.1:{taken.getsockname()[1]}"
        assert run("nsqd", address, "--check-config").returncode == 0
