"""The settings of the project."""

import os
from importlib.util import find_spec

ALLOWED_HOSTS = ["127.0.0.1"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", "shop.db"),
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["nsqd_py.django", "django_shop"]
ROOT_URLCONF = "django_shop.urls"

if not find_spec("django.tasks"):  # before Django 6
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "nsqd_py.django.NsqBackend",
        "OPTIONS": {
            "nsqd_tcp_addresses": [os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")],
            "retry": {"attempts": 6, "first_s": 1, "factor": 4},
        },
    }
}
