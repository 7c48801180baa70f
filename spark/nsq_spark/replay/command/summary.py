"""What came of a replay, in a few lines, and how to go on where something is left."""

from __future__ import annotations

from collections.abc import Iterator

from nsq_spark.replay.command.figures import count_text, rate_text, shown, size_text
from nsq_spark.replay.outcome import ALL_SENT, FAILED, PARTLY_SENT, Outcome

_WORDS = {ALL_SENT: "sent", FAILED: "failed", PARTLY_SENT: "partly sent"}
_FILES_SHOWN = 10


def status_word(outcome: Outcome) -> str:
    """For people and for the report."""
    return _WORDS[outcome.exit_code]


def summary(outcome: Outcome) -> str:
    """Read, matched, sent, failed, skipped, bytes, seconds; then what went wrong."""
    counts = outcome.counts
    figures = [
        f"read {counts.read:,}",
        f"matched {counts.matched:,}",
        f"sent {counts.sent:,}",
        f"failed {counts.failed:,}",
        f"skipped {outcome.skipped:,}",
        size_text(counts.sent_bytes),
        f"{outcome.seconds:.2f} s",
    ]
    rate = rate_text(counts.sent, outcome.seconds)
    return "\n".join([f"{status_word(outcome)}: {', '.join(figures)}{f' ({rate})' if rate else ''}", *_notes(outcome)])


def _notes(outcome: Outcome) -> Iterator[str]:
    if outcome.before:
        yield f"  {count_text(outcome.before, 'message')} had been sent by earlier runs"
    if outcome.possible_duplicates:
        yield f"  {count_text(outcome.possible_duplicates, 'message')} may have been sent twice"
    for path, found in list(outcome.damage.items())[:_FILES_SHOWN]:
        records = count_text(found.records, "record")
        yield f"  damaged: {shown(path)}: {records}, {size_text(found.size_bytes)} passed over"
    if len(outcome.damage) > _FILES_SHOWN:
        yield f"  damaged: {len(outcome.damage) - _FILES_SHOWN:,} more files"
    for error in outcome.errors:
        yield f"  error: {shown(error)}"


def how_to_go_on(outcome: Outcome, checkpoint: str | None, command_line: str) -> str:
    """Empty where nothing is left to do."""
    if outcome.is_complete:
        return ""
    if checkpoint:
        return f"to go on where it ended:\n  {command_line}"
    if not outcome.counts.sent:
        return ""
    return (
        f"without --checkpoint, the same command would send these {count_text(outcome.counts.sent, 'message')} again; "
        "with one, an ended replay goes on"
    )
