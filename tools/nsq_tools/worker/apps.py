"""Imports the app that `module:name` names, from the current directory."""

from __future__ import annotations

import os
import sys
import traceback
from functools import reduce
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

import nsqd_py
from nsqd_py.errors import NsqdError
from nsqd_py.settings.program import ToolError
from nsqd_py.work.app import App

# How the file names of its frames begin; `<string>` is the code of a dataclass.
_OF_NSQD_PY = (os.path.join(os.path.dirname(nsqd_py.__file__), ""), "<")


def load_app(path: str) -> App:
    """Return the app. Raises ToolError, whose text is one line with the reason, the line of code and the remedy."""
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = reduce(getattr, name.split("."), import_module(module))
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ToolError(
                f"cannot import {path}: there is no module {error.name} in {os.getcwd()} or where Python finds modules: "
                "correct the name, or change to the directory that has it"
            ) from error
        raise _not_imported(path, error) from error
    except AttributeError as error:
        if not _is_about(error, name):
            raise _not_imported(path, error) from error
        raise ToolError(
            f"cannot import {path}: {error}; give the name of its App, as in {module}:app"
        ) from error
    except (Exception, SystemExit) as error:
        raise _not_imported(path, error) from error
    if not isinstance(found, App):
        raise ToolError(
            f"{path} is not an App of nsqd_py.work but of the type {type(found).__name__}; give the name of the App"
        )
    if not (found.handlers or found.schedules):
        raise ToolError(
            f"{path} has no handlers: declare some with @{name}.handler(...) in modules that it imports"
        )
    return found


def _is_about(error: AttributeError, name: str) -> bool:
    """True if the module was imported, and has no such name."""
    if error.name not in name.split("."):
        return False
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _not_imported(path: str, error: BaseException) -> ToolError:
    """Return an error with the innermost line of code that is not of the import system, nor of a refusal of nsqd_py."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)[1:] if "importlib" not in frame.filename
    ]
    while len(frames) > 1 and isinstance(error, NsqdError) and frames[-1].filename.startswith(_OF_NSQD_PY):
        frames.pop()
    reason = "".join(traceback.format_exception_only(error)[-1:]).strip()
    where = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno} of {error.filename})"
    return ToolError(f"cannot import {path}: {reason}{where}: correct it, or install what it needs")


def directory_of(path: str) -> Path:
    """Return the directory of the app's package, or of its module, without importing it. Raises ToolError."""
    top = path.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path])
    if spec is None or not (spec.submodule_search_locations or spec.origin):
        raise ToolError(f"--reload: there is no module {top} in {os.getcwd()} or where Python finds modules")
    for location in spec.submodule_search_locations or ():
        return Path(location)
    return Path(str(spec.origin)).parent
