"""What nsq-worker does besides running an app: check, run-once, dead list, show, replay, discard."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from nsqd_py.protocol.envelope import unwrap, wrap
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.worker import APP, Worker

pytestmark = pytest.mark.ours


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    return make_nsqd("--msg-timeout=2s")


# ---- check


def test_check_lists_the_handlers(worker: Worker) -> None:
    ended = worker.run("check", "shop:app")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout == b"orders/billing: shop.bill\nmails/shop: shop.mail\n"


def test_check_lists_the_schedules(worker: Worker) -> None:
    worker.write(f"{APP}\n\n@app.cron('0 7 * * *')\ndef tidy() -> None:\n    pass\n")
    ended = worker.run("check", "shop:app")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.endswith(b"mails/shop: shop.mail\nschedule: shop.tidy\n")


@pytest.mark.parametrize("name", ["my shop", "shop" * 14])
def test_check_refuses_the_name_of_an_app_that_makes_no_topic(worker: Worker, name: str) -> None:
    worker.write(APP.replace('App("shop"', f'App("{name}"'))
    ended = worker.run("check", "shop:app")
    assert ended.returncode == 1
    says = f"BadClientOption: App name {name!r} makes no topic such as {name}.schedules: give it "
    assert says.encode() in ended.stderr


def test_check_says_which_addresses_cannot_be_used(worker: Worker) -> None:
    worker.write(APP.replace("os.environ", '["127.0.0.1:1"], lookupd_http_addresses=["127.0.0.1:2"] or '))
    ended = worker.run("check", "shop:app")
    assert ended.returncode == 1
    first, second = ended.stderr.decode().splitlines()
    assert first.startswith("nsq-worker: nsqd 127.0.0.1:1 cannot be used: ")
    assert "127.0.0.1:2" in second
    assert "nsqlookupd cannot be used: " in second


def test_check_says_that_there_are_no_addresses(worker: Worker) -> None:
    worker.write(APP.replace('nsqd_tcp_addresses=os.environ["SHOP_NSQD"]', ""))
    ended = worker.run("check", "shop:app")
    assert ended.returncode == 1
    assert b"set NSQD_TCP_ADDRESS or NSQLOOKUPD_HTTP_ADDRESS\n" in ended.stderr


def test_check_says_that_a_declaration_is_wrong(worker: Worker) -> None:
    worker.write(APP.replace('"orders"', '"or ders"'))
    ended = worker.run("check", "shop:app")
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"nsq-worker: cannot import shop:app: ")
    assert b"handler shop.bill of topic or ders: " in ended.stderr
    line = 1 + APP.splitlines().index(
        '@app.handler("orders", channel="billing", concurrency=2, retry=Retry(attempts=1))'
    )
    assert f" (line {line} of {worker.folder}/shop.py)" in ended.stderr.decode()
    assert ended.stderr.count(b"\n") == 1


# ---- run-once

RESULTS = """
import asyncio, sys
from nsqd_py.work import App, Drop, Message, Requeue, Retry

app = App("shop")


@app.handler("orders", retry=Retry(attempts=2, first_s=7, jitter=0))
def add(order: dict) -> int:
    print("adding")
    return order["a"] + order["b"]


@app.handler("slow", time_limit_s=0.05)
async def slow(message: Message) -> None:
    await asyncio.sleep(60)


@app.handler("final", retry=Retry(attempts=1))
async def final(text: str) -> str:
    if text == "drop":
        raise Drop("not needed")
    if text == "later":
        raise Requeue(delay_s=3)
    if text == "exit":
        sys.exit(0)
    if text == "fail":
        raise ValueError("no")
    return text.upper()
"""


@pytest.mark.parametrize(
    ("handler", "body", "status", "says"),
    [
        ("add", b'{"a": 1, "b": 2}', 0, "shop.add returned 3"),
        ("shop.add", b'{"a": 1, "b": 2}', 0, "shop.add returned 3"),
        ("orders/shop", b'{"a": 1, "b": 2}', 0, "shop.add returned 3"),
        (
            "add",
            b'{"a": 1}',
            1,
            "nsq-worker: shop.add failed: KeyError: 'b'; a worker would call it again after 7 s",
        ),
        ("add", b"{", 1, "; a worker would make a dead letter of it"),
        ("final", b"yes", 0, "shop.final returned 'YES'"),
        (
            "final",
            b"fail",
            1,
            "nsq-worker: shop.final failed: ValueError: no; a worker would make a dead letter of it",
        ),
        ("final", b"drop", 0, "shop.final dropped the message: not needed"),
        ("final", b"later", 1, "; a worker would make a dead letter of it"),
        ("final", b"exit", 1, "and then end, with all its processes: raise an Exception instead"),
        ("slow", b"", 1, "took longer than its time_limit_s, 0.05; a worker would call it again after 1 s"),
        ("bill", b"", 1, "bill is no handler of the app; choose one of shop.add, shop.slow, shop.final"),
    ],
)
def test_run_once_calls_a_handler_with_standard_input(
    tmp_path: Path, handler: str, body: bytes, status: int, says: str
) -> None:
    ended = Worker(tmp_path, app=RESULTS).run("run-once", "shop:app", handler, stdin=body)
    error = ended.stderr.decode()
    assert ended.returncode == status, error
    assert error.splitlines()[-1].endswith(says), error
    assert ended.stdout == (b"adding\n" if handler != "bill" and b'"a"' in body else b"")


# ---- dead letters

WAYS = {"over HTTP": True, "by consuming": False}


def http(nsqd: NsqdProcess) -> str:
    return f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}"


def make_dead(worker: Worker, nsqd: NsqdProcess, *fails: str) -> list[str]:
    """Let handlers give up messages, and return the ids of the dead letters."""
    worker.start()
    for number, text in enumerate(fails):
        nsqd.pub("orders", b'{"id": %d, "fail": "%s"}' % (number, text.encode()))
        wait_until(partial(has_depth, nsqd, number + 1), what="the dead letter")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    listed = worker.run("dead", "list", "shop:app", http(nsqd))
    return [line.split("\t")[0] for line in listed.stdout.decode().splitlines()]


def has_depth(nsqd: NsqdProcess, expected: int) -> bool:
    return depth(nsqd) == expected


def depth(nsqd: NsqdProcess, topic: str = "orders.dead") -> int:
    """The messages that wait in a topic, or in its channel."""
    stats = nsqd.topic_stats(topic)
    if stats is None:
        return 0
    return stats["depth"] + sum(row["depth"] + row["in_flight_count"] for row in stats["channels"])


@pytest.mark.parametrize("is_over_http", WAYS.values(), ids=WAYS)
def test_list_and_show_leave_the_dead_letters_where_they_are(
    worker: Worker, nsqd: NsqdProcess, is_over_http: bool
) -> None:
    first, second = make_dead(worker, nsqd, "one", "two")
    flags = [http(nsqd)] if is_over_http else []
    for _ in range(2):
        listed = worker.run("dead", "list", "shop:app", *flags)
        assert listed.returncode == 0, listed.stderr
        rows = [line.split("\t") for line in listed.stdout.decode().splitlines()]
        assert [(row[0], row[1], *row[3:]) for row in sorted(rows)] == [
            (first, "orders.dead", "1", "shop.bill", "ValueError: one"),
            (second, "orders.dead", "1", "shop.bill", "ValueError: two"),
        ]
        assert (b"consuming" in listed.stderr or b"--nsqd-http-address" in listed.stderr) != is_over_http
    shown = worker.run("dead", "show", "shop:app", second, *flags)
    assert (shown.returncode, shown.stdout) == (0, b'{"id": 1, "fail": "two"}\n')
    assert b"error: ValueError: two\n" in shown.stderr
    assert b"channel: billing\n" in shown.stderr
    assert depth(nsqd) == 2
    channels = {row["channel_name"] for row in nsqd.topic_stats("orders.dead")["channels"]}
    assert channels == (set() if is_over_http else {"nsqadmin"})


def test_list_shows_the_newest(worker: Worker, nsqd: NsqdProcess) -> None:
    ids = make_dead(worker, nsqd, "one", "two", "three")
    listed = worker.run("dead", "list", "shop:app", "-n", "2", http(nsqd))
    assert [line.split("\t")[0] for line in listed.stdout.decode().splitlines()] == ids[1:]


@pytest.mark.parametrize("is_over_http", WAYS.values(), ids=WAYS)
def test_one_is_replayed_and_one_is_discarded(worker: Worker, nsqd: NsqdProcess, is_over_http: bool) -> None:
    first, second, third = make_dead(worker, nsqd, "one", "two", "three")
    flags = [http(nsqd)] if is_over_http else []
    replayed = worker.run("dead", "replay", "shop:app", second, *flags)
    assert replayed.returncode == 0, replayed.stderr
    assert b"replayed 1 dead letter\n" in replayed.stderr
    (again,) = nsqd.consume("orders", "billing", 1)
    assert again.body == b'{"id": 1, "fail": "two"}'
    assert (again.attempts, depth(nsqd)) == (1, 2)

    discarded = worker.run("dead", "discard", "shop:app", first, *flags)
    assert discarded.returncode == 0, discarded.stderr
    listed = worker.run("dead", "list", "shop:app", *flags)
    assert [line.split("\t")[0] for line in listed.stdout.decode().splitlines()] == [third]

    unknown = worker.run("dead", "discard", "shop:app", first, third, *flags)
    assert unknown.returncode == 1
    assert f"no such dead letter waits: {first}\n".encode() in unknown.stderr
    assert depth(nsqd) == 0


def test_all_are_replayed_and_those_that_die_again_are_left(worker: Worker, nsqd: NsqdProcess) -> None:
    make_dead(worker, nsqd, *map(str, range(20)))
    worker.start()
    replayed = worker.run("dead", "replay", "shop:app", "--all", http(nsqd))
    assert b"replayed 20 dead letters\n" in replayed.stderr
    wait_until(lambda: depth(nsqd) == 20, what="the dead letters of the second time")
    assert worker.notes().count("began 7") == 2


def test_messages_that_nsqd_moved_and_headers_of_other_programs(worker: Worker, nsqd: NsqdProcess) -> None:
    nsqd.pub(
        "orders.dead", b"plain", wrap(b"traced", {"traceparent": "00-1", "topic": "orders", "error": "E"})
    )
    replayed = worker.run("dead", "replay", "shop:app", "--all", http(nsqd))
    assert replayed.returncode == 0, replayed.stderr
    plain, traced = nsqd.consume("orders", "billing", 2)
    assert plain.body == b"plain"
    assert unwrap(traced.body) == (b"traced", {"traceparent": "00-1"})


def test_of_several_channels_one_must_be_chosen(worker: Worker, nsqd: NsqdProcess) -> None:
    nsqd.create("orders.dead", "a", "b")
    nsqd.pub("orders.dead", b"plain")
    refused = worker.run("dead", "discard", "shop:app", "--all", http(nsqd))
    assert refused.returncode == 1
    assert b"orders.dead has the channels a, b: choose one with --channel\n" in refused.stderr
    chosen = worker.run("dead", "discard", "shop:app", "--all", "--channel=a", http(nsqd))
    assert chosen.returncode == 0
    assert nsqd.is_empty("orders.dead", "a")
    assert not nsqd.is_empty("orders.dead", "b")


def test_a_replay_warns_of_other_channels_once_a_topic(worker: Worker, nsqd: NsqdProcess) -> None:
    nsqd.create("orders", "billing", "stock", "audit")
    known = {"topic": "orders", "channel": "billing"}
    nsqd.pub("orders.dead", *(wrap(b"%d" % number, known) for number in range(3)))
    replayed = worker.run("dead", "replay", "shop:app", "--all", http(nsqd))
    assert replayed.returncode == 0, replayed.stderr
    warnings = [line for line in replayed.stderr.splitlines() if b"all channels" in line]
    (warning,) = warnings
    assert warning.endswith(b"not only billing, whose dead letter it is, but also audit, stock")
    assert b"WARNING" in warning
    assert [message.body for message in nsqd.consume("orders", "stock", 3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("channels", "count"), [(["billing"], 0), (["billing", "stock"], 1)], ids=["one", "two"]
)
def test_a_replay_of_what_nsqd_moved_warns_of_several_channels(
    worker: Worker, nsqd: NsqdProcess, channels: list[str], count: int
) -> None:
    nsqd.create("orders", *channels)
    nsqd.pub("orders.dead", b"plain")
    replayed = worker.run("dead", "replay", "shop:app", "--all", http(nsqd))
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stderr.count(b"all channels of orders: billing, stock\n") == count
    assert replayed.stderr.count(b"WARNING") == count


def test_dead_letters_of_long_delays_and_schedules_are_listed(worker: Worker, nsqd: NsqdProcess) -> None:
    for topic in ("shop.later", "shop.due"):
        letter = wrap(b"", {"topic": topic, "error": "E", "attempts": "1", "handler": "h", "channel": "shop"})
        nsqd.pub(f"{topic}.dead", letter)
    listed = worker.run("dead", "list", "shop:app", http(nsqd))
    assert [line.split("\t")[1] for line in listed.stdout.decode().splitlines()] == [
        "shop.due.dead",
        "shop.later.dead",
    ]


def test_a_topic_without_dead_letters_is_not_created(worker: Worker, nsqd: NsqdProcess) -> None:
    for verb in ("list", "replay --all", "discard --all"):
        ended = worker.run("dead", verb.split()[0], "shop:app", *verb.split()[1:], http(nsqd))
        assert (ended.returncode, ended.stdout) == (0, b"")
    assert nsqd.topic_stats("orders.dead") is None


@pytest.mark.parametrize("verb", ["list", "replay --all", "discard --all"])
def test_without_an_nsqd_none_of_them_says_that_there_are_none(tmp_path: Path, verb: str) -> None:
    ended = Worker(tmp_path).run("dead", verb.split()[0], "shop:app", *verb.split()[1:])
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"no nsqd that has mails.dead can be reached; nsq-worker check says why\n" in ended.stderr


def test_a_replay_that_is_killed_loses_nothing(worker: Worker, nsqd: NsqdProcess) -> None:
    """Each message is in the topic or still a dead letter, wherever the kill came."""
    bodies = [b"message %d" % number for number in range(300)]
    for number in range(8):
        nsqd.pub("orders.dead", *bodies)
        command = [
            sys.executable,
            "-m",
            "nsq_apps.nsq_worker",
            "dead",
            "replay",
            "shop:app",
            "--all",
            http(nsqd),
        ]
        with subprocess.Popen(command, cwd=worker.folder, env=worker.environment) as replay:
            wait_until(lambda: nsqd.topic_stats("orders") is not None, what="the first replayed message")
            time.sleep(number * 0.003)
            replay.kill()
        found = {message.body for message in nsqd.consume_all("orders", "billing")}
        wait_until(
            lambda: nsqd.channel_stats("orders.dead", "nsqadmin")["in_flight_count"] == 0,
            what="the messages of the killed replay",
        )
        found |= {message.body for message in nsqd.consume_all("orders.dead", "nsqadmin")}
        assert found == set(bodies)
        nsqd.post("/topic/delete?topic=orders")
        nsqd.post("/topic/delete?topic=orders.dead")
