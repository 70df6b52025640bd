// SPDX-License-Identifier: BSD-2-Clause
// The ledger of a soak: see ledger.hpp.
#include "fabtests/posix/programs/soak/ledger.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fabtests/sockets/programs/peer.hpp"

namespace soak {

Ledger *g_ledger;

namespace {

std::uint64_t now_us()
{
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

void map(const char *path, int flags)
{
    const int fd = fabtest::must(::open(path, flags | O_CLOEXEC, 0600), path);
    if ((flags & O_CREAT) != 0)
        fabtest::must(::ftruncate(fd, sizeof(Ledger)), "ftruncate");
    void *const place = ::mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (place == MAP_FAILED)
        fabtest::die("mmap of %s: %s", path, strerrorname_np(errno));
    ::close(fd);
    g_ledger = static_cast<Ledger *>(place);
}

void print_flow(unsigned number, const Flow &flow)
{
    std::fprintf(stderr, "  side %u sends: begun up to %llu, sent %llu, read %llu%s%s, writer %d, reader %d\n", number,
                 static_cast<unsigned long long>(flow.intended.load()),
                 static_cast<unsigned long long>(flow.sent.load()), static_cast<unsigned long long>(flow.read.load()),
                 flow.shut ? ", shut" : "", flow.ended ? ", ended" : "", flow.writer.load(), flow.reader.load());
}

void print_side(unsigned number, const Side &side)
{
    std::string holders;
    for (const auto &holder : side.holders)
        if (holder != 0)
            holders += " " + std::to_string(holder) + (is_dead(holder) ? " (dead)" : "");
    std::fprintf(stderr, "  side %u: held by%s%s%s%s\n", number, holders.c_str(), side.leaving ? ", leaving" : "",
                 side.error_seen ? ", error seen" : "", side.nonblocking ? ", non-blocking" : "");
    side.history.print("    ");
}

} // namespace

void make_ledger(const char *path, std::uint64_t seed)
{
    map(path, O_RDWR | O_CREAT | O_TRUNC);
    g_ledger->seed = seed;
    g_ledger->began_us = now_us();
}

void map_ledger(const char *path)
{
    map(path, O_RDWR);
}

std::uint32_t since_start_us()
{
    return static_cast<std::uint32_t>(now_us() - g_ledger->began_us);
}

void History::add(const char *call, std::uint64_t position, std::uint32_t length, std::int64_t result)
{
    Record &record = records_[count_++ % records_.size()];
    record = {::getpid(), since_start_us(), position, result, length, {}};
    std::snprintf(record.call, sizeof record.call, "%s", call);
}

void History::print(const char *title) const
{
    const std::uint32_t count = count_, size = static_cast<std::uint32_t>(records_.size());
    for (std::uint32_t i = count > size ? count - size : 0; i < count; ++i) {
        const Record &r = records_[i % size];
        const char *const error = r.result < 0 ? ::strerrorname_np(static_cast<int>(-r.result)) : nullptr;
        std::fprintf(stderr, "%s%10u us process %d: %s at %llu, %u bytes: %lld%s%s\n", title, r.microseconds, r.pid,
                     r.call, static_cast<unsigned long long>(r.position), r.length, static_cast<long long>(r.result),
                     error != nullptr ? " " : "", error != nullptr ? error : "");
    }
}

void show_sockets(const std::string &which)
{
    if (std::system(("env -u LD_PRELOAD ss -tanompie " + which + " >&2").c_str()) != 0)
        std::fputs("ss shows nothing\n", stderr);
}

void fail(std::int64_t stream, const char *format, ...)
{
    if (g_ledger->failing.exchange(true))
        for (;;)
            ::pause(); // what was seen first is what counts: this process is about to be ended
    std::va_list args;
    va_start(args, format);
    char text[1000];
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *const preload = std::getenv("LD_PRELOAD");
    std::fprintf(stderr, "soak: FAILED, seed %llu, %u us after the start, process %d (%s the library): %s\n",
                 static_cast<unsigned long long>(g_ledger->seed), since_start_us(), ::getpid(),
                 preload != nullptr && *preload != '\0' ? "with" : "without", text);
    if (stream >= 0) {
        const Stream &s = g_ledger->streams[stream];
        std::fprintf(stderr, "stream %lld:%s\n", static_cast<long long>(stream), s.accepted ? "" : " not yet accepted");
        for (unsigned i = 0; i < 2; ++i)
            print_flow(i, s.flows[i]);
        for (unsigned i = 0; i < 2; ++i)
            print_side(i, s.sides[i]);
    }
    std::fflush(stderr);
    g_ledger->failed = true;
    ::_exit(3);
}

void hold(Side &side)
{
    for (auto &holder : side.holders) {
        pid_t nobody = 0;
        if (holder.compare_exchange_strong(nobody, ::getpid()))
            return;
    }
    side.leaving = true; // more than there is room for: what is not known is not asked for
}

void let_go(Side &side)
{
    side.leaving = true;
    for (auto &holder : side.holders) {
        pid_t me = ::getpid();
        if (holder.compare_exchange_strong(me, 0))
            return;
    }
}

void mark_dead(pid_t pid, int worker)
{
    const unsigned used = std::min(g_ledger->next_stream.load(), kStreams);
    for (unsigned i = 0; i < used; ++i)
        for (Side &side : g_ledger->streams[i].sides) {
            const bool held = std::any_of(std::begin(side.holders), std::end(side.holders),
                                          [=](const auto &holder) { return holder == pid; });
            if (held || (worker >= 0 && side.on_the_way_to == static_cast<unsigned>(worker) + 1))
                side.leaving = true;
        }
}

bool is_dead(pid_t pid)
{
    char path[40], text[400];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    const ssize_t n = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (n <= 0)
        return true;
    text[n] = '\0';
    const char *const end = std::strrchr(text, ')');
    return end == nullptr || end[2] == 'Z' || end[2] == 'X';
}

Claim::Claim(std::atomic<pid_t> &owner) : owner_(&owner)
{
    pid_t nobody = 0;
    if (!owner.compare_exchange_strong(nobody, ::gettid()))
        owner_ = nullptr;
}

Claim::~Claim()
{
    if (owner_ != nullptr)
        *owner_ = 0;
}

} // namespace soak
