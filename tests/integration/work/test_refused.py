"""What a worker does that nsqd refuses: it ends if that is for good, and otherwise waits and says so."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from nsqd_py.client import ClientOptions
from nsqd_py.work import App, ConsumerRefused
from tests.support.auth_server import EVERYTHING, AuthServer
from tests.support.certificates import Certificates
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.worker import Worker

pytestmark = pytest.mark.ours

HEALTH = "--health-address=127.0.0.1:0"
ONLY_MAILS = ("mails", (".*",), ("publish", "subscribe"))
# Both kinds of functions, in an app that sends a secret.
SECRET_APP = """
import os
from nsqd_py.client import ClientOptions
from nsqd_py.work import App

app = App("shop", nsqd_tcp_addresses=os.environ["SHOP_NSQD"], options=ClientOptions.of(auth_secret="sesame"))


@app.handler("orders", channel="billing")
def bill(order: dict) -> None:
    with open("notes", "a") as notes:
        notes.write("billed\\n")


@app.handler("mails")
async def mail(text: str) -> None:
    pass
"""


@pytest.fixture
def server() -> Iterator[AuthServer]:
    server = AuthServer()
    yield server
    server.close()


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd, server: AuthServer) -> NsqdProcess:
    return make_nsqd(f"--auth-http-address={server.address}")


def take(order: dict) -> None:
    """Handle a message."""


def test_a_permission_that_lacks_ends_the_worker_with_one_line(
    worker: Worker, nsqd: NsqdProcess, server: AuthServer
) -> None:
    server.grant(ONLY_MAILS)
    worker.write(SECRET_APP)
    worker.launch("--processes=2")
    assert worker.wait() == 1
    refused = [line for line in worker.log().splitlines() if "refused for good" in line]
    assert len(refused) == 1
    assert refused[0].endswith(
        f"shop.bill of orders/billing is refused for good: {nsqd.tcp_address}: E_UNAUTHORIZED AUTH failed for SUB on "
        '"orders" "billing": let the auth server permit this to the auth_secret of the app, or give another auth_secret'
    )
    assert "Traceback" not in worker.log()


def test_an_auth_server_that_refuses_or_is_away_is_waited_for(
    worker: Worker, nsqd: NsqdProcess, server: AuthServer
) -> None:
    """nsqd answers the same to both, so a client cannot know which it is."""
    server.refuse(403)
    worker.write(SECRET_APP)
    worker.start(HEALTH)
    says = f"shop.bill of orders/billing is refused: {nsqd.tcp_address}: nsqd refused the handshake: E_AUTH_FAILED AUTH failed\n"

    def is_refused() -> bool:
        status, body = worker.get("/readyz")
        return status == 503 and says in body

    wait_until(is_refused, what="the refusal in /readyz")
    assert worker.get("/healthz") == (200, "OK\n")
    server.wait_until_asked(21)  # for longer than what is for good
    assert worker.process.poll() is None
    assert worker.log().count("E_AUTH_FAILED") == 3  # of each handler, and of shop.later
    server.grant(EVERYTHING)
    wait_until(lambda: worker.get("/readyz") == (200, "OK\n"), what="the worker to be ready")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_run_raises_why_it_was_refused(nsqd: NsqdProcess, is_async: bool) -> None:
    app = App(nsqd_tcp_addresses=nsqd.tcp_address)

    def bill(order: dict) -> None: ...

    async def bill_async(order: dict) -> None: ...

    app.handler("orders", channel="billing")(bill_async if is_async else bill)
    with pytest.raises(ConsumerRefused, match=r"orders/billing is refused for good.*give auth_secret"):
        app.run()


def test_run_says_that_nsqd_takes_tls_only(make_nsqd: MakeNsqd, certificates: Certificates) -> None:
    nsqd = make_nsqd(*certificates.nsqd_flags, "--tls-required")
    app = App(nsqd_tcp_addresses=nsqd.tcp_address)
    app.handler("orders", channel="billing")(take)
    with pytest.raises(
        ConsumerRefused, match=r"orders/billing is .*TLS required\): give tls_v1=True in the options"
    ):
        app.run()


def test_schedules_that_are_refused_end_the_app(nsqd: NsqdProcess, server: AuthServer) -> None:
    server.grant(("work.due", (".*",), ("publish", "subscribe")), ("work.later", (".*",), ("subscribe",)))
    app = App(nsqd_tcp_addresses=nsqd.tcp_address, options=ClientOptions.of(auth_secret="sesame"))

    @app.every(hours=1)
    def clean() -> None: ...

    with pytest.raises(
        ConsumerRefused, match=r"work\.schedules/work, is refused for good: .* E_UNAUTHORIZED"
    ):
        app.run()


def test_one_nsqd_that_takes_the_consumer_is_enough(
    nsqd: NsqdProcess, server: AuthServer, make_nsqd: MakeNsqd
) -> None:
    server.grant(ONLY_MAILS)
    other = make_nsqd()
    options = ClientOptions.of(auth_secret="sesame")
    app = App(nsqd_tcp_addresses=[nsqd.tcp_address, other.tcp_address], options=options)
    app.handler("orders")(take)
    with app.start() as running:
        wait_until(lambda: running.stats()[0].connections == 1, what="a connection")
        asked = len(server.asked)
        server.wait_until_asked(asked + 14)  # for longer than what is for good
        assert not running.wait(0)
        assert running.failure is None
        assert running.stats()[0].refusals == ()
    app.close()
