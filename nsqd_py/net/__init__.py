"""Sockets: what all daemons and clients need to send and receive bytes. No file here knows NSQ's commands.

listeners            the listening sockets of a daemon: bind, accept, refuse
transport            a socket that never blocks, and its output buffer
socket_buffers       the buffers of a socket in the kernel, and the size of reads
loop_iteration       the end of an event-loop iteration, where batched work is done; a backlog of what takes long
early_answers        answers sent before the write that they depend on has succeeded
limits               limits on connections and time-outs

layers               the interface of what lies between socket and protocol
compression          snappy and deflate as layers
tls                  TLS as a layer
tls_any_certificate  TLS that accepts any client certificate
tls_context          TLS contexts of clients, and the security level of OpenSSL
tls_options          the TLS settings of servers and of HTTP clients
certificates         reloads a server's certificate when its files change

addresses            host:port as text                                       pure

http                 server and client for HTTP
"""
