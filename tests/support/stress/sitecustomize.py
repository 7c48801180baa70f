"""The switch interval of every Python process that is started while this directory is first on PYTHONPATH.

A process that another one forks inherits it. tests/support/hostile_machine.py sets both variables; products never do.
"""

import os
import sys

_INTERVAL = "TESTS_SWITCH_INTERVAL_S"


def _load_the_next_one() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec(__name__, [place for place in sys.path if os.path.abspath(place) != here])
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        spec.loader.exec_module(module_from_spec(spec))


if _INTERVAL in os.environ:
    sys.setswitchinterval(float(os.environ[_INTERVAL]))
_load_the_next_one()
