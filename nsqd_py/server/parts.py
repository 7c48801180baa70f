"""The parts of nsqd: optional features that the core does not know. The tables here name them.

A feature that the options and the data path do not ask for is not imported: the tables have dotted paths. Its settings are
in an `options.py` of its room, and `server/options.py` composes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nsqd_py.go_import import may_have_go_files

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker
    from nsqd_py.runtime.logs.daemon_log import Log
    from nsqd_py.runtime.systemd import Notifier
    from nsqd_py.server.options import NsqdOptions


class Feature(NamedTuple):
    """What a feature adds at one point: the module and the name of a function or class, and when nsqd needs it."""

    path: str
    is_needed: Callable[[NsqdOptions, Path], bool]

    def load(self) -> Any:
        module, name = self.path.split(":")
        return getattr(import_module(module), name)


# ---- when nsqd needs them. The names of files are imported late, since gevent comes with them.


def _has_group(options: NsqdOptions, _directory: Path) -> bool:
    is_member = options.accept_standbys or options.standby_acks or options.standby_of or options.lease
    return bool(is_member or options.standby_secret_file or options.standby_tls_allowed_names)


def _has_standbys_or_is_one(options: NsqdOptions, directory: Path) -> bool:
    from nsqd_py.broker.state_files import STANDBY_FILE

    is_primary = options.accept_standbys or options.standby_acks
    is_standby = options.standby_of or options.promote or (directory / STANDBY_FILE).exists()
    return bool(is_primary or is_standby or options.lease)


def _has_lease(options: NsqdOptions, _directory: Path) -> bool:
    return bool(options.lease)


def _is_backup(_options: NsqdOptions, directory: Path) -> bool:
    from nsqd_py.broker.state_files import BACKUP_FILE

    return os.path.exists(directory / BACKUP_FILE)  # False if nobody may look, unlike `Path.exists`


# ---- the tables

# Run instead of nsqd, and return the exit status. Called with the options.
COMMANDS = (
    Feature("nsqd_py.fsck.command:export_to_go", lambda options, _: bool(options.export_to_go)),
    Feature("nsqd_py.fsck.command:check_data", lambda options, _: bool(options.check_data)),
    Feature("nsqd_py.standby.backup:run", lambda options, _: bool(options.backup_to or options.restore_from)),
)
# Check the options, and return a warning, or "". Raise BadOptions. Called with the options.
CHECKS = (Feature("nsqd_py.standby.group:check_group", _has_group),)
# Raise StartError: nsqd cannot serve this data path. Called with it.
REFUSALS = (Feature("nsqd_py.standby.backup:refuse", _is_backup),)
# Runs one nsqd after the other, and returns the exit status: a `Runner`.
RUNNERS = (Feature("nsqd_py.standby.part:serve_by_lease", _has_lease),)
# Subclasses of `Part`. Each call goes to them in this order.
PARTS = (
    Feature("nsqd_py.standby.part:StandbyPart", _has_standbys_or_is_one),
    Feature("nsqd_py.standby.part:LeasePart", _has_lease),
    Feature("nsqd_py.go_import.part:GoImport", lambda _, directory: may_have_go_files(directory)),
)


def _needed(features: tuple[Feature, ...], options: NsqdOptions) -> Iterator[Any]:
    directory = Path(options.data_path or ".")
    for feature in features:
        if feature.is_needed(options, directory):
            yield feature.load()


def command_of(options: NsqdOptions) -> Callable[[NsqdOptions], int] | None:
    """Return the command that runs instead of nsqd, and returns the exit status; None to serve."""
    return next(_needed(COMMANDS, options), None)


def warnings_about(options: NsqdOptions) -> list[str]:
    """Check the options of the parts. Raises BadOptions."""
    warnings = [check(options) for check in _needed(CHECKS, options)]
    return [warning for warning in warnings if warning]


def check_data_path(options: NsqdOptions) -> None:
    """Raise StartError if the data path belongs to a feature, and nsqd must not serve it."""
    for refuse in _needed(REFUSALS, options):
        refuse(Path(options.data_path or "."))


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


def runner_of(options: NsqdOptions) -> Runner | None:
    """Return the runner of the nsqds with these options; None if each of them decides which one is next."""
    return next(_needed(RUNNERS, options), None)


# ---- parts


class StartsOver(Exception):
    """Another nsqd takes the place of this one, which has not begun to serve. The part has arranged that."""


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

    def take_place(self, options: NsqdOptions) -> None:
        """Let an nsqd with these options take the place of this one, on the same ports, after `yield_role`."""

    def yield_role(self) -> None:
        """End this nsqd, so that another one can take its place."""

    def cut_off(self, reason: str) -> None:
        """End serving at once. The system does not send later what a peer does not take now."""


class Part:
    """What a feature does in one nsqd. The methods are called in this order, at most once; they do nothing by default.

    After an nsqd that failed to start, the last ones are called too. Statistics, metrics and what TCP clients ask of it
    go through `broker.replication`.
    """

    def __init__(self, host: Host) -> None:
        self.host = host

    def take_role(self) -> None:
        """Decide about the role of this nsqd. If its `broker.replication` has a `refusal`, nothing is loaded.

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

    def answered(self) -> None:
        """Handle that the last answers have left."""

    def closed(self) -> None:
        """Handle that the topics are closed."""


def make_parts(host: Host) -> list[Part]:
    """Return the parts of an nsqd, which has locked its data path. Raises OSError."""
    return [make(host) for make in _needed(PARTS, host.broker.options)]
