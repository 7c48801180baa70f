"""The application of Django. It brings `manage.py nsq_worker`."""

from __future__ import annotations

from django.apps import AppConfig


class NsqConfig(AppConfig):
    name = "nsqd_py.django"
    label = "nsqd_py"  # the default, "django", would be misleading
    verbose_name = "Tasks over NSQ"
