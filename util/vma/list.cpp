// SPDX-License-Identifier: BSD-2-Clause
// vma list: who is accelerated with whom, now. It reads what processes count; they don't notice.
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "compat/src/stats/text.hpp"
#include "util/vma/commands.hpp"
#include "util/vma/processes.hpp"
#include "util/vma_stats/json.hpp"

namespace vma::command {

namespace {

using namespace vma::stats;
using vma_stats::Json;

struct Wishes {
    std::string folder = counters_folder();
    bool json = false;
    bool sockets = false; // a line each
    bool all = false;     // those on the kernel, too
};

const char *carrier(const Facts &f)
{
    switch (f.way) {
    case Way::kLocal:
        return "memory";
    case Way::kRdma:
        return "rdma";
    case Way::kPort:
        return "ethernet";
    default:
        return "kernel";
    }
}

std::string name_of(const Accelerated &process)
{
    return std::to_string(process.pid) + " " + process.program;
}

std::string endpoint(const std::uint8_t (&address)[16], std::uint16_t port, bool known)
{
    char text[kAddressText];
    return known ? print_endpoint(address, port, text) : "*";
}

// Whom it is with: a process, or an address where that is all we know.
std::string other_side(const Ends &ends, const Accelerated &process, const Facts &f)
{
    const End other = ends.other_end(process, f);
    if (other.process != nullptr)
        return name_of(*other.process);
    if ((f.flags & kByVmad) != 0 && is_offloaded(f))
        return "another network namespace (vmad)";
    return (f.flags & kHasPeer) != 0 ? endpoint(f.peer, f.peer_port, true) : "several";
}

struct Sum {
    unsigned sockets = 0;
    std::uint64_t received = 0; // bytes, by whatever way
    std::uint64_t sent = 0;
};

void add(Sum &sum, const Slot &slot)
{
    const Counters c = since(slot.now, slot.zero);
    ++sum.sockets;
    sum.received += c.rx.bytes + c.rx.os_bytes;
    sum.sent += c.tx.bytes + c.tx.os_bytes;
}

std::string size(std::uint64_t bytes)
{
    static constexpr const char *kUnits[] = {"B", "KB", "MB", "GB", "TB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1000 && unit + 1 < std::size(kUnits)) {
        value /= 1000;
        ++unit;
    }
    char text[32];
    snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
    return text;
}

void print_pairs(const Processes &found, const Ends &ends, const Wishes &wishes)
{
    // Process, way, other side; of those on the kernel the reason.
    std::map<std::tuple<pid_t, std::string, std::string>, std::pair<const Accelerated *, Sum>> rows;
    for (const Accelerated &process : found.all)
        for (const Slot &slot : process.snapshot.slots) {
            const Facts &f = slot.facts;
            if (f.fd < 0 || (!wishes.all && !is_offloaded(f)))
                continue;
            const std::string with = is_offloaded(f) ? other_side(ends, process, f) : f.reason;
            auto &row = rows[{process.pid, carrier(f), with}];
            row.first = &process;
            add(row.second, slot);
        }
    printf("%-26s %-9s %7s %9s %9s  %s\n", "PROCESS", "BY", "SOCKETS", "RECEIVED", "SENT",
           wishes.all ? "WITH, OR WHY NOT" : "WITH");
    for (const auto &[key, row] : rows)
        printf("%-26s %-9s %7u %9s %9s  %s\n", name_of(*row.first).c_str(), std::get<1>(key).c_str(),
               row.second.sockets, size(row.second.received).c_str(), size(row.second.sent).c_str(),
               std::get<2>(key).c_str());
}

void print_sockets(const Processes &found, const Ends &ends, const Wishes &wishes)
{
    printf("%-26s %4s %-5s %-9s %-24s %-24s %s\n", "PROCESS", "FD", "KIND", "BY", "LOCAL", "PEER",
           wishes.all ? "WITH, OR WHY NOT" : "WITH");
    for (const Accelerated &process : found.all)
        for (const Slot &slot : process.snapshot.slots) {
            const Facts &f = slot.facts;
            if (f.fd < 0 || (!wishes.all && !is_offloaded(f)))
                continue;
            printf("%-26s %4d %-5s %-9s %-24s %-24s %s\n", name_of(process).c_str(), f.fd,
                   f.protocol == IPPROTO_UDP ? "udp" : "tcp", carrier(f),
                   endpoint(f.local, f.local_port, (f.flags & kHasLocal) != 0).c_str(),
                   endpoint(f.peer, f.peer_port, (f.flags & kHasPeer) != 0).c_str(),
                   is_offloaded(f) ? other_side(ends, process, f).c_str() : f.reason);
        }
}

void print_socket_json(Json &json, const Ends &ends, const Accelerated &process, const Slot &slot)
{
    const Facts &f = slot.facts;
    Sum sum;
    add(sum, slot);
    json.begin(nullptr, '{');
    json.number("fd", static_cast<std::uint64_t>(f.fd));
    json.text("protocol", f.protocol == IPPROTO_UDP ? "udp" : "tcp");
    json.truth("accelerated", is_offloaded(f));
    json.text("way", vma::stats::name_of(f.way));
    json.text("local", endpoint(f.local, f.local_port, (f.flags & kHasLocal) != 0));
    json.text("peer", endpoint(f.peer, f.peer_port, (f.flags & kHasPeer) != 0));
    json.number("received_bytes", sum.received);
    json.number("sent_bytes", sum.sent);
    if (!is_offloaded(f))
        json.text("reason", f.reason);
    if (const End other = ends.other_end(process, f); other.process != nullptr) {
        json.begin("with", '{');
        json.number("pid", static_cast<std::uint64_t>(other.process->pid));
        json.text("program", other.process->program);
        json.number("fd", static_cast<std::uint64_t>(other.socket->fd));
        json.end('}');
    }
    json.end('}');
}

void print_json(const Processes &found, const Ends &ends)
{
    Json json;
    json.begin(nullptr, '{');
    json.begin("processes", '[');
    for (const Accelerated &process : found.all) {
        json.begin(nullptr, '{');
        json.number("pid", static_cast<std::uint64_t>(process.pid));
        json.text("program", process.program);
        json.number("uid", process.snapshot.header.uid);
        json.text("library", process.snapshot.header.library);
        json.begin("sockets", '[');
        for (const Slot &slot : process.snapshot.slots)
            if (slot.facts.fd >= 0)
                print_socket_json(json, ends, process, slot);
        json.end(']');
        json.end('}');
    }
    json.end(']');
    json.number("hidden", found.hidden);
    json.end('}');
    fputs("\n", stdout);
}

void print_sum(const Processes &found, bool all)
{
    unsigned accelerated = 0;
    unsigned kernel = 0;
    for (const Accelerated &process : found.all)
        for (const Slot &slot : process.snapshot.slots)
            if (slot.facts.fd >= 0)
                ++(is_offloaded(slot.facts) ? accelerated : kernel);
    printf("%zu processes with libvma.so; %u sockets accelerated, %u on the kernel%s\n", found.all.size(), accelerated,
           kernel, kernel != 0 && !all ? " (--all says why)" : "");
    if (found.hidden != 0)
        printf("%u more are other users', which root sees\n", found.hidden);
}

constexpr option kOptions[] = {
    {"json", no_argument, nullptr, 'j'},    {"all", no_argument, nullptr, 'a'},
    {"sockets", no_argument, nullptr, 's'}, {"directory", required_argument, nullptr, 'k'},
    {"help", no_argument, nullptr, 'h'},    {nullptr, 0, nullptr, 0},
};

bool parse(int argc, char **argv, Wishes &out, int &status)
{
    for (int found; (found = getopt_long(argc, argv, "jask:h", kOptions, nullptr)) != -1;) {
        switch (found) {
        case 'j':
            out.json = true;
            break;
        case 'a':
            out.all = true;
            break;
        case 's':
            out.sockets = true;
            break;
        case 'k':
            out.folder = optarg;
            break;
        case 'h':
            fputs(help_of("list"), stdout);
            status = kFine;
            return false;
        default:
            status = wrong_usage("list");
            return false;
        }
    }
    if (optind == argc)
        return true;
    fprintf(stderr, "vma list: %s: expected options alone\n", argv[optind]);
    status = wrong_usage("list");
    return false;
}

} // namespace

int list(int argc, char **argv)
{
    Wishes wishes;
    int status = kFine;
    if (!parse(argc, argv, wishes, status))
        return status;
    const Processes found = find_processes(wishes.folder);
    const Ends ends(found);
    if (wishes.json) {
        print_json(found, ends);
        return kFine;
    }
    if (wishes.sockets)
        print_sockets(found, ends, wishes);
    else
        print_pairs(found, ends, wishes);
    print_sum(found, wishes.all);
    return kFine;
}

} // namespace vma::command
