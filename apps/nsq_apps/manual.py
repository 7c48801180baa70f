"""Reference pages, made from the code.

`python -m nsq_apps.manual` writes them: docs/tools/<command>.md for each tool, docs/options*.md for each daemon,
docs/http-api.md and docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from nsq_apps.reference import http_page, metrics_page
from nsqd_py.settings.docs import reference_page, secrets_note, settings_tables
from nsqd_py.settings.program import Program

PRINTED_BY = "python -m nsq_apps.manual"
_CHECKOUT = Path(__file__).parent.parent.parent
PAGES = _CHECKOUT / "docs" / "tools"

# The modules in which the tools declare their settings, as `PROGRAM`.
_TOOLS = (
    "nsq_tools.tail",
    "nsq_tools.cat",
    "nsq_tools.stat",
    "nsq_tools.to_file",
    "nsq_tools.to_nsq",
    "nsq_tools.to_http",
    "nsq_tools.nsq_to_nsq",
    "nsq_spark.replay",
)
# The daemons: package, name of the declaration, reference page.
_DAEMONS = (
    ("nsqd_py", "NSQD", "options.md"),
    ("nsqlookupd_py", "NSQLOOKUPD", "options-nsqlookupd.md"),
    ("nsqadmin_py", "NSQADMIN", "options-nsqadmin.md"),
)


def printed_files() -> Iterator[tuple[Path, str]]:
    """Yield the path, within the checkout, and the text of each file that is made from the code."""
    yield Path("docs", "http-api.md"), http_page(PRINTED_BY)
    yield Path("docs", "metrics.md"), metrics_page(PRINTED_BY)
    for program in programs():
        yield Path("docs", "tools", f"{program.command}.md"), page(program)
    for package, name, docs_page in _DAEMONS:
        program = getattr(import_module(f"{package}.options"), name)
        yield Path("docs", docs_page), reference_page(program, PRINTED_BY)


def programs() -> Iterator[Program[Any]]:
    """Yield the declarations of all tools, in the order in which the documentation names them."""
    for package in _TOOLS:
        yield import_module(f"{package}.options").PROGRAM


def page(program: Program[Any]) -> str:
    """Return a tool's page: summary, examples, all flags, exit statuses."""
    return "\n".join((_introduction(program), _examples(program), *settings_tables(program), _exit_status(program)))


def _introduction(program: Program[Any]) -> str:
    return f"""\
<!-- Printed by `{PRINTED_BY}`; change the declarations, not this page. -->

# {program.command}

{program.summary}

Flags are written with one dash or two, and their value follows after a space or `=`; a boolean flag alone means
`true`. Durations have units: `250ms`, `60s`, `1h30m`. All that stands in the column "config key" may also come from
a TOML or YAML file, given with `--config`; a flag goes before the file.
{secrets_note(program)}"""


def _examples(program: Program[Any]) -> str:
    rows = [
        f"{purpose}:\n\n{f'<!-- {comment[0]} -->{chr(10)}' if comment else ''}```sh\n{line}\n```\n"
        for purpose, line, *comment in program.examples
    ]
    return "\n".join(["## Examples\n", *rows])


_EXIT_STATUSES = (
    (0, "done; also after SIGINT or SIGTERM, when everything was left in order, and when the reader of a pipe went away"),
    (1, "failed; one line on standard error says why"),
    (2, "the command line or the config file is wrong; one line on standard error says how to mend it"),
)


def _exit_status(program: Program[Any]) -> str:
    rows = [f"| {status} | {meaning} |" for status, meaning in program.exit_statuses or _EXIT_STATUSES]
    return "\n".join(["## Exit status\n", "| status | meaning |", "|---|---|", *rows, ""])


def main() -> None:
    """Write all files."""
    for path, text in printed_files():
        (_CHECKOUT / path).parent.mkdir(parents=True, exist_ok=True)
        (_CHECKOUT / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
