"""Publish from Django after the transaction of a request has committed, and not if it is rolled back.

Start:  pip install django gunicorn
        cd examples
        python django_app.py                  creates the tables
        gunicorn --worker-class gthread --threads 8 django_app:application
Try:    curl -d customer=ann http://127.0.0.1:8000/orders

A program that crashes between the commit and the publish loses the message. Where that matters, use an outbox
(outbox.py). In a project, the parts of this file are in settings.py, models.py, views.py and urls.py.
"""

import json
import os

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection, models, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from nsqd_py.client import Producer

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
DATABASE = os.environ.get("DATABASE", "shop.db")

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE, "OPTIONS": {"timeout": 20}}
    },
    ROOT_URLCONF=__name__,
)
django.setup()
producer = Producer(NSQD)


class Order(models.Model):
    customer = models.CharField(max_length=20)

    class Meta:
        app_label = "shop"


@transaction.atomic
def place_order(request: HttpRequest) -> HttpResponse:
    order = Order.objects.create(customer=request.POST["customer"])
    body = json.dumps({"id": order.id, "customer": order.customer}).encode()
    transaction.on_commit(lambda: producer.publish("orders", body))
    if not order.customer.isalpha():
        transaction.set_rollback(True)
        return HttpResponse("no such customer", status=400)
    return HttpResponse(status=202)


urlpatterns = [path("orders", place_order)]
application = get_wsgi_application()

if __name__ == "__main__":
    with connection.schema_editor() as editor:
        editor.create_model(Order)
