"""Writing the messages of files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext

from nsq_tools.cat.options import CatOptions
from nsq_tools.cat.reading import messages_in
from nsq_tools.cli import DONE, FAILED
from nsq_tools.tail.options import renderer_of
from nsq_tools.tail.rendering import MessageLimit, Renderer
from nsq_tools.to_file.formats.jsonl import json_lines
from nsqd_py.diskqueue.messages import Messages
from nsqd_py.runtime.command import complain
from nsqd_py.runtime.logs import one_line


def run(options: CatOptions) -> int:
    """Write the messages of all files. Return FAILED if something could not be read. Raises ToolError, OSError."""
    renderer, limit = renderer_of(options), MessageLimit(options.n)
    status = DONE
    for name in options.files:

        def on_damage(text: str, name: str = name) -> None:
            nonlocal status
            status = FAILED
            complain(one_line(f"nsq-cat: {name}: {text}"))

        try:
            with nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb") as file:
                for messages in messages_in(file, name, on_damage):
                    shown, _ = limit.take(renderer.matching(messages.bodies), len(messages))
                    sys.stdout.buffer.write(_rendered(renderer, messages, shown, as_object=options.jsonl))
                    if limit.is_over:
                        return status
        except OSError as error:
            if error.filename is None:  # of standard output
                raise
            on_damage(error.strerror or str(error))
    if renderer.not_json_count:
        complain(f"nsq-cat: {renderer.not_json_count} bodies were not JSON: no values were picked from them")
    return status


def _rendered(renderer: Renderer, messages: Messages, shown: Sequence[int], *, as_object: bool) -> bytes:
    if not as_object:
        return renderer.render(messages, shown)
    lines = list(json_lines(messages))
    return b"".join(map(lines.__getitem__, shown))
