"""Objects by name in a bucket or directory, with conditional writes: what a store and a lease in a bucket need.

calls      the seven calls, and their errors
opening    objects by the URL of a bucket or directory
cloud      objects in a bucket of a cloud
directory  objects as files of a directory

Threads
CloudObjects      its only state is a client of obstore, which is made for several threads
DirectoryObjects  each call opens what it uses; those that write take turns by locks and links of the file system
"""
