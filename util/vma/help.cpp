// SPDX-License-Identifier: BSD-2-Clause
// What `vma help` prints. man/vma.1 says it at length.
#include <cstring>

#include "util/vma/commands.hpp"

namespace vma::command {

namespace {

struct Page {
    const char *command;
    const char *text;
};

#define VMA_HELP_SETTINGS                                                                                              \
    "  -l, --latency          VMA_SPEC=latency: the shortest way; each end keeps a processor busy\n"                   \
    "  -p, --profile PROFILE  VMA_SPEC=PROFILE (libvma(7) lists them)\n"                                               \
    "  -e, --ethernet IF,...  VMA_ETHERNET=IF,...: these interfaces, too, with any peer (root)\n"                      \
    "  -s, --set NAME=VALUE   any parameter of libvma(7)\n"                                                            \
    "      --log LEVEL        VMA_TRACELEVEL=LEVEL\n"                                                                  \
    "      --library FILE     this libvma.so\n"

constexpr Page kPages[] = {
    {"", R"(vma: programs with libvma.so

usage: vma COMMAND [ARGUMENT...]

  run [OPTIONS] -- PROGRAM [ARGUMENT...]   start a program with the library
  check [PID | FILE]                       what costs acceleration: of the machine, a process, a file of rules
  list [OPTIONS]                           who is accelerated with whom, now
  explain [PID] ADDRESS:PORT               why a connection is not accelerated, and what to do
  demo                                     measure it here, in some seconds
  enable [OPTIONS] NAME.service            have systemd start a service with the library
  disable NAME.service                     take that back
  version                                  of this command, and which library it finds
  help [COMMAND]

  vma run -- redis-server --port 7000
)"},
    {"run", "usage: vma run [OPTIONS] [--] PROGRAM [ARGUMENT...]\n\n"
            "Becomes PROGRAM, with libvma.so preloaded. What costs acceleration is said first, a line each; the\n"
            "program starts in any case.\n\n" VMA_HELP_SETTINGS "  -q, --quiet            say nothing\n"
            "  -v, --verbose          say also what costs most programs nothing\n\n"
            "Variables VMA_* of the environment count, too. Exit status: PROGRAM's; 2 wrong usage, 126 it can't be\n"
            "executed, 127 it was not found.\n"},
    {"check", R"(usage: vma check                        the machine, for who asks
       vma check PID                    a process that runs
       vma check FILE [ARGUMENT...]     a libvma.conf; the arguments are libvma-check(1)'s

Says what costs acceleration, and how to mend it, a line each.
Exit status: 0 nothing does; 1 something does, or the file has errors; 2 wrong usage, or no such process.
)"},
    {"list", R"(usage: vma list [OPTIONS]

Who is accelerated with whom, now: all processes that one may see; root sees those of all users.

  -s, --sockets          a line for each socket
  -a, --all              also those on the kernel, and why
  -j, --json             everything, as one object
  -k, --directory DIR    where the counters are (VMA_STATS_SHMEM_DIR, /tmp)

vma_stats --live shows one process's sockets and goes on doing so.
)"},
    {"explain", R"(usage: vma explain [PID] ADDRESS:PORT
       vma explain VMA_PARAMETER

Both ends of the connections of this address, which of them has the library, and why the connection is on the kernel.
Addresses are 127.0.0.1:6379, [::1]:6379, and *:6379 for any. With PID: of this process, in its network namespace.
With the name of a parameter: what it is.

Exit status: 0; 1 there is no such socket; 2 wrong usage.
)"},
    {"demo", R"(usage: vma demo [OPTIONS]

Two processes exchange messages over TCP, by the kernel and by the library, and a table says how long a round trip takes.

  -t, --seconds N        for each way; 1 by default
  -b, --size N           bytes of a message; 64 by default
      --library FILE     this libvma.so

Exit status: 0; 1 something failed or was not accelerated; 2 wrong usage.
)"},
    {"enable",
     "usage: vma enable [OPTIONS] NAME.service\n\n"
     "Writes /etc/systemd/system/NAME.service.d/50-vma.conf, with which systemd starts the service with\n"
     "libvma.so, and says which of the unit's settings cost acceleration. It restarts nothing.\n\n" VMA_HELP_SETTINGS
     "  -m, --mend             undo these settings in the drop-in, as far as settings can\n"
     "  -f, --force            write over a file that vma did not write, or that was changed by hand\n"
     "      --root DIR         of a system that lies in DIR\n\n"
     "Exit status: 0 written; 1 no such unit, no library, or it can't be written; 2 wrong usage.\n"},
    {"disable", R"(usage: vma disable [OPTIONS] NAME.service

Removes what `vma enable` wrote, and nothing else.

  -f, --force            even if it was changed by hand
      --root DIR         of a system that lies in DIR

Exit status: 0 removed; 1 it was not there, is not vma's, or can't be removed; 2 wrong usage.
)"},
    {"version", "usage: vma version\n"},
    {"help", "usage: vma help [COMMAND]\n"},
};

} // namespace

const char *help_of(const char *command)
{
    for (const Page &page : kPages)
        if (std::strcmp(page.command, command) == 0)
            return page.text;
    return nullptr;
}

} // namespace vma::command
