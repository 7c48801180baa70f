"""A program of a Django project in its current directory, which `tests.support.forked` forks.

python -m tests.support.django_program manage COMMAND ...    as `manage.py COMMAND ...`
python -m tests.support.django_program run CODE              runs code after `django.setup()`
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> int:
    sys.path.insert(0, os.getcwd())
    kind, *words = sys.argv[1:]
    if kind == "run":
        exec(compile(words[0], "CODE", "exec"), {"__name__": "__main__"})
    else:
        execute_from_command_line(["manage.py", *words])
    return 0


if __name__ == "__main__":
    sys.exit(main())
