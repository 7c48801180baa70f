complete -c to-nsq -f
complete -c to-nsq -l version -d 'Print the version and exit.'
complete -c to-nsq -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c to-nsq -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c to-nsq -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c to-nsq -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c to-nsq -l nsqd-tcp-address -d 'TCP address (host:port) of an nsqd to publish to (may be given several times; each receives every message).' -x
complete -c to-nsq -l topic -d 'NSQ topic.' -x
complete -c to-nsq -l producer-opt -d 'Option of the producer as name,value with the names of go-nsq\'s Config, such as snappy,true or dial_timeout,5s (may be given several times).' -x
complete -c to-nsq -l retry-timeout -d 'Time for which publishing to an nsqd is retried, with growing delays, before to-nsq fails.' -x
complete -c to-nsq -l delimiter -d 'Byte that separates records; \\n, \\t, \\r, \\0, \\\\ and \\x1e are accepted.' -x
complete -c to-nsq -l rate -d 'Maximum number of messages a second; 0 means no limit.' -x
complete -c to-nsq -l log-level -d 'Write log lines of this level and above: debug, info, warn, error, fatal.' -x -a 'debug info warn error fatal'
complete -c to-nsq -l log-format -d 'Format of the log on stderr: text (lines as Go\'s NSQ writes them) or json (one object a line).' -x -a 'text json'
complete -c to-nsq -l log-prefix -d 'Prefix of every log line.' -x
complete -c to-nsq -l help -d 'Show what the flags mean and exit.'
