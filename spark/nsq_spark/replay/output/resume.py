"""The commands that go on with a replay, as texts to paste into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from nsq_spark.replay.options import ReplayOptions
from nsq_spark.replay.outcome import Outcome
from nsq_spark.replay.output.summary import count_text
from nsqd_py.runtime.logs.hidden import HIDDEN
from nsqd_py.settings.declaration import Setting

# The flags that a command needs to send other messages to the same nsqds: those of two groups, and some more.
_SENDING_GROUPS = ("Destination", "Spark")
_SENDING_FLAGS = ("yes", "give-up-after")


def _sending_settings() -> dict[str, Setting]:
    """Return the settings that say where and how to send, by the names of their flags."""
    groups = ReplayOptions.groups
    sending = [setting for group in _SENDING_GROUPS for setting in groups[group]]
    sending += [setting for setting in groups["Safety"] if setting.name in _SENDING_FLAGS]
    return {setting.name: setting for setting in sending}


def words_to_repeat(options: ReplayOptions, words: Sequence[str]) -> list[str]:
    """Return the words of a command line, and those for what a config file or the environment says of sending."""
    named = {word.lstrip("-").partition("=")[0] for word in words if word.startswith("-")}
    repeated = list(words)
    for name, setting in _sending_settings().items():
        value = setting.kind.shown(getattr(options, setting.attribute))
        if name not in named and value != setting.default:
            if isinstance(value, tuple):
                texts = value
            else:
                texts = (setting.kind.show(value),)
            repeated += [f"--{name}={text}" for text in texts]
    return repeated


def command_line(words: Iterable[str]) -> str:
    """Return words to paste into a shell."""
    line = shlex.join(["spark-replay", *words])
    if HIDDEN not in line:
        return line
    return f"{line}\n  (with your secrets in place of {HIDDEN}; --flag=@FILE reads one from a file)"


def _how_to_send_refused(outcome: Outcome, words: Sequence[str]) -> str:
    """Return the command that sends the refused messages to the same nsqds."""
    again = [outcome.refused_file, *_words_of_sending(words)]
    return f"all others are sent. To go on with these, once nsqd takes them:\n  {command_line(again)}"


def _words_of_sending(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of a command line that say where and how to send: flags, and their values."""
    settings = _sending_settings()
    is_value = False
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        setting = None
        if word.startswith("-"):
            setting = settings.get(name)
        if is_value or setting:
            yield word
        is_value = not is_value and setting is not None and not equals and not setting.kind.bare_value


def how_to_resume(outcome: Outcome, checkpoint: str | None, words: Sequence[str]) -> str:
    """Return how to send the rest; empty if nothing is left to send."""
    if outcome.is_complete:
        if outcome.refused:
            return _how_to_send_refused(outcome, words)
        return ""
    if checkpoint:
        return f"to go on where it ended:\n  {command_line(words)}"
    if not outcome.counts.messages:
        return ""
    sent = count_text(outcome.counts.messages, "message")
    return f"without --checkpoint, the same command would send these {sent} again; with one, an ended replay goes on"
