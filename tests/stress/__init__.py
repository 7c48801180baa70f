"""Tests on a machine on which threads meet at every bad moment (tests/support/hostile_machine.py).

`python -m tests.stress`, which `make stress` runs, is the lane: it runs tests of other folders on such a machine, too.
"""
