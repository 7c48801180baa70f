"""What fails a test of the page: each kind of it is seen."""

from __future__ import annotations

import re
from functools import partial

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Visits
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

pytestmark = pytest.mark.xdist_group("browser")

MISDEEDS = {
    "exception: Error: thrown": "setTimeout(() => { throw new Error('thrown'); })",
    "console error: said": "console.error('said')",
    "alert: here": "setTimeout(() => alert('here'))",
    "404: GET .*/static/none": "void fetch('/static/none')",
    "another host: http://elsewhere.example/": "void (new Image().src = 'http://elsewhere.example/')",
    "console error: .*Content Security Policy": """{
      const script = document.createElement("script");
      script.textContent = "window.hasRun = true";
      document.head.append(script);
    }""",
}


def is_seen(wrong: str, visits: Visits) -> bool:
    return any(re.match(wrong, fault) for fault in visits.faults())


def test_what_a_page_does_wrong_is_seen(browser: Browser, admin: NsqadminProcess) -> None:
    visits = Visits(browser)
    with pytest.raises(AssertionError), visits:
        page = visits(admin)
        assert visits.faults() == []
        for wrong, script in MISDEEDS.items():
            page.evaluate(script)
            wait_until(partial(is_seen, wrong, visits), what=wrong)
        assert page.evaluate("window.hasRun") is None
