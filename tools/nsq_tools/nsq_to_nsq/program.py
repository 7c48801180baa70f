"""The program nsq-to-nsq: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_tools.nsq_to_nsq.options import NsqToNsqOptions
from nsqd_py.settings.program import Program

PROGRAM = Program(
    "nsq_to_nsq",
    "nsq-to-nsq",
    "Publish every message of one or more topics to other nsqds. A message is finished only after its destination has "
    "stored it. If a destination fails, another one is tried; if all fail, the message is requeued and the consumer "
    "slows down. JSON messages can be filtered by a field, and reduced to some of their fields.",
    NsqToNsqOptions,
    examples=[
        (
            "Two topics of a cluster to an nsqd elsewhere",
            "nsq-to-nsq --lookupd-http-address=127.0.0.1:4161 "
            "--topic=clicks --topic=orders --destination-nsqd-tcp-address=10.0.0.1:4150",
            "run: until-command=\"curl -s '10.0.0.1:4151/stats?topic=orders' | grep 'msgs: [1-9]'\"",
        ),
        (
            "Only orders that were paid, to another topic",
            "nsq-to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=orders "
            "--destination-topic=paid --require-json-field=state --require-json-value=paid "
            "--destination-nsqd-tcp-address=127.0.0.1:4150",
            "run: until-command=\"curl -s '127.0.0.1:4151/stats?topic=paid' | grep 'msgs: [1-9]'\"",
        ),
    ],
)
