"""What a worker does."""

import logging

from django.utils import timezone

from .models import Order

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@task
def confirm(order_id: int) -> None:
    order = Order.objects.get(id=order_id)
    order.confirmed_at = timezone.now()
    order.save()
    logging.getLogger(__name__).info("confirmed the order of %s", order.customer)
