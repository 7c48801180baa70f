"""A whole cluster as one nsqlookupd sees it: 200 nsqds that register themselves, and 50 clients that ask.

`cluster.py` says what the nsqds have; `fleet.py` is the nsqds, `crowd.py` the clients, `answers.py` what their
answers have to say. All of them run on one `reactor.py` in one process, over real sockets, and send buffers that
were built beforehand: on two cores, nsqlookupd has one to itself.
"""
