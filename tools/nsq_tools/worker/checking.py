"""nsq-worker check: what would keep the handlers of an app from work, for CI."""

from __future__ import annotations

from collections.abc import Iterator

from nsq_tools.worker.apps import load_app
from nsqd_py.client import Consumer, Producer
from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.access import HttpAccess, servers_in
from nsqd_py.cluster.admin_client import UpstreamError, shown_address
from nsqd_py.cluster.values import rows_in
from nsqd_py.protocol.outgoing import BadName
from nsqd_py.runtime.command import complain
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.settings.program import DONE, FAILED
from nsqd_py.work.app import App

# For each address.
_TIMEOUT_S = 5.0


def check_app(path: str) -> int:
    """Print each handler, and complain of each fault. Return the exit status. Raises ToolError without an app."""
    app = load_app(path)
    for handler in app.handlers:
        print(f"{handler.topic}/{handler.channel}: {handler.name}")
    for name in app.schedules:
        print(f"schedule: {name}")
    faults = list(_faults(app))
    for fault in faults:
        complain(f"nsq-worker: {fault}")
    return FAILED if faults else DONE


def _faults(app: App) -> Iterator[str]:
    """Yield a line for each fault."""
    try:
        nsqds, lookupds = app.addresses
    except NsqClientError as error:
        yield f"{error}: give it to the App, or set NSQD_TCP_ADDRESS or NSQLOOKUPD_HTTP_ADDRESS"
        return
    yield from _faults_of_clients(app)
    for nsqd in nsqds:
        yield from _faults_of_nsqd(app, nsqd)
    access = HttpAccess(
        app.client_settings["options"] or ClientOptions(), named=servers_in(lookupds), timeout_s=_TIMEOUT_S
    )
    for lookupd in lookupds:
        yield from _faults_of_lookupd(access, lookupd)


def _faults_of_clients(app: App) -> Iterator[str]:
    """Make what `App.start` makes: the handlers of the app itself, and all consumers. Nothing connects."""
    try:
        internal = app.internal_handlers(has_schedules=True)
    except NsqClientError as error:
        yield f"the schedules of {app.name} cannot be started: {error}"
        return
    for handler in [*app.handlers, *internal]:
        try:
            Consumer(
                handler.topic, handler.channel, max_in_flight=handler.max_in_flight, **app.client_settings
            )
        except (NsqClientError, BadName) as error:
            yield f"{handler.name} cannot be started: {error}"


def _faults_of_nsqd(app: App, address: str) -> Iterator[str]:
    """Connect with all settings of the app: TLS, its token."""
    own = {
        "nsqd_tcp_addresses": address,
        "lookupd_http_addresses": (),
        "log": Log(level=FATAL),
        "publish_timeout_s": _TIMEOUT_S,
    }
    try:
        with Producer(**app.client_settings | own) as producer:
            producer.ping()
    except NsqClientError as error:
        yield f"nsqd {address} cannot be used: {error}"


def _faults_of_lookupd(access: HttpAccess, address: str) -> Iterator[str]:
    try:
        producers = access.get(address, "/nodes")
    except UpstreamError as error:
        yield f"nsqlookupd cannot be used: {error}"
        return
    if not rows_in(producers, "producers"):
        yield f"nsqlookupd {shown_address(address)} knows no nsqd: nothing can be published"
