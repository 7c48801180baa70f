"""Sockets: what all daemons and clients need to send and receive bytes. No file here knows NSQ's commands.

listeners            the listening sockets of a daemon: bind, accept, refuse
transport            a socket that never blocks, and its output buffer
socket_buffers       the buffers of a socket in the kernel, and the size of reads
loop_iteration       the end of an event-loop iteration, where batched work is done; a backlog of what takes long
limits               limits on connections and time-outs

layers               what lies between socket and protocol; deflate
snappy               snappy as a layer
tls                  TLS as a layer; the certificate of a server, reloaded when its files change
tls_context          TLS contexts of clients, and the security level of OpenSSL
tls_options          the TLS settings of servers and of HTTP clients
peer_tls             the TLS of connections to other servers, reloaded when its files change

addresses            host:port as text                                       pure

http                 server and client for HTTP
"""
