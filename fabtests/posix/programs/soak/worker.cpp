// SPDX-License-Identifier: BSD-2-Clause
// A soak's worker: the table of its operations, its life and its end, after which it holds nothing.
#include "fabtests/posix/programs/soak/worker.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "fabtests/patience.hpp"
#include "fabtests/posix/programs/soak/soak.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace soak {

namespace {

const auto kEndsWithin = 5 * static_cast<unsigned>(patience::seconds()); // the driver finds out before what hangs
constexpr std::size_t kOwnDescriptorsMost = 100; // of the library: some for each process that it has talked to

const char *const kTcp = "TCP sockets";

struct Operation {
    const char *name;
    std::size_t weight;
    void (*run)(Worker &);
};

constexpr Operation kOperations[] = {
    {"connect", 40, connect_stream},
    {"accept", 80, accept_stream},
    {"send", 300, send_some},
    {"send much", 20, send_much},
    {"receive", 80, receive_some},
    {"wait and receive", 250, receive_when_ready},
    {"epoll", 60, look_at_epoll},
    {"shutdown", 4, shut_one},
    {"close", 30, close_one},
    {"dup", 8, duplicate},
    {"fork", 6, fork_child},
    {"fork and exec", 4, exec_child},
    {"program", 2, start_program},
    {"hand to a program", 4, hand_to_program},
    {"buffers", 12, set_buffers},
    {"pacing", 6, set_rate},
    {"threads", 4, work_in_threads},
    {"pass", 8, pass_one},
    {"take", 20, take_passed},
    {"reap", 20, [](Worker &w) { reap_children(w, false); }},
    {"send datagrams", 60, send_datagram},
    {"receive datagrams", 80, receive_datagrams},
};

void operate(Worker &w)
{
    std::size_t all = 0;
    for (const Operation &operation : kOperations)
        all += operation.weight;
    std::size_t chosen = w.below(all);
    for (const Operation &operation : kOperations) {
        if (chosen < operation.weight) {
            doing(w, operation.name);
            if (!left_out(operation.name))
                operation.run(w);
            return;
        }
        chosen -= operation.weight;
    }
}

// A child's end: by what it holds being closed, by exit, or killed in the middle.
[[noreturn]] void end_child(Worker &w)
{
    if (w.one_in(4)) {
        mark_dead(::getpid(), -1);
        ::raise(SIGKILL);
    }
    if (w.one_in(4)) {
        mark_dead(::getpid(), -1);
        ::_exit(0);
    }
    close_all(w);
    reap_children(w, true);
    g_ledger->doing[w.slot].pid = 0;
    if (w.one_in(2))
        std::exit(0);
    ::_exit(0);
}

void close_sockets(Worker &w)
{
    for (Held &h : w.held)
        h.watched = false;
    for (int *const fd : {&w.listeners[0], &w.listeners[1], &w.datagrams[0], &w.datagrams[1], &w.epoll}) {
        if (*fd >= 0)
            ::close(*fd);
        *fd = -1;
    }
}

// What a descriptor is. Past the library, as some are its own.
std::string kind_of(int fd, const char *link)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof domain;
    if (::syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0)
        return link;
    ::syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &size);
    const bool stream = (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM;
    return stream ? kTcp : "socket of domain " + std::to_string(domain) + " and type " + std::to_string(type);
}

// What this process has open, and how often.
std::map<std::string, std::size_t> open_descriptors()
{
    std::map<std::string, std::size_t> found;
    DIR *const folder = ::opendir("/proc/self/fd");
    while (const dirent *const entry = ::readdir(folder)) {
        char link[200] = {};
        const int fd = std::atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != ::dirfd(folder) &&
            ::readlinkat(::dirfd(folder), entry->d_name, link, sizeof link - 1) > 0)
            ++found[kind_of(fd, link)];
    }
    ::closedir(folder);
    return found;
}

std::size_t count(const std::map<std::string, std::size_t> &descriptors)
{
    std::size_t all = 0;
    for (const auto &[kind, number] : descriptors)
        all += number;
    return all;
}

int threads_now()
{
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line) && line.rfind("Threads:", 0) != 0)
        ;
    return std::atoi(line.c_str() + std::strlen("Threads:"));
}

void check_nothing_left(bool vma, std::size_t descriptors_before)
{
    const std::map<std::string, std::size_t> left = open_descriptors();
    std::string all;
    for (const auto &[kind, number] : left)
        all += "\n  " + std::to_string(number) + " " + kind;
    if (left.count(kTcp) != 0)
        fail(-1, "everything is closed, and the process still has TCP sockets:%s", all.c_str());
    if (count(left) > descriptors_before + (vma ? kOwnDescriptorsMost : 0))
        fail(-1, "%zu descriptors at the start, %zu at the end:%s", descriptors_before, count(left), all.c_str());
    // A thread that has been joined may not have left the kernel yet.
    const int most = vma ? 2 : 1;
    const patience::Deadline deadline;
    int threads = threads_now();
    for (; threads > most && !deadline.over(); threads = threads_now())
        ::usleep(1000);
    if (threads > most)
        fail(-1, "%d threads at the end", threads);
}

void reach(Worker &w, unsigned phase)
{
    g_ledger->workers[w.index].reached = phase;
    doing(w, "wait for the others");
    while (g_ledger->phase <= phase) {
        take_passed(w);
        ::usleep(5000);
    }
}

// In steps that all take together: nothing new is made; what is on its way is taken in; every stream is read to its
// end.
void end_worker(Worker &w)
{
    reap_children(w, true);
    for (int round = 0; round < 400; ++round)
        accept_stream(w);
    reach(w, kNothingNew);
    take_passed(w);
    close_sockets(w);
    reach(w, kTakeIn);
    for (const Held &h : w.held)
        finish_sending(w, h);
    for (const Held &h : w.held)
        read_to_end(w, h);
    reach(w, kReadToTheEnd);
    close_all(w);
    ::close(w.mailbox);
}

// The driver ends all that it started. If somebody kills it, the others end themselves. (fork() forgets the alarm.)
void end_without_driver()
{
    ::alarm(g_ledger->seconds + kEndsWithin);
}

} // namespace

bool left_out(const char *name)
{
    return std::strstr(g_ledger->without, (std::string(name) + ",").c_str()) != nullptr;
}

void doing(const Worker &w, const char *operation, std::int64_t stream)
{
    Doing &mine = g_ledger->doing[w.slot];
    ++mine.count;
    mine.stream = stream;
    std::snprintf(mine.operation, sizeof mine.operation, "%s", operation);
}

void settle_in(Worker &w)
{
    end_without_driver();
    for (unsigned slot = kWorkers; slot < kWorkers + kChildren; ++slot) {
        pid_t free = g_ledger->doing[slot].pid;
        if ((free == 0 || is_dead(free)) && g_ledger->doing[slot].pid.compare_exchange_strong(free, ::getpid())) {
            w.slot = slot;
            doing(w, "start");
            return;
        }
    }
    fail(-1, "more than %u children at a time", kChildren);
}

void work_as_child(Worker &w)
{
    for (std::size_t left = w.below(200); left > 0 && g_ledger->phase == kGoing; --left)
        operate(w);
    end_child(w);
}

// argv: --worker|--heir|--spawned LEDGER INDEX SEED LIST PRELOAD
int work(char **argv)
{
    const bool spawned = std::strcmp(argv[1], "--spawned") == 0;
    const bool heir = spawned || std::strcmp(argv[1], "--heir") == 0;
    ::signal(SIGPIPE, SIG_IGN);
    map_ledger(argv[2]);
    Worker w;
    w.program = argv[0];
    w.ledger_path = argv[2];
    w.index = static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10));
    w.slot = w.index;
    w.random = fabtest::Random(std::strtoull(argv[4], nullptr, 10));
    w.preload = argv[6];
    const char *const preload = std::getenv("LD_PRELOAD");
    w.library = preload != nullptr && std::strstr(preload, "libvma") != nullptr;
    if (heir) {
        adopt(w, argv[5], spawned);
        w.depth = 2;
        settle_in(w);
        work_as_child(w);
    }
    end_without_driver();
    g_ledger->doing[w.slot].pid = ::getpid();
    doing(w, "start");
    g_ledger->workers[w.index].library = w.library;
    const std::size_t before = count(open_descriptors());
    open_mailbox(w);
    open_sockets(w);
    open_datagrams(w);
    while (g_ledger->phase == kGoing)
        operate(w);
    end_worker(w);
    check_nothing_left(w.library, before);
    g_ledger->doing[w.slot].pid = 0;
    return 0;
}

} // namespace soak
