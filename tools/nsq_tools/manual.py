"""The reference pages of the tools, in Markdown, made of their declarations.

`python -m nsq_tools.manual` writes docs/tools/<command>.md for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from nsqd_py.settings.declaration import Program
from nsqd_py.settings.docs import settings_tables

PRINTED_BY = "python -m nsq_tools.manual"
PAGES = Path(__file__).parent.parent / "docs" / "tools"

# Where each tool declares itself, as `PROGRAM`.
_DECLARATIONS = (
    "nsq_tools.tail", "nsq_tools.stat", "nsq_tools.to_file", "nsq_tools.to_nsq", "nsq_tools.to_http", "nsq_tools.nsq_to_nsq", "nsq_spark.replay",
)  # fmt: skip


def programs() -> Iterator[Program]:
    """Of all tools, in the order in which the documentation names them."""
    for package in _DECLARATIONS:
        yield import_module(f"{package}.options").PROGRAM


def page(program: Program) -> str:
    """A tool's page: what it does, examples, all flags, exit status."""
    return "\n".join((_introduction(program), _examples(program), *settings_tables(program), _exit_status(program)))


def _introduction(program: Program) -> str:
    return f"""\
<!-- Printed by `{PRINTED_BY}`; change the declarations, not this page. -->

# {program.command}

{program.summary}

Flags are written with one dash or two, and their value follows after a space or `=`; a boolean flag alone means
`true`. Durations have units: `250ms`, `60s`, `1h30m`. All that stands in the column "config key" may also come from
a TOML or YAML file, given with `--config`; a flag goes before the file.
"""


def _examples(program: Program) -> str:
    rows = [
        f"{purpose}:\n\n{f'<!-- {comment} -->{chr(10)}' if comment else ''}```sh\n{line}\n```\n"
        for purpose, line, comment in program.examples
    ]
    return "\n".join(["## Examples\n", *rows])


# fmt: off
_EXIT_STATUSES = (
    (0, "done; also after SIGINT or SIGTERM, when everything was left in order, and when the reader of a pipe went "
        "away"),
    (1, "failed; one line on standard error says why"),
    (2, "the command line or the config file is wrong; one line on standard error says how to mend it"),
)
# fmt: on


def _exit_status(program: Program) -> str:
    rows = [f"| {status} | {meaning} |" for status, meaning in program.exit_statuses or _EXIT_STATUSES]
    return "\n".join(["## Exit status\n", "| status | meaning |", "|---|---|", *rows, ""])


def main() -> None:
    """Write all pages."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for program in programs():
        (PAGES / f"{program.command}.md").write_text(page(program), "utf-8")


if __name__ == "__main__":
    main()
