"""Settings from flags, config files and defaults."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nsqd_py.protocol import batch
from nsqd_py.settings.declaration import BadOptions, Options, setting
from nsqd_py.settings.kinds import choice
from nsqd_py.settings.program import LOG_LEVEL, Program, ProgramOptions
from nsqd_py.settings.types import BOOL, DURATION, FLOATS, INT, STRING, STRINGS
from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION, version_string

SECOND_NS = 1_000_000_000

MODE = choice({"fast": 1, "safe": 2}, word="mode")


class Flow(Options, title="Flow"):
    mem_queue_size: int = setting(INT, 10_000, "How many to keep.")
    msg_timeout_ns: int = setting(DURATION, 60 * SECOND_NS, "How long to wait.")
    snappy: bool = setting(BOOL, True, "Compress.")
    verbose: bool = setting(BOOL, False, "Talk.", config_key="", step_note="later")
    defer_ns: int = setting(DURATION, 0, "Defer.")
    old_size: int = setting(INT, 7, "An older size.", hidden=True)


class Topics(Options):
    topic: str = setting(
        STRING, "", "Its name.", check=lambda name: "must be without @" if "@" in name else None, short="t"
    )
    percentile: tuple[float, ...] = setting(FLOATS, (), "Which.")


class Names(Topics, title="Names"):
    lookupd_tcp_address: tuple[str, ...] = setting(STRINGS, (), "Whom to ask.", config_key="lookups")
    percentile: tuple[float, ...] = setting(FLOATS, (0.5,), "Which ones.")
    log_level: int = setting(LOG_LEVEL, 2, "How loud.")
    mode: int = setting(MODE, 2, "How.", default_text="what is best")


class PumpOptions(ProgramOptions, Flow, Names):
    pass


PUMP = Program("pump", "pump-py", "Pumps.", PumpOptions, removed={"old-mode": "use --mode"})


def read(*argv: str) -> PumpOptions:
    return PUMP.read(argv)


WriteConfig = Callable[..., str]


@pytest.fixture
def config(tmp_path: Path) -> WriteConfig:
    def write(text: str, name: str = "pump.cfg") -> str:
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return str(path)

    return write


# --- flags


WRONG_FLAGS = [
    (["-no-such-flag"], "No such option: -no-such-flag"),
    (["--no-such-flag=1"], "No such option: --no-such-flag"),
    (["-V"], "No such option: -V"),
    (["--topics=x"], "No such option: --topics (did you mean --topic?)"),
    (["-old-mode=1"], "--old-mode was removed: use --mode"),
    (["---topic=x"], "No such option"),
    (["--=x"], "No such option"),
    (["--topic"], "Option --topic requires an argument."),
    (["-t"], "Option --topic requires an argument."),
    (["-t", "--snappy"], "-t requires an argument, and the next word is the flag --snappy"),
    (["--topic", "--snappy=false"], "--topic requires an argument, and the next word is the flag --snappy"),
    (["--snappy", "false"], "unexpected extra argument (false)"),
    (["topic"], "unexpected extra argument (topic)"),
    (["--", "--topic=x"], "unexpected extra argument (--topic=x)"),
    (["-"], "unexpected extra argument (-)"),
]


@pytest.mark.parametrize(("argv", "complaint"), WRONG_FLAGS, ids=lambda case: str(case))
def test_a_wrong_command_line_ends_with_2_and_says_where_help_is(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        read(*argv)
    out, err = capsys.readouterr()
    assert (end.value.code, out, len(err.splitlines())) == (2, "", 2)
    assert complaint in err.splitlines()[0].replace("'", "")
    assert "pump-py --help" in err.splitlines()[1]


def test_a_short_flag_is_another_name() -> None:
    assert [read(*words).topic for words in (("-t", "x"), ("-t=x",), ("--topic", "x"))] == ["x"] * 3
    assert [read("-t", value).topic for value in ("-x", "-t")] == ["-x", "-t"]


def test_help_begins_with_the_flags_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    shown = capsys.readouterr().out
    titles = [line for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == ["Flow:", "Names:", "This program:"]
    assert "-t, --topic string" in shown


def test_a_hidden_flag_is_read_and_not_listed(
    capsys: pytest.CaptureFixture[str], config: WriteConfig
) -> None:
    assert (read().old_size, read("--old-size=9").old_size) == (7, 9)
    assert read("--config", config("old_size = 8")).old_size == 8
    with pytest.raises(SystemExit):
        read("--help")
    shown = capsys.readouterr().out
    assert "--mem-queue-size" in shown
    assert "old-size" not in shown


WRONG_VALUES = [
    ("--mem-queue-size=many", "expected a whole number"),
    ("--mem-queue-size=1.5", "expected a whole number"),
    ("--mem-queue-size=", "expected a whole number"),
    ("--mem-queue-size=9223372036854775808", "out of range"),
    ("--msg-timeout=60", "is not a duration"),
    ("--snappy=maybe", "expected true or false"),
    ("--percentile=0.5,x", "expected numbers"),
    ("--log-level=loud", "expected one of debug, info, warn, error, fatal"),
    ("--mode=slow", "expected one of fast, safe"),
]


@pytest.mark.parametrize(("flag", "complaint"), WRONG_VALUES)
def test_a_wrong_value_ends_with_2_and_one_line(
    flag: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        read(flag)
    out, err = capsys.readouterr()
    name, _, value = flag.removeprefix("--").partition("=")
    assert (end.value.code, out) == (2, "")
    assert err.startswith(f"Invalid value for '--{name}': \"{value}\": ")
    assert complaint in err
    assert err.count("\n") == 1


def test_the_version_names_the_release_of_nsq_and_that_of_this_project() -> None:
    """In Go's form `nsqd v1.3.0 (built w/go1.21.5)`, for scripts that read that."""
    python = ".".join(map(str, sys.version_info[:3]))
    # As clients' tests parse it.
    assert re.fullmatch(r"pump v[0-9.]+ \(built w/[a-z0-9.-]+\)", version_string("pump"))
    compiled = "-compiled" if batch.__file__.endswith(".so") else ""
    assert (
        version_string("pump")
        == f"pump v{NSQ_VERSION} (built w/nsqd-py-{PROJECT_VERSION}-python{python}{compiled})"
    )


# --- config files


def test_a_flag_goes_before_the_file_and_the_file_before_the_default(config: WriteConfig) -> None:
    path = config('mem_queue_size = 5\nmsg_timeout = "5s"\nlookups = ["a:1"]')
    options = read("--config", path, "--mem-queue-size=7", "--lookupd-tcp-address=b:2")
    assert (options.mem_queue_size, options.msg_timeout_ns, options.snappy) == (7, 5 * SECOND_NS, True)
    assert options.lookupd_tcp_address == ("b:2",)


WRONG_FILES = [
    ("mem_queue_sise = 5", 'unknown key "mem_queue_sise" (did you mean mem_queue_size?)'),
    ("old_mode = 1", '"old_mode" was removed: use --mode'),
    ('config = "x"', 'unknown key "config"'),
    ('mem_queue_size = "many"', "invalid value 'many' for \"mem_queue_size\": expected a whole number"),
    ("mem_queue_size = true", '"mem_queue_size": expected a whole number'),
    ("mem_queue_size = 1.0", '"mem_queue_size": expected a whole number'),
    ("mem_queue_size = 9223372036854775808", '"mem_queue_size": the number is out of range'),
    ("msg_timeout = 1.5", '"msg_timeout": expected a duration'),
    ("msg_timeout = true", '"msg_timeout": expected a duration'),
    ('msg_timeout = "5"', "is not a duration"),
    ("snappy = 0", '"snappy": expected true or false'),
    ("topic = 5", '"topic": expected a string'),
    ("lookups = [1]", '"lookups": expected a list of strings'),
    ("percentile = 0.5", '"percentile": expected a list of numbers'),
    ("percentile = [true]", '"percentile": expected a list of numbers'),
    ("log_level = 2", '"log_level": expected one of debug'),
    ('mode = "slow"', '"mode": expected one of fast, safe'),
    ("mode = 1", '"mode": expected one of fast, safe'),
    ("mem_queue_size 5", "failed to load config file"),
    pytest.param("topic = " + "[" * 5000, "values in too many lists or tables", id="deep"),
    ("[flow]\nmem_queue_size = 5", 'unknown key "flow"'),
]


@pytest.mark.parametrize(("text", "complaint"), WRONG_FILES)
def test_a_wrong_file_is_refused_by_name(config: WriteConfig, text: str, complaint: str) -> None:
    path = config(text)
    with pytest.raises(BadOptions) as error:
        read("--config", path)
    assert path in str(error.value)
    assert complaint in str(error.value)


def test_a_missing_ambiguous_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match="/nonexistent/pump.cfg - No such file"):
        read("--config=/nonexistent/pump.cfg")
    for name, text, complaint in (
        (
            "twice.YAML",
            "topic: a\nmode: fast\nmode: safe\n",
            ' - the key "mode" is there twice (at line 3, column 1)',
        ),
        (
            "minutes.yml",
            "msg_timeout: 1:30\n",
            ': invalid value \'1:30\' for "msg_timeout": "1:30" is not a duration',
        ),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(BadOptions, match=re.escape(name + complaint)):
            read(f"--config={tmp_path}/{name}")
    (tmp_path / "binary.cfg").write_bytes(b"\xff\xfe")
    with pytest.raises(BadOptions, match="binary.cfg - .*decode"):
        read(f"--config={tmp_path / 'binary.cfg'}")


# --- the options object


def test_by_config_key() -> None:
    options = read("--lookupd-tcp-address=a:1", "--msg-timeout=5s")
    assert options.by_config_key("lookups") == ("a:1",)
    assert options.by_config_key("msg_timeout") == 5 * SECOND_NS
    options.log_level = 4
    assert options.by_config_key("log_level") == 4
    for key in ("lookupd_tcp_address", "msg_timeout_ns", "msg-timeout", "verbose", "version", "config", ""):
        with pytest.raises(KeyError):
            options.by_config_key(key)


def test_checks_are_asked() -> None:
    PUMP.defaults(topic="a").check_values()
    with pytest.raises(BadOptions, match='^--topic must be without @, got "a@b"$'):
        PUMP.defaults(topic="a@b").check_values()


def test_a_group_overrides_a_setting_of_its_base() -> None:
    assert read().percentile == (0.5,)
    assert Topics().percentile == ()
