complete -c nsq-to-file -f
complete -c nsq-to-file -l version -d 'Print the version and exit.'
complete -c nsq-to-file -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsq-to-file -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsq-to-file -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsq-to-file -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsq-to-file -l nsqd-tcp-address -d 'TCP address (host:port) of an nsqd to consume from (may be given several times).' -x
complete -c nsq-to-file -l lookupd-http-address -d 'HTTP address (host:port) of an nsqlookupd that lists the nsqds of the topic (may be given several times).' -x
complete -c nsq-to-file -l topic -d 'NSQ topic (may be given several times).' -x
complete -c nsq-to-file -l topic-pattern -d 'Archive only topics that contain a match of this regular expression (RE2); without --topic, of all topics of the nsqlookupds.' -x
complete -c nsq-to-file -l topic-refresh -d 'Time between two requests to the nsqlookupds for new topics, if no --topic is given.' -x
complete -c nsq-to-file -l channel -d 'NSQ channel.' -x
complete -c nsq-to-file -l max-in-flight -d 'Maximum number of messages in flight.' -x
complete -c nsq-to-file -l consumer-opt -d 'Option of the consumer as name,value with the names of go-nsq\'s Config, such as tls_v1,true or msg_timeout,30s (may be given several times).' -x
complete -c nsq-to-file -l output-dir -d 'Directory for finished files and the manifest.' -r -F
complete -c nsq-to-file -l work-dir -d 'Directory for files that are being written; it may be on another file system.' -r -F
complete -c nsq-to-file -l filename-format -d 'Names of files, optionally with directories. <TOPIC>, <HOST>, <PID>, <DATETIME> and <REV> are replaced; <REV> is a number that is increased if the file exists. The ending of the default depends on the format: .log, .jsonl, .framed or .parquet, followed by .gz or .zst if the file is compressed.' -x
complete -c nsq-to-file -l datetime-format -d 'Format of <DATETIME>, as for strftime.' -x
complete -c nsq-to-file -l host-identifier -d 'Value of <HOST>; <SHORT_HOST> and <HOSTNAME> are replaced in it.' -x
complete -c nsq-to-file -l skip-empty-files -d 'Create a file only when there is a message for it.'
complete -c nsq-to-file -l format -d 'lines (each body and a newline, as in Go\'s nsq_to_file), jsonl (one object a message), framed (records with checksums, which Spark can split) or parquet (needs pyarrow).' -x -a 'lines jsonl framed parquet'
complete -c nsq-to-file -l compress -d 'none, gzip or zstd. Files in the framed format can use none or zstd; parquet compresses its columns.' -x -a 'none gzip zstd'
complete -c nsq-to-file -l gzip -d 'The same as --compress=gzip.'
complete -c nsq-to-file -l gzip-level -d '1 (fastest) to 9 (smallest). 2 to 6 are nearly the same: fast, and 12 % larger than with zlib, which 7 to 9 use.' -x
complete -c nsq-to-file -l zstd-level -d '1 (fastest) to 19 (smallest).' -x
complete -c nsq-to-file -l rotate-size -d 'Start a new file when the current one exceeds this number of bytes, before compression; 0 means no limit.' -x
complete -c nsq-to-file -l rotate-interval -d 'Start a new file after this time; 0 means never.' -x
complete -c nsq-to-file -l sync-interval -d 'Maximum time until a message is synced to the disk and finished.' -x
complete -c nsq-to-file -l http-client-connect-timeout -d 'Timeout for connecting to an HTTP server.' -x
complete -c nsq-to-file -l http-client-request-timeout -d 'Timeout for an HTTP response.' -x
complete -c nsq-to-file -l http-client-tls-root-ca-file -d 'Trusted certificate authorities for https:// addresses (PEM file); by default those of the system.' -r -F
complete -c nsq-to-file -l http-client-tls-cert -d 'Client certificate for https:// addresses (PEM file).' -r -F
complete -c nsq-to-file -l http-client-tls-key -d 'Private key of the client certificate (PEM file).' -r -F
complete -c nsq-to-file -l tls-security-level -d 'OpenSSL security level of server and client connections: 0 to 5, or default. Level 0 accepts keys below 2048 bits, SHA-1 signatures, and TLS 1.0 and 1.1.' -x -a 'default 0 1 2 3 4 5'
complete -c nsq-to-file -l log-level -d 'Write log lines of this level and above: debug, info, warn, error, fatal.' -x -a 'debug info warn error fatal'
complete -c nsq-to-file -l log-format -d 'Format of the log on stderr: text (lines as Go\'s NSQ writes them) or json (one object a line).' -x -a 'text json'
complete -c nsq-to-file -l log-prefix -d 'Prefix of every log line.' -x
complete -c nsq-to-file -l help -d 'Show what the flags mean and exit.'
