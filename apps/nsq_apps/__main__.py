"""Runs a command of a checkout that is not installed: `python -m nsq_apps nsq_tail --topic=orders`."""

from __future__ import annotations

import importlib
import sys

name = sys.argv.pop(1)
sys.exit(importlib.import_module(f"nsq_apps.{name}").main())
