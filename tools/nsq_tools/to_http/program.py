"""The program nsq-to-http: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_tools.to_http.options import ToHttpOptions
from nsqd_py.settings.program import Program

PROGRAM = Program(
    "nsq_to_http",
    "nsq-to-http",
    "Send every message of a channel to HTTP servers, as the body of a POST or in the URL of a GET. A message is "
    "finished only after a 2xx response. Without a response, another address is tried; if that fails too, or after any "
    "other response, the message is requeued and the consumer slows down.",
    ToHttpOptions,
    examples=[
        (
            "POST each message",
            "nsq-to-http --topic=clicks --lookupd-http-address=127.0.0.1:4161 --post=http://127.0.0.1:8080/clicks",
            "run: until-command=\"grep 'POST 127.0.0.1:8080 /clicks' requests.log\"",
        ),
        (
            "One message in ten, in the URL of a GET",
            "nsq-to-http --topic=clicks --nsqd-tcp-address=127.0.0.1:4150 "
            "--sample=0.1 --get='http://127.0.0.1:8080/click?event=%s'",
            "run: until-command=\"grep 'GET 127.0.0.1:8080 /click?event' requests.log\"",
        ),
        (
            "With a token, over https",
            "nsq-to-http --topic=clicks --nsqd-tcp-address=127.0.0.1:4150 "
            "--header='Authorization: Bearer …' --content-type=application/json --post=https://api.example.com/clicks",
            "not run: needs a server with a certificate that everybody trusts",
        ),
    ],
)
