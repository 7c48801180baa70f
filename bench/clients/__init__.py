"""Client libraries as programs, to be measured like tools: each does nothing with its messages.

`python -m bench.clients.consume LIBRARY HOST:PORT TOPIC CHANNEL` consumes until a signal ends it,
`python -m bench.clients.produce LIBRARY HOST:PORT TOPIC MESSAGES` publishes and ends when all are acknowledged.
"""
