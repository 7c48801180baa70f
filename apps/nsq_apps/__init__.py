"""One small module for each command. It reads the options and runs the program.

nsqd, nsqlookupd, nsqadmin                                     the daemons
nsq_tail, nsq_cat, nsq_stat, nsq_to_file, nsq_to_http, nsq_to_nsq, to_nsq   the tools
spark_replay                                                   searches archives and publishes them again
manual                                                         prints reference pages
reference                                                      two of these pages: HTTP paths and metrics
contrib                                                        lists the files for administrators that are installed
"""
