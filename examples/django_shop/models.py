"""Orders, and when they were confirmed."""

from django.db import models


class Order(models.Model):
    customer = models.CharField(max_length=20)
    confirmed_at = models.DateTimeField(null=True)
