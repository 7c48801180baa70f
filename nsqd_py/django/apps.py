"""The application of Django. It brings `manage.py nsq_worker`."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class NsqConfig(AppConfig):
    name = "nsqd_py.django"
    label = "nsqd_py"  # the default, "django", would be misleading
    verbose_name = "Tasks over NSQ"

    def ready(self) -> None:
        """Import the framework, which registers its system check: Django 6 does not, before a task is declared."""
        import_module("nsqd_py.django.framework")
