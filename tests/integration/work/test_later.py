"""Delays that are longer than nsqd takes, at any limits of nsqd."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from nsqd_py.client import BadClientOption, Consumer
from nsqd_py.work import App
from tests.support.aio_client import run_in_new_loop
from tests.support.nsqd_process import MakeNsqd, NsqdProcess

DELAY_S = 3.0
IN_TIME_S = 1.0

Publish = Callable[[App], None]


def by_delay(app: App) -> None:
    app.publish("orders", b"late", defer_s=DELAY_S)


def by_time(app: App) -> None:
    app.publish("orders", b"late", at=datetime.now(UTC) + timedelta(seconds=DELAY_S))


def in_a_loop(app: App) -> None:
    run_in_new_loop(app.publish_async("orders", b"late", defer_s=timedelta(seconds=DELAY_S)))


def app_of(nsqd: NsqdProcess, longest_defer_s: float) -> App:
    return App("shop", nsqd_tcp_addresses=f"127.0.0.1:{nsqd.tcp_port}", longest_defer_s=longest_defer_s)


@pytest.mark.parametrize("publish", [by_delay, by_time, in_a_loop])
@pytest.mark.parametrize(
    ("longest_s", "flags"),
    [
        (1.0, []),
        (1.0, ["--max-req-timeout=700ms"]),
        (0.25, ["--max-attempts=5"]),
        (10.0, []),  # deferred by nsqd
    ],
)
def test_it_arrives_in_time_with_a_plain_body(
    make_nsqd: MakeNsqd, publish: Publish, longest_s: float, flags: list[str]
) -> None:
    nsqd = make_nsqd(*flags)
    app = app_of(nsqd, longest_s)
    with app.start(), Consumer("orders", "billing", nsqd_tcp_addresses=app.addresses[0]) as consumer:
        earliest_s = time.time() + DELAY_S
        publish(app)
        latest_s = time.time() + DELAY_S + IN_TIME_S
        message = consumer.next(40)
        arrived_s = time.time()
        assert message is not None
        assert message.body == b"late"
        assert earliest_s - 0.01 < arrived_s < latest_s
        message.finish()
        assert consumer.next(0.5) is None
    app.close()
    assert not (nsqd.topic_stats("shop.later.dead") or {}).get("message_count")


def test_it_waits_while_no_process_of_the_app_runs(nsqd: NsqdProcess) -> None:
    app = app_of(nsqd, 0.5)
    app.publish("orders", b"late", defer_s=1)
    with app.start(), Consumer("orders", "billing", nsqd_tcp_addresses=app.addresses[0]) as consumer:
        message = consumer.next(40)
        assert message is not None
        message.finish()
    app.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_an_nsqd_with_a_lower_limit_is_an_error_that_names_the_remedy(
    make_nsqd: MakeNsqd, is_async: bool
) -> None:
    app = app_of(make_nsqd("--max-defer-timeout=1s"), 3600)
    with pytest.raises(BadClientOption, match=r"E_INVALID .*longest_defer_s=…\) its --max-defer-timeout"):
        if is_async:
            run_in_new_loop(app.publish_async("orders", b"late", defer_s=2))
        else:
            app.publish("orders", b"late", defer_s=2)
    app.publish("orders", b"soon", defer_s=1)  # the connection is there again
    app.close()


def test_a_time_without_a_zone_is_refused(nsqd: NsqdProcess) -> None:
    app = app_of(nsqd, 3600)
    with pytest.raises(BadClientOption, match="has no time zone: give one, as in"):
        app.publish("orders", b"late", at=datetime(2030, 1, 31, 8))
    with pytest.raises(BadClientOption, match="not both"):
        app.publish("orders", b"late", at=datetime.now(UTC), defer_s=1)
    app.close()
