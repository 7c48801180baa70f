"""Command lines of nsq-to-http."""

from __future__ import annotations

import pytest

from nsq_apps.tools import nsq_to_http as main
from nsq_tools.to_http.options import PROGRAM
from nsq_tools.to_http.requests import check, headers_of, make_requests

COMPLETE = ("--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--post=http://127.0.0.1:1/")


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--header=a"], "--header value format should be 'name: value'"),
        ([], "--topic and --channel are required"),
        (["--topic=t", "--channel="], "--topic and --channel are required"),
        (["--topic=t", "--content-type=x"], "--content-type only used with --post"),
        (["--topic=t", "--content-type=", "--post=x"], "--content-type requires a value when used"),
        (["--topic=t"], "--nsqd-tcp-address or --lookupd-http-address required"),
        ([*COMPLETE, "--lookupd-http-address=x"], "use --nsqd-tcp-address or --lookupd-http-address not both"),
        (COMPLETE[:2], "--get or --post required"),
        ([*COMPLETE, "--get=http://x/%s"], "use --get or --post not both"),
        ([*COMPLETE[:2], "--get=http://x/"], "invalid GET address"),
        ([*COMPLETE[:2], "--get=http://x/%s%s"], "invalid GET address"),
        ([*COMPLETE, "--sample=1.1"], "--sample must be between 0.0 and 1.0"),
        ([*COMPLETE, "--sample=nan"], "--sample must be between 0.0 and 1.0"),
        ([*COMPLETE, "--sample=x"], "expected a number"),
        ([*COMPLETE, "--n=0"], "--n must be at least 1"),
        ([*COMPLETE, "--mode=x"], "expected one of round-robin, hostpool, epsilon-greedy, all"),
        ([*COMPLETE, "--post=127.0.0.1:80"], "--post 127.0.0.1:80: a URL must begin with http:// or https://"),
        ([*COMPLETE, "--topic=a b"], "is not a valid name"),
        ([*COMPLETE, "--consumer-opt=x,1"], '--consumer-opt: there is no client option "x"'),
        ([*COMPLETE, "--http-client-tls-root-ca-file=/nowhere"], "No such file"),
        ([*COMPLETE, "--nsq"], "No such option '--nsq'"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_or_two(flags: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(flags)
    except SystemExit as ended:  # where a single flag is wrong
        assert isinstance(ended.code, int)
        status = ended.code
    assert status == 2
    output, complaint = capsys.readouterr()
    assert line in complaint
    assert complaint.count("\n") <= 2
    assert output == ""


def test_what_is_complete_is_taken() -> None:
    options = PROGRAM.read([*COMPLETE, "--header=a: b", "--post=https://x/y"])
    check(options)
    headers = headers_of(options)
    assert headers == {"User-Agent": "nsq_to_http v1.3.0", "Content-Type": "application/octet-stream", "a": "b"}
    assert list(make_requests(options, headers)) == ["http://127.0.0.1:1/", "https://x/y"]


def test_a_get_has_no_content_type() -> None:
    options = PROGRAM.read([*COMPLETE[:2], "--get=http://x/%s"])
    check(options)
    assert list(headers_of(options)) == ["User-Agent"]
