"""Command lines of the tools that cannot be: one line says why."""

from __future__ import annotations

import re
import shlex
from types import ModuleType

import pytest

from nsq_apps import nsq_stat, nsq_tail, nsq_to_http, nsq_to_nsq, nsq_worker, to_nsq
from nsq_apps.manual import programs
from nsq_tools.nsq_to_nsq.forwarder import check as check_nsq_to_nsq
from nsq_tools.nsq_to_nsq.program import PROGRAM as NSQ_TO_NSQ
from nsq_tools.to_http.program import PROGRAM as TO_HTTP
from nsq_tools.to_http.requests import check as check_to_http
from nsq_tools.to_http.requests import headers_of, make_requests
from nsqd_py.settings.program import Program

TOPIC, SOURCE, DESTINATION = (
    "--topic=t",
    "--nsqd-tcp-address=127.0.0.1:1",
    "--destination-nsqd-tcp-address=127.0.0.1:2",
)
ITSELF = DESTINATION.replace(":2", ":1")
HTTP = (TOPIC, SOURCE, "--post=http://127.0.0.1:1/")
NSQ = (TOPIC, SOURCE, DESTINATION)
NSQD = "--nsqd-http-address=127.0.0.1:4151"
LINES = [
    (nsq_to_http, ["--header=a"], "--header value format should be 'name: value'"),
    (nsq_to_http, [], "--topic and --channel are required"),
    (nsq_to_http, [TOPIC, "--content-type=x"], "--content-type only used with --post"),
    (nsq_to_http, [TOPIC, "--content-type=", "--post=x"], "--content-type requires a value when used"),
    (nsq_to_http, [TOPIC, "--content-type=a\nb: c", "--post=x"], "--content-type has characters"),
    (nsq_to_http, [TOPIC], "--nsqd-tcp-address or --lookupd-http-address required"),
    (nsq_to_http, HTTP[:2], "--get or --post required"),
    (nsq_to_http, [*HTTP, "--get=http://x/%s"], "use --get or --post not both"),
    (nsq_to_http, [*HTTP[:2], "--get=http://x/"], "invalid GET address"),
    (nsq_to_http, [*HTTP[:2], "--get=http://x/%s%s"], "invalid GET address"),
    (nsq_to_http, [*HTTP, "--sample=1.1"], "--sample must be between 0.0 and 1.0"),
    (nsq_to_http, [*HTTP, "--sample=nan"], "--sample must be between 0.0 and 1.0"),
    (nsq_to_http, [*HTTP, "--sample=x"], "expected a number"),
    (nsq_to_http, [*HTTP, "--n=0"], "--n must be at least 1"),
    (nsq_to_http, [*HTTP, "--mode=x"], "expected one of round-robin, hostpool, epsilon-greedy, all"),
    (
        nsq_to_http,
        [*HTTP, "--post=127.0.0.1:80"],
        "--post 127.0.0.1:80: a URL must begin with http:// or https://",
    ),
    (nsq_to_http, [*HTTP, "--http-client-tls-root-ca-file=/nowhere"], "No such file"),
    (nsq_to_nsq, [TOPIC, "--channel="], "--topic and --channel are required"),
    (nsq_to_nsq, [TOPIC, "--topic=a b"], "--topic 'a b' is not a valid name"),
    (nsq_to_nsq, [TOPIC, "--destination-topic=a b"], "--destination-topic 'a b' is not a valid name"),
    (
        nsq_to_nsq,
        [*NSQ, "--lookupd-http-address=x:1"],
        "use --nsqd-tcp-address or --lookupd-http-address not both",
    ),
    (nsq_to_nsq, [TOPIC, SOURCE], "--destination-nsqd-tcp-address required"),
    (nsq_to_nsq, [TOPIC, SOURCE, "--destination-nsqd-tcp-address=x"], "--destination-nsqd-tcp-address: "),
    (nsq_to_nsq, [*NSQ, "--mode=all"], "expected one of round-robin, hostpool, epsilon-greedy"),
    (nsq_to_nsq, [*NSQ, "--require-json-value=1"], "--require-json-value needs --require-json-field"),
    (nsq_to_nsq, [*NSQ, "--producer-opt=x,1"], '--producer-opt: there is no client option "x"'),
    (nsq_to_nsq, [*NSQ, "--max-in-flight=0"], "--max-in-flight must be at least 1"),
    (nsq_to_nsq, [*NSQ, ITSELF], "from 127.0.0.1:1 to itself without end"),
    (nsq_to_nsq, [*NSQ, ITSELF, "--destination-topic=t"], "to itself without end"),
    (nsq_to_nsq, [*NSQ, "--nsq"], "No such option: --nsq"),
    (nsq_worker, [], "the app is missing: give its module and name, as in nsq-worker shop.work:app"),
    (nsq_worker, ["check"], "check: the app is missing"),
    (nsq_worker, ["shop.work"], "'shop.work' is neither an app, written as module:name"),
    (nsq_worker, ["shop:app", "--processes=0"], "--processes must be at least 1, got 0"),
    (nsq_worker, ["shop:app", "--health-address=8080"], '--health-address: "8080" has no port'),
    (nsq_worker, ["shop:app", "other"], "nothing may follow shop:app here, got 'other'"),
    (nsq_worker, ["run-once", "shop:app"], "run-once shop:app needs the name of one handler"),
    (
        nsq_worker,
        ["dead", "shop:app"],
        "dead must be followed by one of list, show, replay, discard, got 'shop:app'",
    ),
    (nsq_worker, ["dead", "replay", "shop:app"], "dead replay needs either ids of dead letters"),
    (nsq_worker, ["dead", "discard", "shop:app", "0" * 16, "--all"], "dead discard needs either ids"),
    (nsq_worker, ["dead", "show", "shop:app"], "dead show needs the ids of dead letters"),
    (nsq_worker, ["dead", "show", "shop:app", "x"], "'x' is not the id of a dead letter"),
    (nsq_worker, ["dead", "list", "shop:app", "--all"], "--all is for dead replay and dead discard"),
    (nsq_tail, [SOURCE], "--topic required"),
    (nsq_tail, [SOURCE, TOPIC, "--grep=("], "--grep: "),
    (nsq_tail, [SOURCE, TOPIC, "--pick=a"], "--pick: 'a' is not a path"),
    (nsq_tail, [SOURCE, TOPIC, "--pick=.a", "--jsonl"], "use --jsonl or --pick not both"),
    (nsq_tail, [SOURCE, TOPIC, "--channel=a b"], "--channel 'a b' is not a valid name"),
    (nsq_tail, [SOURCE, TOPIC, "--consumer-opt=nothing,1"], "--consumer-opt: "),
    (nsq_tail, [SOURCE, TOPIC, "--since=1m", "--last=2"], "use --since or --last not both"),
    (nsq_tail, [SOURCE, TOPIC, "--since=1m", "--channel=c"], "leave out --channel"),
    (nsq_tail, [SOURCE, TOPIC, "--topic=u#ephemeral", "--last=1"], "an ephemeral topic has none"),
    (nsq_tail, [SOURCE, TOPIC, "--last=-1"], "--last must not be negative"),
    (nsq_tail, [TOPIC, NSQD], "--nsqd-http-address is for --since and --last"),
    (to_nsq, [SOURCE], "--topic required"),
    (to_nsq, [TOPIC], "--nsqd-tcp-address required"),
    (to_nsq, [TOPIC, "--nsqd-tcp-address=nowhere"], '--nsqd-tcp-address: "nowhere" has no port'),
    (to_nsq, [SOURCE, "--topic=t t"], "--topic 't t' is not a valid name"),
    (to_nsq, [SOURCE, TOPIC, "--delimiter=ab"], "--delimiter must be a single byte"),
    (to_nsq, [SOURCE, TOPIC, "--producer-opt=nothing,1"], "--producer-opt: "),
    (to_nsq, [SOURCE, TOPIC, "--retry-timeout=5ms"], "--retry-timeout must be at least 1s"),
    (nsq_stat, [], "--nsqd-http-address or --lookupd-http-address required"),
    (
        nsq_stat,
        [NSQD, "--lookupd-http-address=x:1"],
        "use --nsqd-http-address or --lookupd-http-address not both",
    ),
    (
        nsq_stat,
        ["--lookupd-http-address=http://x:1"],
        "--lookupd-http-address error - address should not contain scheme",
    ),
    (nsq_stat, [NSQD, "-interval", "-2s"], "--interval must be positive"),
    (nsq_stat, [NSQD, "--count=0"], "--count must be at least 1, got 0"),
    (nsq_stat, [NSQD, "--once", "--count=1"], "use --once or --count not both"),
    (nsq_stat, [NSQD, "--sort=size"], "--sort: no column 'size'"),
    (nsq_stat, [NSQD, "--filter=/(/"], "--filter: /(/ is not a regular expression"),
]


@pytest.mark.parametrize(("command", "flags", "line"), LINES)
def test_what_cannot_be_is_said_in_a_line_or_two(
    command: ModuleType, flags: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = command.main(list(flags))
    except SystemExit as ended:  # where a single flag is wrong
        status = ended.code
    output, complaint = capsys.readouterr()
    assert (status, output) == (2, "")
    assert line in complaint
    assert complaint.count("\n") <= 2


@pytest.mark.parametrize(
    "flags", [(), (ITSELF, "--destination-topic=other"), ("--require-json-field=a", "--require-json-value=1")]
)
def test_what_nsq_to_nsq_takes(flags: tuple[str, ...]) -> None:
    check_nsq_to_nsq(NSQ_TO_NSQ.read([*NSQ, *flags]))


def test_what_nsq_to_http_takes() -> None:
    options = TO_HTTP.read([*HTTP, "--header=a: b", "--post=https://x/y"])
    check_to_http(options)
    headers = headers_of(options)
    assert headers == {
        "User-Agent": "nsq_to_http v1.3.0",
        "Content-Type": "application/octet-stream",
        "a": "b",
    }
    assert list(make_requests(options, headers)) == ["http://127.0.0.1:1/", "https://x/y"]
    assert list(headers_of(TO_HTTP.read([*HTTP[:2], "--get=http://x/%s"]))) == ["User-Agent"]


tools = pytest.mark.parametrize("program", list(programs()), ids=lambda program: program.command)


# --- what --help shows

VARIABLES = {"--nsqd-tcp-address": "NSQD_TCP_ADDRESS", "--lookupd-http-address": "NSQLOOKUPD_HTTP_ADDRESS"}
SHORT = {"--topic": "-t", "--channel": "-c", "--n": "-n"}


@tools
def test_help_begins_with_what_one_needs_and_names_short_flags_and_variables(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.read(["--help"])
    usage, common = re.sub(r"\s+", " ", capsys.readouterr().out).split(" This program: ")
    shown = {setting.name for setting in program.settings}
    for flag, letter in SHORT.items():
        if flag.removeprefix("--") in shown:
            assert f" {letter}, {flag} " in usage
    for flag, variable in VARIABLES.items():
        if flag.removeprefix("--") in shown:
            assert f"[env: {variable}]" in usage.partition(f" {flag} ")[2].partition(" --")[0]
    assert "--version" in common and "--version" not in usage


# --- the examples of each tool are understood


@tools
def test_its_examples_are_understood(program: Program) -> None:
    assert len(program.examples) >= 2
    for _, line, *_ in program.examples:
        words = shlex.split(line)
        start = words.index(program.command) + 1
        ends = [index for index, word in enumerate(words) if index >= start and word[0] in "|<>&"]
        assert program.read(words[start : min(ends, default=len(words))])
