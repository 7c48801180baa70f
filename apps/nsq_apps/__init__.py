"""One small module per command: it reads the options, then runs the program.

nsqd, nsqlookupd, nsqadmin                                     the daemons
nsq_tail, nsq_stat, nsq_to_file, nsq_to_http, nsq_to_nsq, to_nsq   the tools
spark_replay                                                   searches archives and publishes them again
manual                                                         writes the pages and files that are made from settings
contrib                                                        lists the files for administrators that are installed
"""
