"""An app for nsq-worker whose addresses have a secret, which no log line and no error may show."""

from nsqd_py.work import App

CANARY = "Canary7Canary7"

app = App("secret", lookupd_http_addresses=f"http://user:{CANARY}@127.0.0.1:1")


@app.handler("orders")
def handle(order: bytes) -> None:
    """Do nothing: there is no such nsqlookupd."""
