"""The configuration files in contrib/config are those of the declarations, and the programs take them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from nsq_apps.manual import PRINTED_BY
from nsqadmin_py import options as nsqadmin_options
from nsqd_py import options as nsqd_options
from nsqd_py.settings.declaration import Options
from nsqd_py.settings.docs import FORMATS, example
from nsqd_py.settings.program import Program
from nsqlookupd_py import options as nsqlookupd_options

CONFIGS = Path(__file__).resolve().parents[3] / "contrib" / "config"


class Example(NamedTuple):
    program: Program
    command: str
    read: Callable[[Sequence[str]], Options]
    check: Callable[[Options], None]
    file_format: str

    @property
    def path(self) -> Path:
        return CONFIGS / f"{self.program.name}.{self.file_format}"

    def uncommented(self) -> str:
        """The file with every setting in effect."""
        return re.sub(r"^#(?=\w)", "", self.path.read_text("utf-8"), flags=re.MULTILINE)


def check_nsqadmin(options: Options) -> None:
    """It cannot start without somebody to ask, which no default names."""
    nsqadmin_options.check_options(options.replace(lookupd_http_address=("127.0.0.1:4161",)))


PROGRAMS = (
    (nsqd_options.NSQD, PRINTED_BY, nsqd_options, nsqd_options.check_options),
    (nsqlookupd_options.NSQLOOKUPD, PRINTED_BY, nsqlookupd_options, nsqlookupd_options.check_options),
    (nsqadmin_options.NSQADMIN, PRINTED_BY, nsqadmin_options, check_nsqadmin),
)
EXAMPLES = [
    Example(program, command, module.read_options, check, file_format)
    for program, command, module, check in PROGRAMS
    for file_format in FORMATS
]
examples = pytest.mark.parametrize("example_file", EXAMPLES, ids=lambda e: e.path.name)


@examples
def test_the_file_is_fresh(example_file: Example) -> None:
    program, command, _, _, file_format = example_file
    assert example_file.path.read_text("utf-8") == example(program, command, file_format), f"run: {command}"


@examples
def test_as_it_is_it_changes_nothing(example_file: Example) -> None:
    assert vars(example_file.read(["--config", str(example_file.path)])) == vars(example_file.read([])) | {
        "config": str(example_file.path)
    }


@examples
def test_every_setting_is_in_it_once(example_file: Example) -> None:
    text = example_file.uncommented()
    settings = tomllib.loads(text) if example_file.file_format == "toml" else yaml.safe_load(text)
    assert list(settings) == [setting.key for setting in example_file.program.settings if setting.key]


@examples
def test_it_loads_with_every_line_uncommented(example_file: Example, tmp_path: Path) -> None:
    path = tmp_path / example_file.path.name
    path.write_text(example_file.uncommented(), "utf-8")
    options = example_file.read(["--config", str(path)])
    example_file.check(options)
    defaults = example_file.read([])
    changed = {
        setting.name
        for setting in example_file.program.settings
        if getattr(options, setting.attribute) != getattr(defaults, setting.attribute)
    }
    assert changed == {"config"} | {s.name for s in example_file.program.settings if s.key and s.default_text}


@examples
def test_every_setting_has_its_help(example_file: Example) -> None:
    words = " ".join(example_file.path.read_text("utf-8").replace("\n# ", " ").split())
    missing = [s.name for s in example_file.program.settings if s.key and " ".join(s.full_help.split()) not in words]
    assert missing == []
