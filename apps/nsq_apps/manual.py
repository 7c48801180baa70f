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
from nsqd_py.settings.docs import reference_page, settings_tables
from nsqd_py.settings.program import Program

PRINTED_BY = "python -m nsq_apps.manual"
_CHECKOUT = Path(__file__).parent.parent.parent
# The groups of settings that docs/tools/README.md describes once, for all tools.
COMMON = ("This program", "Log")
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
    return "\n".join((_introduction(program), _examples(program), *settings_tables(program, COMMON), *_exit_status(program)))


def _introduction(program: Program[Any]) -> str:
    return f"""\
<!-- Printed by `{PRINTED_BY}`; change the declarations, not this page. -->

# {program.command}

{program.summary}

[All tools](README.md): how flags, the config file and passwords are written, exit statuses, pipes.
"""


def _examples(program: Program[Any]) -> str:
    rows = [
        f"{purpose}:\n\n{f'<!-- {comment[0]} -->{chr(10)}' if comment else ''}```sh\n{line}\n```\n"
        for purpose, line, *comment in program.examples
    ]
    return "\n".join(["## Examples\n", *rows])


def _exit_status(program: Program[Any]) -> list[str]:
    """Return the table of a tool that has exit statuses of its own."""
    if not program.exit_statuses:
        return []
    rows = [f"| {status} | {meaning} |" for status, meaning in program.exit_statuses]
    return ["## Exit status\n", "| status | meaning |", "|---|---|", *rows, ""]


def main() -> None:
    """Write all files."""
    for path, text in printed_files():
        (_CHECKOUT / path).parent.mkdir(parents=True, exist_ok=True)
        (_CHECKOUT / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
