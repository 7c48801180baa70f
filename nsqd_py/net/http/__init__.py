"""HTTP for the daemons: a server that parses with httptools, and a client.

connection   one connection: bytes in, requests handled in order, answers out
heads        the head of a request, and what HTTP forbids in it           pure
query        the query of a URL                                           pure
request      a request as handlers see it
router       the table of paths, and which handler a request needs
answers      answers as bytes
answer_room  the memory that long answers may take

access       the access rules that a route can have
guard        checks logins and tokens for admin paths
credentials  the file of --http-auth-file, and the Authorization header
login_queue  checks passwords of one address after the other

debug        the paths under /debug
client       questions with short JSON answers, on gevent
"""
