"""OPTIONS of the backend for django.tasks, and the names of queues. No Django is set up."""

from __future__ import annotations

import pytest

pytest.importorskip("django")

from nsqd_py.client.options import ClientOptions
from nsqd_py.django.options import BackendOptions, ResultPlace, queue_problem, queue_problems, read_options
from nsqd_py.work import Retry

ADDRESSES = {"nsqd_tcp_addresses": ["127.0.0.1:4150"]}


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({}, "prefix", "django-"),
        ({"nsqd_tcp_addresses": "nsq://a"}, "nsqd_tcp_addresses", ("a:4150",)),
        ({"lookupd_http_addresses": ["a:4161"]}, "lookupd_http_addresses", ("a:4161",)),
        ({"on_commit": True}, "on_commit", "default"),
        ({"on_commit": False}, "on_commit", ""),
        ({"on_commit": "orders"}, "on_commit", "orders"),
        ({"retry": {"attempts": 3}}, "retry", Retry(attempts=3)),
        ({"retry": Retry(attempts=3)}, "retry", Retry(attempts=3)),
        ({"results": "database"}, "results", ResultPlace("database")),
        ({"results": "cache"}, "results", ResultPlace("cache", "default")),
        ({"results": "cache:tasks"}, "results", ResultPlace("cache", "tasks")),
        ({"results": None}, "results", None),
        ({"client": {"snappy": True}}, "client", ClientOptions.of(snappy=True)),
    ],
)
def test_values(given, name, value):
    options, problems = read_options(ADDRESSES | given)
    assert problems == []
    assert getattr(options, name) == value


def test_each_problem_is_named_and_the_rest_is_read():
    options, problems = read_options(
        ADDRESSES | {"prefix": 7, "result": "cache", "channel": "a b", "results": "cache"}
    )
    assert [problem.text.partition(":")[0] for problem in problems] == [
        "OPTIONS['result'] is no option of nsqd_py.django.",
        "OPTIONS['prefix']",
        "OPTIONS['channel']",
    ]
    assert (options.prefix, options.results) == ("django-", ResultPlace("cache", "default"))


def test_addresses_of_the_environment_count(monkeypatch):
    monkeypatch.delenv("NSQD_TCP_ADDRESS", raising=False)
    monkeypatch.delenv("NSQLOOKUPD_HTTP_ADDRESS", raising=False)
    assert [problem.id for problem in read_options({})[1]] == ["nsqd_py.E001"]
    monkeypatch.setenv("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
    assert read_options({})[1] == []


@pytest.mark.parametrize("queue", ["default", "mails.urgent", "A-1_b", "x" * 52])
def test_queues_that_can_be_topics(queue):
    assert queue_problem(BackendOptions(), queue) == ""


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        ("a b", "'django-a b' may have letters"),
        ("mails#ephemeral", "may have letters"),
        ("é", "may have letters"),
        ("x" * 53, "has 60 characters; 59 leave room for its dead letters"),
        (7, "The name of a queue is a str, not int: 7."),
    ],
)
def test_queues_that_cannot_be_topics(queue, text):
    assert text in queue_problem(BackendOptions(), queue)


def test_a_queue_does_not_get_a_topic_of_the_app_itself():
    options, _ = read_options(ADDRESSES | {"prefix": "shop."})
    assert [problem.id for problem in queue_problems(options, {"later", "mails"})] == ["nsqd_py.E005"]


def test_equal_options_have_one_connection():
    """They are the key of the App that a process publishes through."""
    given = ADDRESSES | {"retry": {"attempts": 2}, "client": {"snappy": True}, "results": "cache"}
    assert len({read_options(given)[0], read_options(dict(given))[0]}) == 1
