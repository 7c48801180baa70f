"""Tasks of Django over nsqd: a request enqueues one when its transaction commits, and a worker runs it.

Start:  pip install django gunicorn                     Django 5 needs django-tasks too
        cd examples
        export DJANGO_SETTINGS_MODULE=django_shop.settings PYTHONPATH=.
        django-admin migrate --run-syncdb               creates the tables
        django-admin nsq_worker --threads=4             runs the tasks; in another terminal:
        gunicorn --worker-class gthread --threads 8 django_shop.wsgi
Try:    curl -d customer=ann http://127.0.0.1:8000/orders

A program that crashes between the commit and the publish loses the task. Where that matters, use an outbox (outbox.py).
"""
