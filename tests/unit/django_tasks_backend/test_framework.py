"""Which package of the framework is used. The tests of a whole project run with the one that is installed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("django")

import django
from django.core.exceptions import ImproperlyConfigured

from nsqd_py.django.choice import either, framework_name
from nsqd_py.django.framework import NAME


def having(*names: str):
    """Return a `find_spec` of a machine that has these packages."""
    return lambda name: SimpleNamespace(name=name) if name in names else None


@pytest.mark.parametrize(
    ("installed", "chosen"),
    [
        (["django.tasks"], "django.tasks"),
        (["django_tasks"], "django_tasks"),
        (["django_tasks", "django.tasks"], "django.tasks"),
    ],
)
def test_django_comes_before_the_backport(installed, chosen):
    assert framework_name(having(*installed)) == chosen


def test_neither_is_installed():
    with pytest.raises(
        ImproperlyConfigured, match="use Django 6, or install the backport, pip install django-tasks"
    ):
        framework_name(having())


def test_this_machine():
    expected = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
    assert expected == NAME


def test_names_that_were_renamed():
    module = SimpleNamespace(__name__="tasks.exceptions", InvalidTaskError=ValueError)
    assert either(module, "InvalidTask", "InvalidTaskError") is ValueError
    with pytest.raises(ImproperlyConfigured, match="tasks.exceptions has none of Lost, Gone"):
        either(module, "Lost", "Gone")
