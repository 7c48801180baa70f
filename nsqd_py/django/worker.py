"""The tasks of a Django project for the command nsq-worker: `nsq-worker nsqd_py.django.worker:app`.

`manage.py nsq_worker --processes=4` starts that command. The environment says what to run:

DJANGO_SETTINGS_MODULE   the settings of the project
NSQ_DJANGO_BACKEND       the alias of the backend in TASKS; `default`
NSQ_DJANGO_QUEUES        the queues, separated by commas; all of the backend
NSQ_DJANGO_THREADS       how many tasks of a queue run at a time in a process; 1
"""

from __future__ import annotations

import os

import django

django.setup()

# Imported when Django is set up: models may be loaded from here on.
from nsqd_py.django.queues import BACKEND_VARIABLE, QUEUES_VARIABLE, THREADS_VARIABLE, worker_app  # noqa: E402

app = worker_app(
    os.environ.get(BACKEND_VARIABLE, "default"),
    [queue for queue in os.environ.get(QUEUES_VARIABLE, "").split(",") if queue],
    int(os.environ.get(THREADS_VARIABLE, "1")),
)
