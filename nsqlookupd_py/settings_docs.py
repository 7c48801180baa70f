"""`python -m nsqlookupd_py.settings_docs` prints docs/options-nsqlookupd.md."""

from __future__ import annotations

from nsqd_py.settings.docs import reference_page
from nsqlookupd_py.options import NSQLOOKUPD

COMMAND = "python -m nsqlookupd_py.settings_docs"

if __name__ == "__main__":
    print(reference_page(NSQLOOKUPD, COMMAND), end="")
