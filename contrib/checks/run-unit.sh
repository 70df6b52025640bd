#!/bin/sh
# Runs one cmocka program for `make check` and turns its output into TAP that automake's driver reads: cmocka 1.1.5
# says "not ok 3 # SKIP name" of a skipped test, which TAP takes for a failure. A reason, printed by UNIT_SKIP() as "#
# SKIP: reason" before it, is put where TAP wants it. The exit status stays the program's, so that a crash or a leak
# found at exit counts, but for cmocka's own: the number of failures, which are counted already. A program that hangs
# is ended after UNIT_TIMEOUT seconds: one that computes for two minutes with ThreadSanitizer takes more than five on
# a busy machine. UNIT_RUNNER is a command that runs it, as an emulator.
CMOCKA_MESSAGE_OUTPUT=TAP
export CMOCKA_MESSAGE_OUTPUT
unset CMOCKA_XML_FILE
export VMA_STATS_SHMEM_DIR= # a unit test has no end of the library, which takes its file away

{
    # shellcheck disable=SC2086 # a command and its arguments
    timeout --kill-after=10 "${UNIT_TIMEOUT:-900}" ${UNIT_RUNNER:-} "$@" 2>&1
    echo "# exit status: $?"
} | awk '
    /^# exit status: /      { status = $4; if (status == 124) print "# timed out"; next }
    /^# SKIP: /             { reason = substr($0, 9); next }
    /^not ok [0-9]+ # SKIP/ { printf "ok %s - %s # SKIP %s\n", $3, $6, reason; reason = ""; next }
                            { print; fflush() }
    /^not ok /              { failures++ }
    END                     { exit status == failures ? 0 : status }'
