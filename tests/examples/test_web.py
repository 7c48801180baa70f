"""Examples of web applications, on real WSGI and ASGI servers, with requests that come at the same time."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlencode

import pytest

from tests.examples.conftest import BIN, EXAMPLES, Example
from tests.support.nsqd_process import REPOSITORY, wait_until
from tests.support.sweeps import sample, sampled

pytestmark = pytest.mark.ours

FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"content-type": "application/json"}
GUNICORN = (BIN / "gunicorn", "--bind=127.0.0.1:0", f"--chdir={EXAMPLES}", "--workers=2")


def listening(server: Example) -> int:
    """Return the port on which it listens."""
    return int(server.wait_for(r"(?:Listening at|running on):? http://127\.0\.0\.1:(\d+)")[1])


def request(
    port: int, path: str, body: str | None = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """Return the status and the text of the answer; a body makes it a POST."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=40)) as connection:
        connection.request("GET" if body is None else "POST", path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def post_at_the_same_time(port: int, path: str, bodies: list[str], headers: dict[str, str]) -> list[int]:
    with ThreadPoolExecutor(10) as pool:
        return list(pool.map(lambda body: request(port, path, body, headers)[0], bodies))


THREADS, GREENLETS = ("gthread", "--threads=8"), ("gevent",)


@pytest.mark.parametrize(
    "workers",
    sampled([[*THREADS], [*GREENLETS], [*GREENLETS, "--preload"]], [*GREENLETS]),
    ids=["threads", "gevent", "gevent-preload"],
)
def test_flask_publishes_in_a_request(nsqd, start, workers):
    pytest.importorskip("flask")
    pytest.importorskip("gunicorn")
    server = start(*GUNICORN, "--worker-class", *workers, "flask_app:app")
    port = listening(server)
    bodies = [json.dumps({"id": number}) for number in range(50)]
    assert post_at_the_same_time(port, "/orders", bodies, JSON) == [202] * 50
    assert nsqd.depth("orders") == 50
    assert server.end() == 0


def test_flask_answers_503_without_nsqd(nsqd, start):
    pytest.importorskip("flask")
    server = start(*GUNICORN, "--worker-class=gthread", "flask_app:app", NSQD_TCP_ADDRESS="127.0.0.1:1")
    assert request(listening(server), "/orders", "order")[0] == 503


@pytest.mark.parametrize("workers", sample([*THREADS], [*GREENLETS]), ids=["threads", "gevent"])
def test_django_runs_tasks_after_the_commit(nsqd, start, tmp_path, workers):
    pytest.importorskip("django")
    pytest.importorskip("gunicorn")
    project = {
        "DATABASE": str(tmp_path / "shop.db"),
        "DJANGO_SETTINGS_MODULE": "django_shop.settings",
        "PYTHONPATH": f"{EXAMPLES}:{REPOSITORY}",
    }
    assert start(BIN / "django-admin", "migrate", "--run-syncdb", **project).wait_for_end() == 0
    server = start(*GUNICORN, "--worker-class", *workers, "django_shop.wsgi", **project)
    port = listening(server)
    customers = ["ann", "ben", "no one", "eve"]
    bodies = [urlencode({"customer": customer}) for customer in customers]
    assert post_at_the_same_time(port, "/orders", bodies, FORM) == [202, 202, 400, 202]
    assert nsqd.depth("django-default") == 3
    worker = start(BIN / "django-admin", "nsq_worker", "--threads=4", **project)
    wait_until(lambda: request(port, "/orders")[1] == "3", 40, "the confirmations")
    worker.wait_for("confirmed the order of eve")
    wait_until(lambda: nsqd.depth("django-default", "workers") == 0, 40, "the finished messages")
    assert worker.end() == 0
    assert server.end() == 0


def test_fastapi_publishes_and_consumes(nsqd, start):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    server = start(BIN / "uvicorn", "--port=0", f"--app-dir={EXAMPLES}", "fastapi_app:app")
    port = listening(server)
    bodies = [json.dumps({"customer": customer, "amount": 5}) for customer in ["ann", "ben"] * 10]
    assert post_at_the_same_time(port, "/orders", bodies, JSON) == [202] * 20
    totals = {"ann": 50, "ben": 50}
    wait_until(lambda: json.loads(request(port, "/totals")[1]) == totals, 40, "the totals")
    assert server.end() == 0
    assert nsqd.depth("orders", "totals") == 0
