"""HTTP for the daemons: a server that parses with httptools, and a client.

connection        one connection: parses requests, and answers them in order
handling          checks a request, runs its handler, logs the answer
heads             the head of a request, and what HTTP forbids in it           pure
request           a request as handlers see it, and the query of its URL
router            the table of routes; finds the route of a request
answers           encodes responses
response_limiter  bounds the memory for long answers

browsers          refuses what a foreign web page makes a browser send
access            the access rules of routes
guard             checks passwords and tokens for admin paths
credentials       the file of --http-auth-file, and the Authorization header

debug             the paths under /debug
client            asks for short JSON answers, on gevent
foreign_json      parses JSON of other machines, with a limit on memory
yielding_file     lets other greenlets run while a peer sends without pause
"""
