"""The contract between nsqd and its optional features: the moments of a part, and what it may ask of its nsqd."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker
    from nsqd_py.runtime.logs.daemon_log import Log
    from nsqd_py.runtime.systemd import Notifier
    from nsqd_py.server.options import NsqdOptions


class Feature(NamedTuple):
    """An addition of a feature at one point: the module and the name of a function or class, and when nsqd needs it."""

    path: str
    is_needed: Callable[[NsqdOptions, Path], object]

    def load(self) -> Any:
        module, name = self.path.split(":")
        return getattr(import_module(module), name)


class Runner(Protocol):
    """Decides which nsqds run, one after the other.

    shared       what parts keep from one of them to the next one, see `Host`
    make_server  returns an nsqd with these options
    """

    def __call__(
        self,
        options: NsqdOptions,
        log: Log,
        shared: dict[str, Any],
        make_server: Callable[[NsqdOptions], Any],
    ) -> int:
        """Run them, and return the exit status. Raises StartError."""


class StartsOver(Exception):
    """Another nsqd replaces this one, which has not begun to serve. The part has arranged that."""


class Host(Protocol):
    """The nsqd that a part belongs to.

    shared  what parts keep from one nsqd of this process to the next one, by name
    """

    broker: Broker
    notifier: Notifier
    shared: dict[str, Any]

    def on_progress(self) -> None:
        """Say that the start goes on, and end it if nsqd was asked to stop. Called between two steps of long work."""

    def end_if_asked(self) -> None:
        """End the start if nsqd was asked to stop."""

    def in_greenlet(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Run `work` in a greenlet that ends with nsqd."""

    def continue_as(self, options: NsqdOptions) -> None:
        """Let an nsqd with these options replace this one, on the same ports, after `yield_role`."""

    def yield_role(self) -> None:
        """End this nsqd, so that another one can replace it."""

    def cut_off(self, reason: str) -> None:
        """End serving at once. The system does not send later what a peer does not take now."""

    def fail(self) -> None:
        """End this nsqd, and the process with status 1. Call `cut_off` first if no answer may leave any more."""


class Part:
    """The work of a feature in one nsqd. The methods are called in this order, at most once; they do nothing by default.

    After an nsqd that failed to start, the last ones are called too. What TCP clients ask of the role of this nsqd goes
    through the `Replication` with which a part calls `broker.additions.take_role`; its statistics, notices and copies of logs
    through that, or through the `Addition` with which it calls `broker.additions.add`.
    """

    def __init__(self, host: Host) -> None:
        self.host = host

    def take_role(self) -> None:
        """Decide about the role of this nsqd. If its `broker.refusal` is set, nothing is loaded.

        Raises StartError and OSError.
        """

    def before_load(self) -> None:
        """Prepare the data path. Raises StartError and OSError."""

    def loaded(self) -> None:
        """Use the topics, which are loaded; no one publishes yet. Raises OSError and StartsOver."""

    def start(self) -> None:
        """Begin to work. The ports are open, but no connection is accepted yet. Raises OSError."""

    def serving(self) -> None:
        """Handle that connections are accepted from now on. It must not switch greenlets."""

    def started(self) -> None:
        """Begin what can wait until nsqd serves."""

    # ---- the end

    def leave_role(self) -> None:
        """End at once what the role allows. It is called first, if the process goes on with another nsqd."""

    def stop(self) -> None:
        """End the work. No connection is accepted any more, and the last answers have not left yet."""

    def last_readers(self) -> set[Any]:
        """Return the connections that stay open until `answered`, while those of publishers are closed."""
        return set()

    def answered(self) -> None:
        """Handle that the last answers have left."""

    def closed(self) -> None:
        """Handle that the topics are closed."""
