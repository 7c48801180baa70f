#!/usr/bin/env bash
# nsqlookupd and nsqd together on this machine, on the default ports, until Ctrl-C. `make run` calls it.
#
#   contrib/run-local.sh BIN DATA     BIN has nsqd-py and nsqlookupd-py; DATA keeps the messages
#
# More flags for either: NSQLOOKUPD_FLAGS, NSQD_FLAGS. Where nsqd finds nsqlookupd: NSQLOOKUPD_TCP_ADDRESS.
set -euo pipefail
# Process groups of their own: Ctrl-C comes to this script only, which passes it on once.
set -m

bin=$1
data=$2
mkdir -p "$data"

"$bin/nsqlookupd-py" --broadcast-address=127.0.0.1 ${NSQLOOKUPD_FLAGS:-} &
nsqlookupd=$!
"$bin/nsqd-py" --broadcast-address=127.0.0.1 --data-path="$data" \
    --lookupd-tcp-address="${NSQLOOKUPD_TCP_ADDRESS:-127.0.0.1:4160}" ${NSQD_FLAGS:-} &
nsqd=$!

asked=
trap 'asked=1; kill -TERM "$nsqd" "$nsqlookupd" 2>/dev/null || true' INT TERM
# Both serve until they are asked to stop; where one ends by itself, so does the other.
status=0
wait -n "$nsqd" "$nsqlookupd" || status=$?
[ -n "$asked" ] || kill -TERM "$nsqd" "$nsqlookupd" 2>/dev/null || true
for process in "$nsqd" "$nsqlookupd"; do
    while kill -0 "$process" 2>/dev/null; do wait "$process" || true; done
done
[ -n "$asked" ] || exit "$status"
