"""What `nsqd_py.client` and `nsqd_py.client.aio` give by name."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from nsqd_py import client
from nsqd_py.client import aio


def names_for_type_checkers(module: ModuleType) -> dict[str, str]:
    """Where each name comes from, by the imports that type checkers see."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


@pytest.mark.parametrize("module", [client, aio], ids=lambda module: module.__name__)
def test_every_name_is_what_type_checkers_think(module: ModuleType) -> None:
    homes = names_for_type_checkers(module)
    assert homes == {name: f"{module.__name__}.{home}" for name, home in module._HOMES.items()}
    for name, home in homes.items():
        assert getattr(module, name) is getattr(import_module(home), name)


@pytest.mark.parametrize("module", [client, aio], ids=lambda module: module.__name__)
def test_there_are_no_others(module: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        module.Nonsense  # noqa: B018 - it is asked for to see it fail
