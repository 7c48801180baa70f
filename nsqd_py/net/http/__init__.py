"""The HTTP side of nsqd: publishing and the admin API.

    query.py       what a URL says                                     pure
    bodies.py      the bodies of /mpub in the form of a batch          pure
    answers.py     answers as the bytes that leave
    routes.py      the table of paths, and what a request is for
    heads.py       the head of a request, and heads that came before     pure
    request.py     one request, as handlers see it
    handlers.py    what each path does
    credentials.py who may use admin paths
    guard.py       lets nobody else to them
    connection.py  bytes in, requests, bytes out
"""
