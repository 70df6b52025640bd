# SPDX-License-Identifier: BSD-2-Clause
"""What the debug logs must say about the connections of a test."""

import itertools

from lib import patience


def rounds(pair, one, accelerated):
    """The server and the client of one(0), or of one(1) ..., until accelerated(server, client): a short round may be over before a helper
    thread has had a processor. Those of the last round where it has been too long."""
    deadline = patience.Deadline()
    for number in itertools.count():
        server, client = one(number)
        if not pair.both or deadline.over() or accelerated(server, client):
            return server, client


def in_time(run, ask, what, proc=None):
    """ask(1), or ask(2), ask(4) ... until it holds: for programs that run for so many seconds, or messages, which may be too few for a
    busy machine."""
    times = (1 << number for number in itertools.count())
    run.wait_until(lambda: ask(next(times)), what, proc=proc)


def of_port(port: int):
    """For rounds(): each has accelerated a connection of it."""
    return lambda *procs: all(proc.log().accelerated(port) for proc in procs)


def acceleration(pair, port: int, server, client, *, offloaded: bool = True):
    """Both sides preloaded: each must have accelerated a connection of `port` (`offloaded`: it lived long enough for the
    profile). One side or none: nobody may claim so."""
    for proc, has_library in ((server, pair.server), (client, pair.client)):
        log = proc.log()
        count = log.accelerated(port)
        if not has_library:
            assert not log.lines, f"{proc.name} runs without the library, and yet it logged"
        elif not pair.both:
            assert count == 0, f"{proc.name}: its peer has no library, and yet:\n{_lines(log)}"
        elif offloaded:
            assert count > 0, f"{proc.name}: no connection of port {port} was accelerated\n{_lines(log)}"


def _lines(log) -> str:
    return "\n".join(v.line for v in log.verdicts()) or "(no verdict in the log)"
