"""Which package has the framework for tasks: Django 6 itself, or the backport django-tasks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import ImproperlyConfigured

IN_DJANGO = "django.tasks"
BACKPORT = "django_tasks"


def framework_name(find: Callable[[str], object] = find_spec) -> str:
    """Return the package of the framework. Django's own is preferred.

    Raises ImproperlyConfigured if there is none.
    """
    for name in (IN_DJANGO, BACKPORT):
        if find(name) is not None:
            return name
    raise ImproperlyConfigured(
        "nsqd_py.django needs django.tasks: use Django 6, or install the backport, pip install django-tasks"
    )


def either(module: Any, *names: str) -> Any:
    """Return the first of these names that the module has: some have been renamed. Raises ImproperlyConfigured."""
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)
    raise ImproperlyConfigured(
        f"{module.__name__} has none of {', '.join(names)}: nsqd_py.django does not know this version"
    )
