"""The commands that go on with a replay, as texts to paste into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from nsq_spark.replay.options import ReplayOptions
from nsq_spark.replay.summary import Outcome, count_text
from nsqd_py.runtime.hidden import HIDDEN

# The flags that a command needs to send other messages to the same nsqds: those of two groups, and some more.
_SENDING_GROUPS = ("Destination", "Spark")
_SENDING_FLAGS = ("yes", "give-up-after")


def command_line(words: Iterable[str]) -> str:
    """Return words to paste into a shell."""
    line = shlex.join(["spark-replay", *words])
    return f"{line}\n  (with your secrets in place of {HIDDEN}; --flag=@FILE reads one from a file)" if HIDDEN in line else line


def how_to_send_refused(outcome: Outcome, words: Sequence[str]) -> str:
    """Return the command that sends the refused messages to the same nsqds."""
    again = [outcome.refused_file, *_words_of_sending(words)]
    return f"all others are sent. To go on with these, once nsqd takes them:\n  {command_line(again)}"


def _words_of_sending(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of a command line that say where and how to send: flags, and their values."""
    kinds = {
        setting.name: setting.kind
        for group, settings in ReplayOptions.groups.items()
        for setting in settings
        if group in _SENDING_GROUPS or setting.name in _SENDING_FLAGS
    }
    is_value = False
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        kind = kinds.get(name) if word.startswith("-") else None
        if is_value or kind is not None:
            yield word
        is_value = not is_value and kind is not None and not equals and not kind.bare_value


def how_to_resume(outcome: Outcome, checkpoint: str | None, words: Sequence[str]) -> str:
    """Return how to send the rest; empty if nothing is left to send."""
    if outcome.is_complete:
        return how_to_send_refused(outcome, words) if outcome.refused else ""
    if checkpoint:
        return f"to go on where it ended:\n  {command_line(words)}"
    if not outcome.counts.sent:
        return ""
    sent = count_text(outcome.counts.sent, "message")
    return f"without --checkpoint, the same command would send these {sent} again; with one, an ended replay goes on"
