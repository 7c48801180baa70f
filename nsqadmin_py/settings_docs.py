"""`python -m nsqadmin_py.settings_docs` prints docs/options-nsqadmin.md."""

from __future__ import annotations

from nsqadmin_py.options import NSQADMIN
from nsqd_py.settings.docs import reference_page

COMMAND = "python -m nsqadmin_py.settings_docs"

if __name__ == "__main__":
    print(reference_page(NSQADMIN, COMMAND), end="")
