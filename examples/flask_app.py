"""Publish in a request of Flask, on any WSGI server: threads share one producer.

Start:  pip install flask 'gunicorn[gevent]'
        cd examples
        gunicorn --worker-class gthread --threads 8 --workers 2 flask_app:app
   or:  gunicorn --worker-class gevent --workers 2 flask_app:app
   or:  flask --app flask_app run --port 8000
Try:    curl -d '{"id": 1}' http://127.0.0.1:8000/orders

The producer connects at its first publish, in the worker process. With gevent's workers, its threads become greenlets.
"""

import os

from flask import Flask, request

from nsqd_py.client import NsqClientError, Producer

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")

app = Flask(__name__)
producer = Producer(NSQD, publish_timeout_s=5)


@app.post("/orders")
def place_order() -> tuple[str, int]:
    producer.publish("orders", request.get_data())  # returns when nsqd has stored it
    return "", 202


@app.errorhandler(NsqClientError)
def not_stored(error: NsqClientError) -> tuple[str, int]:
    app.logger.error("not published: %s", error)
    return "try again later", 503
