"""The optional features of nsqd, which the core does not know: the tables here name them.

A feature that the options and the data path do not ask for is not imported: the tables have dotted paths. Its settings are
in an `options.py` of its room, and `server/options.py` composes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqd_py.go_import import may_have_go_files
from nsqd_py.server.docking import Feature, Host, Part, Runner

if TYPE_CHECKING:
    from nsqd_py.server.options import NsqdOptions

_HEAD_OF_STORE = "head.json"

# Run instead of nsqd, and return the exit status. Called with the options.
COMMANDS = (
    Feature("nsqd_py.fsck.command:export_to_go", lambda options, _: options.export_to_go),
    Feature("nsqd_py.fsck.command:check_data", lambda options, _: options.check_data),
    Feature("nsqd_py.store.backup:run", lambda options, _: _has_backup_command(options)),
)
# Check the options, and return a warning, or "". Raise BadOptions. Called with the options.
CHECKS = (
    Feature("nsqd_py.standby.group:check_group", lambda options, _: _has_group(options)),
    Feature(
        "nsqd_py.store.backup:check_with_store", lambda options, _: options.store and options.restore_from
    ),
)
# Raise StartError: nsqd cannot serve this data path. Called with it.
REFUSALS = (
    Feature("nsqd_py.store.backup:refuse", lambda options, directory: _is_backup(options, directory)),
)
# Runs one nsqd after the other, and returns the exit status: a `Runner`.
RUNNERS = (Feature("nsqd_py.standby.part:serve_by_lease", lambda options, _: options.lease),)
# Subclasses of `Part`. Each call goes to them in this order.
PARTS = (
    Feature(
        "nsqd_py.standby.part:StandbyPart",
        lambda options, directory: _has_standbys_or_is_one(options, directory),
    ),
    Feature("nsqd_py.standby.part:LeasePart", lambda options, _: options.lease),
    Feature("nsqd_py.store.part:StorePart", lambda options, _: options.store),
    Feature(
        "nsqd_py.store.leaving:LeftStore", lambda options, directory: _has_left_store(options, directory)
    ),
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


def runner_of(options: NsqdOptions) -> Runner | None:
    """Return the runner of the nsqds with these options; None if each of them decides which one is next."""
    return next(_needed(RUNNERS, options), None)


def make_parts(host: Host) -> list[Part]:
    """Return the parts of an nsqd, which has locked its data path. Raises OSError."""
    return [make(host) for make in _needed(PARTS, host.broker.options)]


# ---- when nsqd needs them. The names of files are imported late, since gevent comes with them.


def _has_group(options: NsqdOptions) -> bool:
    is_member = options.accept_standbys or options.standby_acks or options.standby_of or options.lease
    return bool(is_member or options.standby_secret_file or options.standby_tls_allowed_names)


def _has_standbys_or_is_one(options: NsqdOptions, directory: Path) -> bool:
    from nsqd_py.broker.state_files import STANDBY_FILE

    is_primary = options.accept_standbys or options.standby_acks
    is_standby = options.standby_of or options.promote or (directory / STANDBY_FILE).exists()
    return bool(is_primary or is_standby or options.lease)


def _has_backup_command(options: NsqdOptions) -> bool:
    """True if nsqd makes or restores a backup instead of serving; with a store, it restores that, and serves."""
    return bool(options.backup_to or (options.restore_from and not options.store))


def _has_left_store(options: NsqdOptions, directory: Path) -> bool:
    """True if the data path was in a store, and nsqd is started without one."""
    from nsqd_py.broker.state_files import STORE_FILE

    return not options.store and os.path.exists(directory / STORE_FILE)


def _is_backup(options: NsqdOptions, directory: Path) -> bool:
    from nsqd_py.broker.state_files import BACKUP_FILE

    is_incomplete = os.path.exists(directory / BACKUP_FILE)  # False without permission, unlike `Path.exists`
    if is_incomplete and not options.store:
        return True
    return os.path.exists(directory / _HEAD_OF_STORE)
