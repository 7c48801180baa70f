"""nsq-to-http as a process: from a real nsqd to web servers that answer, refuse, hang, cut off and redirect."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from urllib.parse import unquote_plus

import pytest

from tests.support.ledger import compare
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import SOON, ToolProcess, numbered, publish, wait_until_all_are_done
from tests.support.web_server import CUT, HANG, OK, Asked, Reply, WebServer

# The state of a client in /stats that was asked to go.
CLOSING = 4

Start = Callable[..., ToolProcess]


@pytest.fixture
def nsqd(nsqd_without_topics) -> NsqdProcess:
    """Its topic t is new."""
    nsqd_without_topics.create("t", "nsq_to_http")
    return nsqd_without_topics


@pytest.fixture
def start(start, nsqd) -> Start:
    """`start(*flags)` makes the tool, on the topic t of the nsqd."""
    return partial(start, "nsq_to_http", "--topic=t", f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}", *SOON)


def in_turn(*replies: Reply) -> Callable[[Asked], Reply]:
    """These replies, and then OK."""
    given = iter(replies)
    return lambda _: next(given, OK)


# ---- what is sent


def test_every_message_is_posted_once(nsqd, start):
    bodies = [*numbered(300), b"\x00\xff\r\n\r\n", b"x" * 200_000]
    with WebServer() as web, start(f"--post={web.url}in?a=%s", "--n=10", "--header=X-Key: value: x") as tool:
        publish(nsqd, "t", *bodies)
        web.wait_until_asked(len(bodies))
        assert wait_until_all_are_done(nsqd) == 0
        compare(bodies, web.bodies()).require_sound()
        assert web.connection_count <= 10
        asked = web.asked[0]
        assert (asked.method, asked.target) == ("POST", "/in?a=%s")
        assert asked.headers == {
            "host": f"127.0.0.1:{web.port}",
            "user-agent": "nsq_to_http v1.3.0",
            "content-type": "application/octet-stream",
            "content-length": str(len(asked.body)),
            "x-key": "value: x",
        }
        assert tool.stop() == 0
        assert tool.output() == b""


def test_every_message_is_in_the_url_of_a_get(nsqd, start):
    bodies = [*numbered(50), bytes(range(256))]
    with WebServer() as web, start(f"--get={web.url}in?m=%s&x=1"):
        publish(nsqd, "t", *bodies)
        web.wait_until_asked(len(bodies))
        wait_until_all_are_done(nsqd)
        assert {asked.method for asked in web.asked} == {"GET"}
        targets = [asked.target.removeprefix("/in?m=").removesuffix("&x=1") for asked in web.asked]
        posted = [unquote_plus(target, "latin-1").encode("latin-1") for target in targets]
        compare(bodies, posted, at_least_once=True).require_sound()


def test_messages_are_found_by_nsqlookupd(make_nsqlookupd, make_nsqd, tmp_path):
    lookupd = make_nsqlookupd()
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
    nsqd.create("t", "nsq_to_http")
    source = f"--lookupd-http-address={lookupd.http_address}"
    flags = ["--topic=t", source, "--consumer-opt=lookupd_poll_interval,100ms"]
    with (
        WebServer() as web,
        ToolProcess("nsq_apps", "nsq_to_http", *flags, f"--post={web.url}", log_path=tmp_path / "log"),
    ):
        publish(nsqd, "t", b"found")
        web.wait_until_asked(1)
        assert web.bodies() == [b"found"]


def test_only_a_sample_is_sent_and_the_rest_is_finished(nsqd, start):
    with WebServer() as web, start(f"--post={web.url}", "--sample=0.2"):
        publish(nsqd, "t", *numbered(1000))
        assert wait_until_all_are_done(nsqd) == 0
        assert 100 < len(web.asked) < 320  # more than six standard deviations


# ---- what counts as done


@pytest.mark.parametrize("flag", ["post", "get"])
def test_2xx_only_counts_as_done(nsqd, start, flag):
    """Each status is answered to one message, at its first attempt."""
    statuses = [200, 201, 204, 299, 300, 304, 400, 404, 429, 500, 503, 301]
    seen = Counter()
    lock = threading.Lock()

    def reply(asked):
        body = asked.body or asked.target.rpartition("/")[2].encode()
        with lock:
            seen[body] += 1
            return Reply(int(body)) if seen[body] == 1 else OK

    with WebServer(reply) as web, start(f"--{flag}={web.url}{'%s' if flag == 'get' else ''}") as tool:
        publish(nsqd, "t", *(b"%d" % status for status in statuses))
        assert wait_until_all_are_done(nsqd) == 8
        assert seen == {b"%d" % status: 1 if 200 <= status < 300 else 2 for status in statuses}
        assert f"{web.url[:-1]}" in tool.log_text()
        assert "got status code 503; message" in tool.log_text()


def test_a_message_is_never_given_up(nsqd, start):
    with WebServer(in_turn(*[Reply(500)] * 12)) as web, start(f"--post={web.url}"):
        publish(nsqd, "t", b"again")
        assert wait_until_all_are_done(nsqd) == 12
        assert web.bodies() == [b"again"] * 13


# ---- which server


def test_all_means_each_of_them(nsqd, start):
    with WebServer() as one, WebServer(in_turn(Reply(500))) as two:
        with start(f"--post={one.url}", f"--post={two.url}", "--mode=all"):
            publish(nsqd, "t", *numbered(20))
            assert wait_until_all_are_done(nsqd) == 1
        for web in one, two:
            compare(numbered(20), web.bodies(), at_least_once=True).require_sound()
        # What one of them refused has come again, to both.
        assert (len(one.asked), len(two.asked)) == (21, 21)


def test_a_server_that_answers_with_errors_gets_fewer(nsqd, start):
    with WebServer() as good, WebServer(lambda _: Reply(500)) as bad:
        with start(f"--post={good.url}", f"--post={bad.url}", "--n=4"):
            publish(nsqd, "t", *numbered(100))
            wait_until_all_are_done(nsqd)
        compare(numbered(100), good.bodies(), at_least_once=True).require_sound()
        # One of each share of the four, before the first answer.
        assert 1 <= len(bad.asked) <= 2


def test_a_server_that_hangs_does_not_delay_the_others(nsqd, start):
    with WebServer() as good, WebServer(lambda _: HANG) as hung:
        with start(
            f"--post={good.url}", f"--post={hung.url}", "--n=10", "--http-client-request-timeout=2s"
        ) as tool:
            publish(nsqd, "t", *numbered(400))
            good.wait_until_asked(395)
            # Five hang, the share of one in two servers.
            assert "no answer" not in tool.log_text()
            assert wait_until_all_are_done(nsqd) == 0
            assert tool.log_text().count("no answer within 2s; trying") == len(hung.asked) == 5
        compare(numbered(400), good.bodies(), at_least_once=True).require_sound()


def test_what_is_cut_off_goes_elsewhere(nsqd, start):
    with WebServer() as good, WebServer(lambda _: CUT) as bad:
        with start(f"--post={good.url}", f"--post={bad.url}", "--mode=epsilon-greedy") as tool:
            publish(nsqd, "t", *numbered(100))
            assert wait_until_all_are_done(nsqd) == 0
        compare(numbered(100), good.bodies()).require_sound()
        assert "closed the connection without a response; trying" in tool.log_text()


def test_a_server_that_is_away_is_waited_for(nsqd, start):
    with WebServer() as web:
        port = web.port
    with start(f"--post=http://127.0.0.1:{port}/") as tool:
        publish(nsqd, "t", b"kept")
        tool.wait_for_log("Connection refused; message")
        stats = nsqd.channel_stats("t", "nsq_to_http")
        assert stats["depth"] + stats["in_flight_count"] + stats["deferred_count"] == 1


# ---- connections


def test_a_body_that_is_refused_before_it_is_read_is_an_answer(nsqd, start):
    with WebServer(in_turn(Reply(413, close=True))) as web, start(f"--post={web.url}") as tool:
        publish(nsqd, "t", b"x" * 900_000)
        assert wait_until_all_are_done(nsqd) == 1
        assert "got status code 413" in tool.log_text()


@pytest.mark.parametrize("trusts", [True, False])
def test_https_with_an_authority_of_ones_own(nsqd, start, certificates, trusts):
    flags = [f"--http-client-tls-root-ca-file={certificates.authority}"] if trusts else []
    with WebServer(tls=certificates.server_context()) as web, start(f"--post={web.url}", *flags) as tool:
        publish(nsqd, "t", b"secret")
        if trusts:
            wait_until_all_are_done(nsqd)
            assert web.bodies() == [b"secret"]
        else:
            tool.wait_for_log("certificate verify failed")
            assert web.bodies() == []


# ---- redirects


def test_a_post_follows_a_redirect_that_keeps_the_body(nsqd, start):
    with WebServer() as new, WebServer(lambda _: Reply(307, {"Location": f"{new.url}new"})) as old:
        with start(f"--post={old.url}", "--header=Authorization: mine"):
            publish(nsqd, "t", *numbered(10))
            assert wait_until_all_are_done(nsqd) == 0
        for web in new, old:
            compare(numbered(10), web.bodies(), at_least_once=True).require_sound()
        assert new.asked[0].target == "/new"


def test_a_redirect_that_would_drop_the_message_is_no_success(nsqd, start):
    with WebServer(in_turn(Reply(302, {"Location": "/elsewhere"}))) as web, start(f"--post={web.url}"):
        publish(nsqd, "t", b"kept")
        assert wait_until_all_are_done(nsqd) == 1
        assert [(asked.method, asked.target, asked.body) for asked in web.asked] == [
            ("POST", "/", b"kept")
        ] * 2


def test_redirects_in_a_circle_end(nsqd, start):
    def reply(asked):
        return Reply(302, {"Location": asked.target}) if len(web.asked) <= 11 else OK

    with WebServer(reply) as web, start(f"--get={web.url}%s") as tool:
        publish(nsqd, "t", b"round")
        assert wait_until_all_are_done(nsqd) == 1
        assert "stopped after 10 redirects; message" in tool.log_text()
        assert {asked.target for asked in web.asked} == {"/round"}


# ---- its end


def is_leaving(nsqd: NsqdProcess) -> bool:
    """Whether the consumer has asked for nothing more, and is there no less."""
    return [client["state"] for client in nsqd.channel_stats("t", "nsq_to_http")["clients"]] == [CLOSING]


@pytest.mark.parametrize("hangs", [False, True])
def test_at_sigterm_what_is_under_way_is_answered(nsqd, start, hangs):
    flags = "--n=5", "--max-in-flight=5", "--http-client-request-timeout=5m"
    with WebServer(lambda _: HANG) as web, start(f"--post={web.url}", *flags) as tool:
        publish(nsqd, "t", *numbered(20))
        web.wait_until_asked(5)
        tool.signal()
        wait_until(lambda: is_leaving(nsqd), what="the tool to leave")
        if not hangs:
            web.go_on()
        assert tool.wait() == 0
        stats = nsqd.wait_for_channel("t", "nsq_to_http", in_flight_count=0, client_count=0)
        assert len(web.asked) == 5
        left, requeued = (20, 5) if hangs else (15, 0)
        assert (stats["depth"], stats["timeout_count"], stats["requeue_count"]) == (left, 0, requeued)
