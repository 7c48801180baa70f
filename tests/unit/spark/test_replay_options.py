"""What spark-replay makes of its command line, and what it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyarrow")

import nsq_spark.replay.checks as replay_checks
from nsq_apps.spark_replay import main
from nsq_spark.replay.job import Job, job_of, parse_conf
from nsq_spark.replay.options import PROGRAM
from nsqd_py.settings.declaration import Options

TO = "--nsqd-tcp-address=127.0.0.1:4150"
GOOD = ("/archive", "--yes", TO)
NOW_NS = 1_700_000_000 * 10**9


@pytest.fixture(autouse=True)
def _spark_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here starts it."""
    monkeypatch.setattr(replay_checks, "_PACKAGES", ("pyarrow",))


def read(*words: str) -> Options:
    return PROGRAM.read(["/archive", TO, *words])


def job(*words: str) -> Job:
    return job_of(read(*words), NOW_NS)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command that is wrong."""
    try:
        status = main(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    said = capsys.readouterr().err
    assert status == 2, said
    return said.splitlines()[0]


# ---- what is asked for


def test_plain_words_are_archives() -> None:
    options = PROGRAM.read(["/a", "--topic", "orders", "/b*", "--archive=/c", "-yes"])
    assert (options.archive, options.topic, options.yes) == (("/a", "/b*", "/c"), ("orders",), True)


def test_a_selection() -> None:
    found = job(
        "--topic=a",
        "--topic=b",
        "--topic-pattern=^c",
        "--start=-1h",
        "--end=1700000000",
        "--where=attempts > 1",
        "--limit=7",
        "--dedupe=body",
    ).selection
    wanted = found.requested
    assert (wanted.topics, wanted.topic_pattern) == (frozenset("ab"), "^c")
    assert (wanted.start_ns, wanted.end_ns) == (NOW_NS - 3600 * 10**9, NOW_NS)
    assert (found.start_text, found.end_text) == ("-1h", "1700000000")
    assert (found.where, found.limit, found.dedupe) == ("attempts > 1", 7, "body")


def test_a_destination() -> None:
    found = job(
        "--topic-map=a=x",
        "--topic-map=b=y",
        "--to-topic=z",
        "--defer=1m",
        "--producer-opt=tls_v1,true",
        "--producer-opt=auth_secret,s",
    ).destination
    assert [found.topic(name) for name in "abc"] == ["x", "y", "z"]
    assert (found.defer_s, found.nsqd_tcp_addresses) == (60, ("127.0.0.1:4150",))
    assert found.options.tls_v1 and found.options.auth_secret == "s"
    assert found.options.user_agent.startswith("spark_replay/")


@pytest.mark.parametrize(("text", "speed"), [("original", 1), ("2x", 2), ("0.5x", 0.5), ("max", None)])
def test_a_speed(text: str, speed: float | None) -> None:
    assert job(f"--speed={text}").speed == speed


def test_what_the_user_knows_of_the_files() -> None:
    hints = job("--format=lines", "--default-topic=t", "--topic-from-name=(?P<topic>x)").hints
    assert (hints.format, hints.topic, hints.topic_from_name) == ("lines", "t", "(?P<topic>x)")


def test_settings_of_hadoop_go_to_the_storage() -> None:
    words = ("--conf=spark.hadoop.fs.s3a.endpoint=http://h:9000", "--conf=spark.executor.memory=2g")
    assert job(*words).storage == {"fs.s3a.endpoint": "http://h:9000"}
    assert parse_conf(read(*words).conf)["spark.executor.memory"] == "2g"


def test_the_file_of_refused_messages_is_another_one_in_each_run() -> None:
    names = {job_of(read(), now_ns).refused_file for now_ns in (NOW_NS, NOW_NS + 1)}
    assert len(names) == 2
    assert job("--checkpoint=/checkpoint").refused_file == ""


# ---- what is refused


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((TO, "--yes"), "name an archive: spark-replay /path/of/files"),
        (("/archive", "--yes"), "--nsqd-tcp-address or --lookupd-http-address required"),
        (("/archive", "--yes", "--lookupd-http-address=h"), "--lookupd-http-address: h has no port"),
        (("/archive", "--yes", "--nsqd-tcp-address=nowhere"), "--nsqd-tcp-address: "),
        (("/archive", TO), "there is no terminal to ask on: --yes starts without asking"),
        ((*GOOD, "--lookupd-http-address=h:4161"), "use --nsqd-tcp-address or --lookupd-http"),
        ((*GOOD, "--producer-opt=tsl,1"), '--producer-opt: there is no client option "tsl"'),
        ((*GOOD, "--to-topic=a b"), "--to-topic 'a b' is not a valid name"),
        ((*GOOD, "--topic-map=ab"), "--topic-map must be old=new, where new is a valid topic name"),
        ((*GOOD, "--topic-map=a=!"), "--topic-map must be old=new, where new is a valid topic name"),
        ((*GOOD, "--topic-map=a=b", "--topic-map=a=c"), "--topic-map gives two names to 'a'"),
        ((*GOOD, "--start=yesterday"), '--start: "yesterday" is not a time'),
        ((*GOOD, "--start=-1h", "--end=-2h"), "--start '-1h' must be before --end '-2h'"),
        ((*GOOD, "--speed=2"), "--speed must be original, max, or a factor such as 2x, got '2'"),
        ((*GOOD, "--speed=0x"), "--speed must be original, max, or a factor such as 2x, got '0x'"),
        ((*GOOD, "--topic-pattern=("), "--topic-pattern '(' is not a regular expression"),
        ((*GOOD, "--json-schema=a INT"), "--json-schema gives the types of the fields in --where"),
        ((*GOOD, "--where=timestamp > NOW () - INTERVAL 1 HOUR"), "--where: NOW has another value each time"),
        ((*GOOD, "--where=x < current_date AND a = 'now()'"), "--where: current_date has another value"),
        ((*GOOD, "--limit=0"), "--limit must be at least 1"),
        ((*GOOD, "--rate=0"), "--rate must be at least 1"),
        ((*GOOD, "--give-up-after=1ms"), "--give-up-after must be at least 1s"),
        ((*GOOD, "--conf=x=1"), "--conf must be spark.name=value, got 'x=***'"),
        ((*GOOD, "--conf=spark.master=local"), "use --master in place of --conf spark.master"),
        ((*GOOD, "--report=/no/such/place"), "--report /no/such/place: cannot be written there"),
    ],
)
def test_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert refusal(capsys, *words).startswith(f"spark-replay: {reason}")


@pytest.mark.parametrize(
    "words", [("--dedupe=name",), ("--order=size",), ("--format=xml",), ("--no-such-flag",)]
)
def test_a_word_that_no_flag_knows(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert words[0].partition("=")[0].strip("-") in refusal(capsys, *GOOD, *words)


def test_without_spark_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_checks, "_PACKAGES", ("pyspark", "pyarrow", "pandas"))
    monkeypatch.setattr(replay_checks, "find_spec", lambda name: None)
    assert main([*GOOD]) == 1
    assert (
        capsys.readouterr().err
        == "spark-replay: it needs pyspark, pyarrow, pandas: pip install 'nsqd-py[spark]'\n"
    )


def test_its_help_needs_no_spark() -> None:
    """The pages of all tools are printed where only the core is installed."""
    heavy = ("pyspark", "pyarrow", "numpy", "gevent")
    code = f"import sys, nsq_spark.replay.options; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
