"""Runs a command of a checkout that is not installed: `python -m nsq_apps nsq_tail --topic=orders`."""

from __future__ import annotations

import importlib
import sys

from nsq_apps import tools

name = sys.argv.pop(1)
sys.exit(getattr(tools, name)() if hasattr(tools, name) else importlib.import_module(f"nsq_apps.{name}").main())
