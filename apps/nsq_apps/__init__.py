"""The commands. Each reads its options and runs its program.

nsqd, nsqlookupd, nsqadmin  the daemons
tools                       nsq-tail, nsq-cat, nsq-stat, nsq-to-file, nsq-to-http, nsq-to-nsq, to-nsq, spark-replay
starting                    the start and the end of every daemon and tool
manual                      prints reference pages
man_pages                   makes the pages of `man`
__main__                    runs any of these in a checkout
contrib                     lists the files for administrators that are installed
"""
