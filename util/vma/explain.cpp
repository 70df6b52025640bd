// SPDX-License-Identifier: BSD-2-Clause
// vma explain: why the connections of an address are not accelerated, and what to do. Both ends are looked at, as the
// one that has the library can't know what the other one lacks.
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "compat/src/stats/text.hpp"
#include "util/vma/commands.hpp"
#include "util/vma/files.hpp"
#include "util/vma/loaded.hpp"
#include "util/vma/parties.hpp"
#include "util/vma/reasons.hpp"
#include "util/vma_stats/options.hpp"

namespace vma::command {

namespace {

constexpr std::size_t kMostShown = 20;

std::string endpoint(const in6_addr &address, std::uint16_t port)
{
    std::uint8_t bytes[16];
    char text[vma::stats::kAddressText];
    memcpy(bytes, &address, sizeof bytes);
    return vma::stats::print_endpoint(bytes, port, text);
}

bool is_accelerated(const Party &p)
{
    return p.facts != nullptr && vma::stats::is_offloaded(*p.facts);
}

const char *carrier(const Party &p)
{
    switch (p.facts->way) {
    case vma::stats::Way::kLocal:
        return "over shared memory";
    case vma::stats::Way::kRdma:
        return "over an RDMA device";
    default:
        return "over an Ethernet port";
    }
}

std::string name_of(const Party &p)
{
    if (p.pid == 0)
        return "a process that we may not look at";
    return std::to_string(p.pid) + " " + name_of_process(p.pid);
}

// Of an end that the library doesn't follow.
void explain_without(const Party &p)
{
    const std::optional<Place> place = p.pid != 0 ? read_place(p.pid) : std::nullopt;
    if (!place) {
        printf("  %s has it; its user and root may ask\n", name_of(p).c_str());
        return;
    }
    if (!place->library.empty()) {
        printf("  %s: on the kernel: its library does not follow this socket; %s\n", name_of(p).c_str(),
               what_to_do("neither connected nor accepted by this process"));
        return;
    }
    for (const Finding &one : judge_loaded(*place, running_program(*place)))
        printf("  %s: on the kernel: %s; %s\n", name_of(p).c_str(), one.what.c_str(), one.mend.c_str());
}

// `other_lacks`: the end at the other side has no library, which is why none was found.
void explain_end(const Party &p, bool other_lacks)
{
    if (p.facts == nullptr)
        return explain_without(p);
    if (is_accelerated(p)) {
        printf("  %s, fd %d: accelerated, %s\n", name_of(p).c_str(), p.facts->fd, carrier(p));
        return;
    }
    const std::string_view reason = p.facts->reason;
    printf("  %s, fd %d: on the kernel: %s", name_of(p).c_str(), p.facts->fd, p.facts->reason);
    if (other_lacks)
        printf("; see the other end\n");
    else
        printf("%s%s\n", *what_to_do(reason) != '\0' ? "; " : "", what_to_do(reason));
}

void explain_pair(const Party &p, const Party *other)
{
    const bool udp = p.protocol == IPPROTO_UDP;
    printf("%s %s %s", udp ? "udp" : "tcp", endpoint(p.local, p.local_port).c_str(),
           p.peer_port != 0 ? "- " : "(no peer)");
    printf("%s\n", p.peer_port != 0 ? endpoint(p.peer, p.peer_port).c_str() : "");
    explain_end(p, other != nullptr && other->facts == nullptr && p.facts != nullptr);
    if (other != nullptr)
        explain_end(*other, p.facts == nullptr && other->facts != nullptr);
    else if (p.peer_port != 0 && !udp && !is_accelerated(p))
        printf("  the other end is not in this network namespace\n");
}

// Connections, or what listens or has no peer where there are none. Returns how many there were.
std::size_t explain_all(const std::vector<Party> &parties, pid_t pid)
{
    std::vector<bool> done(parties.size(), false);
    std::size_t count = 0;
    for (const bool connected : {true, false}) {
        if (count != 0)
            break;
        for (std::size_t i = 0; i < parties.size(); ++i) {
            if (done[i] || (parties[i].peer_port != 0) != connected)
                continue;
            std::size_t other = i + 1;
            while (other < parties.size() && (done[other] || !are_two_ends(parties[i], parties[other])))
                ++other;
            const Party *const second = other < parties.size() ? &parties[other] : nullptr;
            if (second != nullptr)
                done[other] = true;
            if (pid != 0 && parties[i].pid != pid && (second == nullptr || second->pid != pid))
                continue;
            if (++count <= kMostShown)
                explain_pair(parties[i], second);
        }
    }
    if (count > kMostShown)
        printf("%zu more are not shown: name the address of one of them\n", count - kMostShown);
    return count;
}

int explain_parameter(const char *name)
{
    if (vma_stats::explain(name))
        return kFine;
    fprintf(stderr, "vma explain: '%s' is not a parameter (expected one of those that vma_stats --explain lists)\n",
            name);
    return kUsage;
}

int explain_address(const char *text, pid_t pid)
{
    Address address;
    std::string error;
    if (!parse_address(text, address, error)) {
        fprintf(stderr, "vma explain: %s: %s\n", text, error.c_str());
        return wrong_usage("explain");
    }
    if (pid != 0 && ::access(("/proc/" + std::to_string(pid)).c_str(), F_OK) != 0) {
        fprintf(stderr, "vma explain: there is no process %d\n", pid);
        return kUsage;
    }
    std::string folder = counters_folder();
    if (const std::optional<Place> place = pid != 0 ? read_place(pid) : std::nullopt;
        place && !place->variable("VMA_STATS_SHMEM_DIR").empty())
        folder = place->variable("VMA_STATS_SHMEM_DIR");
    const Processes known = find_processes(folder);
    const std::vector<Party> parties = find_parties(address, pid != 0 ? pid : ::getpid(), known);
    if (explain_all(parties, pid) != 0)
        return kFine;
    fprintf(stderr, "vma explain: no socket%s has the address %s\n",
            pid != 0 ? " of this process" : " of this network namespace, nor of a process with libvma.so,", text);
    return kNo;
}

} // namespace

int explain(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
        fputs(help_of("explain"), stdout);
        return kFine;
    }
    if (argc == 2 && strncmp(argv[1], "VMA_", 4) == 0)
        return explain_parameter(argv[1]);
    if (argc == 2)
        return explain_address(argv[1], 0);
    const auto pid = argc == 3 ? parse_number(argv[1], INT32_MAX) : std::nullopt;
    if (pid && *pid != 0)
        return explain_address(argv[2], static_cast<pid_t>(*pid));
    fprintf(stderr, "vma explain: expected [PID] ADDRESS:PORT, or the name of a parameter\n");
    return wrong_usage("explain");
}

} // namespace vma::command
