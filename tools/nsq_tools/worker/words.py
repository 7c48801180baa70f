"""What the words of a command line ask for. Pure.

shop.work:app                       run the handlers
check shop.work:app                 check the app
run-once shop.work:app HANDLER      call one handler with standard input
dead list shop.work:app             list dead letters; show, replay and discard take their ids
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from nsqd_py.settings.declaration import BadOptions

RUN = "run"
CHECK = "check"
RUN_ONCE = "run-once"
DEAD = "dead"
LIST = "list"
SHOW = "show"
REPLAY = "replay"
DISCARD = "discard"
_DEAD_LETTERS = (LIST, SHOW, REPLAY, DISCARD)

_APP = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ID = re.compile(r"[0-9a-f]{16}")


class Task(NamedTuple):
    """What the command line asks for.

    verb  RUN, CHECK, RUN_ONCE or one of the verbs for dead letters
    app   `module:name`
    rest  the words after the app: a handler, or ids
    """

    verb: str
    app: str
    rest: tuple[str, ...]


def parse_words(words: Sequence[str], *, takes_all: bool = False) -> Task:
    """Return what the words ask for. `takes_all`: --all is given. Raises BadOptions."""
    verb, following = _verb_of(list(words))
    if not following:
        raise BadOptions(
            "the app is missing: give its module and name, as in nsq-worker shop.work:app"
            if not words
            else f"{' '.join(words)}: the app is missing, such as shop.work:app"
        )
    app = following[0]
    rest = tuple(following[1:])
    if _APP.fullmatch(app) is None:
        raise BadOptions(
            f"{app!r} is neither an app, written as module:name such as shop.work:app, nor check, run-once or dead"
        )
    _check_rest(verb, app, rest, takes_all=takes_all)
    return Task(verb, app, rest)


def _verb_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the verb and the words after it. Raises BadOptions."""
    first = words[0] if words else ""
    if first in (CHECK, RUN_ONCE):
        return first, words[1:]
    if first != DEAD:
        return RUN, words
    verb = words[1] if len(words) > 1 else ""
    if verb not in _DEAD_LETTERS:
        raise BadOptions(f"dead must be followed by one of {', '.join(_DEAD_LETTERS)}, got {verb!r}")
    return verb, words[2:]


def _check_rest(verb: str, app: str, rest: tuple[str, ...], *, takes_all: bool) -> None:
    """Check the words after the app. Raises BadOptions."""
    if verb == RUN_ONCE and len(rest) != 1:
        raise BadOptions(f"run-once {app} needs the name of one handler after the app, got {len(rest)}")
    if verb in (RUN, CHECK, LIST) and rest:
        raise BadOptions(f"nothing may follow {app} here, got {' '.join(rest)!r}")
    if takes_all and verb not in (REPLAY, DISCARD):
        raise BadOptions("--all is for dead replay and dead discard")
    if verb == SHOW and not rest:
        raise BadOptions("dead show needs the ids of dead letters after the app; dead list shows them")
    if verb in (REPLAY, DISCARD) and bool(rest) == takes_all:
        raise BadOptions(
            f"dead {verb} needs either ids of dead letters after the app, which dead list shows, or --all"
        )
    if verb in _DEAD_LETTERS:
        _check_ids(rest)


def _check_ids(ids: Sequence[str]) -> None:
    for each in ids:
        if _ID.fullmatch(each) is None:
            raise BadOptions(f"{each!r} is not the id of a dead letter: 16 of 0-9 a-f, as dead list shows it")
