"""Command lines of nsq-to-nsq."""

from __future__ import annotations

import pytest

from nsq_apps.tools import nsq_to_nsq as main
from nsq_tools.nsq_to_nsq.forwarder import check
from nsq_tools.nsq_to_nsq.options import PROGRAM

TOPIC, SOURCE, DESTINATION = "--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--destination-nsqd-tcp-address=127.0.0.1:2"
COMPLETE = (TOPIC, SOURCE, DESTINATION)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "--topic and --channel are required"),
        (["--topic=t", "--channel="], "--topic and --channel are required"),
        ([TOPIC, "--topic=a b"], "--topic 'a b' is not a valid name"),
        ([TOPIC, "--destination-topic=a b"], "--destination-topic 'a b' is not a valid name"),
        ([TOPIC, "--channel=a b"], "--channel 'a b' is not a valid name"),
        ([TOPIC], "--nsqd-tcp-address or --lookupd-http-address required"),
        ([*COMPLETE, "--lookupd-http-address=x:1"], "use --nsqd-tcp-address or --lookupd-http-address not both"),
        ([TOPIC, SOURCE], "--destination-nsqd-tcp-address required"),
        ([TOPIC, SOURCE, "--destination-nsqd-tcp-address=x"], "--destination-nsqd-tcp-address: "),
        ([*COMPLETE, "--mode=all"], "expected one of round-robin, hostpool, epsilon-greedy"),
        ([*COMPLETE, "--require-json-value=1"], "--require-json-value needs --require-json-field"),
        ([*COMPLETE, "--producer-opt=x,1"], '--producer-opt: there is no client option "x"'),
        ([*COMPLETE, "--consumer-opt=x,1"], '--consumer-opt: there is no client option "x"'),
        ([*COMPLETE, "--max-in-flight=0"], "--max-in-flight must be at least 1"),
        ([*COMPLETE, DESTINATION.replace(":2", ":1")], "from 127.0.0.1:1 to itself without end"),
        ([*COMPLETE, DESTINATION.replace(":2", ":1"), "--destination-topic=t"], "to itself without end"),
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


@pytest.mark.parametrize(
    "flags",
    [
        COMPLETE,
        (*COMPLETE, DESTINATION.replace(":2", ":1"), "--destination-topic=other"),
        (*COMPLETE, "--require-json-field=a", "--require-json-value=1", "--whitelist-json-field=b"),
    ],
)
def test_what_is_complete_is_taken(flags: tuple[str, ...]) -> None:
    check(PROGRAM.read(flags))
