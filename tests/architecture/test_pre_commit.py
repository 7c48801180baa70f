"""`.pre-commit-config.yaml` runs what `make check` runs."""

from __future__ import annotations

import re

import yaml

from tests.architecture.test_imports import ROOT


def commands_of_make_check() -> list[str]:
    recipe = re.search(r"^check:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert recipe is not None
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]


def test_the_hooks_run_the_commands_of_make_check() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == commands_of_make_check()
    # All of them look at the whole tree, so each runs once, whatever the commit changes.
    settings = {(hook["language"], hook["pass_filenames"], hook["always_run"]) for hook in hooks}
    assert settings == {("system", False, True)}
