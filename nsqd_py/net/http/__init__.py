"""HTTP for the daemons: a server that parses with httptools, and a client.

connection   one connection: parses requests, and answers them in order
handling     the head of a request, its checks, its handler, its line in the log
router       the table of routes and their kinds of access; a request as handlers see it
answers      responses
failures     the responses to what no handler could do
encoding     the bytes of responses
limiter      bounds the memory for long responses

browsers     refuses what a foreign web page makes a browser send
proxies      tells requests that a reverse proxy passed on
guard        the file of --http-auth-file; checks passwords and tokens for admin paths

debug        the paths under /debug
client       asks for short JSON answers, on gevent
"""
