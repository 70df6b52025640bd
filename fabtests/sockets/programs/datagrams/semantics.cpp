// SPDX-License-Identifier: BSD-2-Clause
// The main program of datagram scenarios, which also is what some of them start. See side.hpp.
#include <cstdlib>
#include <thread>

#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace fabtest {

namespace {

Registration *g_scenarios = nullptr;

} // namespace

Registration::Registration(const char *scenario, void (*function)(Datagrams &))
    : name(scenario), run(function), next(g_scenarios)
{
    g_scenarios = this;
}

} // namespace fabtest

namespace {

using namespace fabtest;

void play(Datagrams &me, const Registration &scenario)
{
    me.link = me.open("C", "S");
    scenario.run(me);
    me.say("done");
}

// Both sides in one process, a thread each; the client's transcript goes to standard output.
void play_both(const Datagrams &both, const Registration &scenario)
{
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "socketpair");
    Datagrams server = both, client = both;
    server.server = true;
    server.control = ends[0];
    client.control = ends[1];
    client.transcript = STDOUT_FILENO;
    std::thread thread([&] { play(server, scenario); });
    play(client, scenario);
    thread.join();
}

} // namespace

// semantics server|client|both [--control FD] [--bind A --to A --from A] SCENARIO. The transcript goes to standard
// error.
int main(int argc, char **argv)
{
    if (argc == 2 && std::strcmp(argv[1], "--stranger") == 0)
        return be_a_stranger(STDIN_FILENO);
    if (argc == 4 && std::strcmp(argv[1], "--inherited") == 0)
        return inherited_socket(std::atoi(argv[2]), std::atoi(argv[3]));
    Datagrams me;
    const bool both = argc > 1 && std::strcmp(argv[1], "both") == 0;
    if (!both)
        static_cast<Peer &>(me) = parse_peer(&argc, argv);
    std::string wanted;
    for (int i = both ? 2 : 1; i < argc; ++i) {
        const std::string arg = argv[i];
        std::string *place = arg == "--bind"   ? &me.bound
                             : arg == "--to"   ? &me.to
                             : arg == "--from" ? &me.from
                                               : nullptr;
        (place == nullptr ? wanted : *place) = place == nullptr || i + 1 == argc ? arg : argv[++i];
    }
    for (const Registration *r = g_scenarios; r != nullptr; r = r->next) {
        if (r->name != wanted)
            continue;
        if (both)
            play_both(me, *r);
        else
            play(me, *r);
        return 0;
    }
    die("no scenario %s", wanted.c_str());
}
