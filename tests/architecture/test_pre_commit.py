"""`.pre-commit-config.yaml` runs what `make check` runs."""

from __future__ import annotations

import re

import yaml

from tests.architecture.test_imports import ROOT


def commands_of_make_check() -> set[str]:
    """Return the recipes of the targets that `make check` runs beside each other."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipes = [re.search(rf"^{target}:.*\n((?:\t.+\n)+)", makefile, re.MULTILINE) for target in ("check", "rules", "types")]
    check, *parts = [recipe[1].splitlines() for recipe in recipes if recipe]
    assert len(check) == 1 and check[0].endswith(" rules types")
    return {line.strip().replace("$(BIN)", ".venv/bin") for lines in parts for line in lines}


def test_the_hooks_run_the_commands_of_make_check() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {hook["entry"] for hook in hooks} == commands_of_make_check()
    # All of them look at the whole tree, so each runs once, whatever the commit changes.
    settings = {(hook["language"], hook["pass_filenames"], hook["always_run"]) for hook in hooks}
    assert settings == {("system", False, True)}
