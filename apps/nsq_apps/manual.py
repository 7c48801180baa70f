"""Reference pages, made from the code.

`python -m nsq_apps.manual` writes them: docs/tools/<command>.md for each tool, docs/options*.md for each daemon,
docs/http-api.md and docs/metrics.md; contrib/man/<command>.1 for `man`, which the wheel installs; and the alerts in
contrib/prometheus/nsqadmin.yml.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import nsqd_py
from nsq_apps.alerts import alert_rules
from nsq_apps.man_pages import COMMON, man_page
from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.program import Program

PRINTED_BY = "python -m nsq_apps.manual"
_CHECKOUT = Path(__file__).parent.parent.parent
# In a table, the `...` after a flag says this.
_SEVERAL = " (may be given several times)"
# What a metric of some types has at the end of its name.
_SUFFIXES = {"counter": "_total", "info": "_info"}

# The modules that declare the tools, as `PROGRAM`.
_TOOLS = (
    "nsq_tools.tail.program",
    "nsq_tools.cat.program",
    "nsq_tools.stat.program",
    "nsq_tools.to_file.program",
    "nsq_tools.to_nsq.program",
    "nsq_tools.to_http.program",
    "nsq_tools.nsq_to_nsq.program",
    "nsq_tools.worker.program",
    "nsq_spark.compact.program",
    "nsq_spark.replay.options",
)
# The daemons: package, name of the declaration, reference page.
_DAEMONS = (
    ("nsqd_py.server", "NSQD", "options.md"),
    ("nsqlookupd_py", "NSQLOOKUPD", "options-nsqlookupd.md"),
    ("nsqadmin_py", "NSQADMIN", "options-nsqadmin.md"),
)

HTTP_INTRODUCTION = """\
Answers are JSON where this page does not say otherwise. An error is JSON with a `message`
([troubleshooting](troubleshooting.md#errors-over-http)). Parameters are those of Go's NSQ
([differences](compatibility.md)). The column "access" names one of the [access rules](security.md#access-rules).
The same as OpenAPI, with all parameters: [nsqd](openapi.yaml), [nsqlookupd](openapi-nsqlookupd.yaml).
"""

METRICS_INTRODUCTION = """\
`GET /metrics` of nsqd has these metrics in Prometheus' text format (`pip install 'nsqd-py[metrics]'`). Counters start at 0
when nsqd starts. With `--e2e-processing-latency-percentile` there are percentiles too: `nsqd_topic_e2e_latency_seconds` and
`nsqd_channel_e2e_latency_seconds`. `python -m nsq_apps.contrib` lists alerts and a dashboard that use these metrics.
"""


def printed_files() -> Iterator[tuple[Path, str]]:
    """Yield the path, within the checkout, and the text of each file that is made from the code."""
    yield Path("docs", "http-api.md"), http_page()
    yield Path("docs", "metrics.md"), metrics_page()
    yield Path("contrib", "prometheus", "nsqadmin.yml"), alert_rules()
    for program in programs():
        yield Path("docs", "tools", f"{program.command}.md"), page(program)
        yield Path("contrib", "man", f"{program.command}.1"), man_page(program)
    for package, name, docs_page in _DAEMONS:
        program = getattr(import_module(f"{package}.options"), name)
        yield Path("docs", docs_page), reference_page(program)
        yield Path("contrib", "man", f"{program.command}.1"), man_page(program)


def programs() -> Iterator[Program[Any]]:
    """Yield the declarations of all tools, in the order in which the documentation names them."""
    for module in _TOOLS:
        yield import_module(module).PROGRAM


def page(program: Program[Any]) -> str:
    """Return a tool's page: summary, examples, all flags but those in README.md, exit statuses."""
    common = (
        "[All tools](README.md): how flags, the config file and passwords are written, exit statuses, pipes."
    )
    head = _head(program.command, f"{program.summary}\n\n{common}\n")
    return "\n".join((head, _examples(program), *settings_tables(program, COMMON), *_exit_status(program)))


def _examples(program: Program[Any]) -> str:
    rows = [
        f"{purpose}:\n\n{f'<!-- {comment[0]} -->{chr(10)}' if comment else ''}```sh\n{line}\n```\n"
        for purpose, line, *comment in program.examples
    ]
    return "\n".join(["## Examples\n", *rows])


def _exit_status(program: Program[Any]) -> list[str]:
    """Return the table of a tool that has its own exit statuses."""
    if not program.exit_statuses:
        return []
    rows = [f"| {status} | {meaning} |" for status, meaning in program.exit_statuses]
    return ["## Exit status\n", "| status | meaning |", "|---|---|", *rows, ""]


# ---- the pages of daemons


def reference_page(program: Program[Any]) -> str:
    """Return the page of a daemon."""
    introduction = f"""\
A flag goes before the config file, and the config file before the default. Flags are written with one dash or
two, and their value follows after a space or `=`; a boolean flag alone means `true`. With `...`, a flag may be given
several times. Durations have units: `250ms`, `60s`, `1h30m`; sizes may: `10MB`.

The file given with `--config` is TOML, or YAML where its name ends in `.yaml` or `.yml`. A key is the name of the
flag with `_` in place of `-`, unless the table names another one; in the file, a duration may also be a number of
milliseconds. Keys that only older releases of NSQ had are ignored with a warning; any other unknown key is an error.
{secrets_note(program)}"""
    return "\n".join([_head(f"Options of {program.command}", introduction), *settings_tables(program)])


def settings_tables(program: Program[Any], left_out: Collection[str] = ()) -> list[str]:
    """Return a titled table for each group of settings but those `left_out`, and one of the hidden settings."""
    tables = [
        f"## {title}\n\n{_table(settings)}\n"
        for title, settings in program.groups.items()
        if title not in left_out
    ]
    if program.hidden:
        tables.append(f"## Not listed by --help\n\n{_table(program.hidden)}\n")
    return tables


def secrets_note(program: Program[Any]) -> str:
    """Return the paragraph on the settings that may contain passwords or tokens; "" if there are none."""
    secrets = [setting for setting in program.settings if setting.kind.hide]
    if not secrets:
        return ""
    variable = f"{program.name}_{secrets[0].name}".upper().replace("-", "_")
    names = ", ".join(f"`--{setting.name}`" for setting in secrets)
    text = (
        f"These may contain passwords or tokens, which are hidden wherever a value is shown: {names}. To keep them out "
        "of the list of processes, write `@path` in place of the value, and it is read from that file; or set a "
        f"variable such as `{variable}` (a value a line), or `{variable}_FILE` with the name of a file."
    )
    return f"\n{textwrap.fill(text, 120, break_on_hyphens=False)}\n"


def _table(settings: Iterable[Setting]) -> str:
    rows = ["| flag | default | what it does |", "|---|---|---|"]
    return "\n".join(rows + [_row(setting) for setting in settings])


def _row(setting: Setting) -> str:
    has_other_key = setting.key not in ("", setting.name.replace("-", "_"))
    default = setting.default_text or f"`{setting.shown_default}`"
    help_text = setting.full_help.replace(_SEVERAL, "") + (f" Key: `{setting.key}`." if has_other_key else "")
    cells = (f"`{setting.usage}`", default, help_text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


# ---- HTTP paths and metrics


def http_page() -> str:
    """Return docs/http-api.md."""
    from nsqd_py.api.routes import ROUTES as nsqd_routes
    from nsqlookupd_py.http import ROUTES as nsqlookupd_routes

    parts = [_head("HTTP paths", HTTP_INTRODUCTION)]
    for program, routes in (("nsqd", nsqd_routes), ("nsqlookupd", nsqlookupd_routes)):
        parts += [f"\n## {program}\n\n| method | path | what it does | access |\n|---|---|---|---|\n"]
        parts += [
            f"| {route.method} | `{route.path}` | {_first_sentences(route.handler)} | {route.access.value} |\n"
            for route in routes
        ]
    return "".join(parts)


def metrics_page() -> str:
    """Return docs/metrics.md. An nsqd is started, and asked for its metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    with nsqd_py.embedded() as nsqd:
        nsqd.post("/topic/create?topic=t")
        nsqd.post("/channel/create?topic=t&channel=c")
        found = text_string_to_metric_families(nsqd.text("/metrics"))
        families = sorted(found, key=lambda family: family.name)
    rows = []
    for family in families:
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        words = ", ".join(f"`{label}`" for label in labels)
        rows.append(
            f"| `{family.name}{_SUFFIXES.get(family.type, '')}` | {family.type} | {words} | {family.documentation} |\n"
        )
    head = "\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
    return "".join([_head("Metrics", METRICS_INTRODUCTION), head, *rows])


def _head(title: str, introduction: str) -> str:
    return (
        f"<!-- Printed by `{PRINTED_BY}`; change the code, not this page. -->\n\n# {title}\n\n{introduction}"
    )


def _first_sentences(handler: Any) -> str:
    while isinstance(handler, partial):
        handler = handler.func
    return " ".join((handler.__doc__ or "").split("\n\n")[0].split()).replace("|", r"\|")


def main() -> None:
    """Write all files."""
    for path, text in printed_files():
        (_CHECKOUT / path).parent.mkdir(parents=True, exist_ok=True)
        (_CHECKOUT / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
