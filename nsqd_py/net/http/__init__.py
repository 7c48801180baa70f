"""HTTP for the daemons: a server that parses with httptools, and a client.

connection   one connection: parses requests, and answers them in order
handling     checks a request, runs its handler, logs the answer
heads        the head of a request, and what HTTP forbids in it           pure
router       the table of routes and their kinds of access; a request as handlers see it
answers      encodes responses, and bounds the memory for long ones

browsers     refuses what a foreign web page makes a browser send
guard        checks passwords and tokens for admin paths
credentials  the file of --http-auth-file, and the Authorization header

debug        the paths under /debug
client       asks for short JSON answers, on gevent
"""
