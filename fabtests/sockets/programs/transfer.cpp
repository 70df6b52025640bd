// SPDX-License-Identifier: BSD-2-Clause
// An endless or bounded transfer, made to be disturbed: the source sends seeded data, the sink checks it, and both keep
// their positions in a file that the harness reads, so that it outlives a kill. Whoever sees the end says how it was.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "fabtests/sockets/programs/pattern.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

// Four words in the harness's file.
struct Progress {
    std::atomic<std::uint64_t> sent;     // bytes whose send() has returned
    std::atomic<std::uint64_t> received; // bytes whose recv() has returned
    std::atomic<std::uint64_t> pause_at; // the sink stops here ...
    std::atomic<std::uint64_t> go_on;    // ... until this is 1
};

Progress *map_progress(const char *path, unsigned index)
{
    const int fd = must(::open(path, O_RDWR | O_CLOEXEC), "open the progress file");
    void *all = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED)
        die("mmap: %s", strerrorname_np(errno));
    ::close(fd);
    return static_cast<Progress *>(all) + index;
}

void say_end(const char *what, std::uint64_t position, ssize_t n)
{
    std::printf("%s %llu %s\n", what, static_cast<unsigned long long>(position),
                n < 0 ? strerrorname_np(errno) : "end");
    std::fflush(stdout);
}

void source(int fd, std::uint64_t seed, std::uint64_t bytes, std::size_t piece, Progress &progress)
{
    const Pattern pattern(seed);
    std::string block(piece, '\0');
    std::uint64_t at = 0;
    while (at < bytes) {
        const std::size_t len = std::min<std::uint64_t>(piece, bytes - at);
        pattern.fill(at, block.data(), len);
        const ssize_t n = ::send(fd, block.data(), len, 0);
        if (n < 0) {
            say_end("sent", at, n);
            return;
        }
        at += static_cast<std::uint64_t>(n);
        progress.sent = at;
    }
    must(::shutdown(fd, SHUT_WR), "shutdown");
    say_end("sent", at, 0);
}

void sink(int fd, std::uint64_t seed, std::size_t piece, Progress &progress)
{
    const Pattern pattern(seed);
    std::string block(piece, '\0');
    std::uint64_t at = 0;
    for (;;) {
        const std::uint64_t pause_at = progress.pause_at;
        if (pause_at != 0 && at >= pause_at)
            while (progress.go_on == 0)
                ::usleep(1000);
        const ssize_t n = ::recv(fd, block.data(), piece, 0);
        if (n <= 0) {
            say_end("received", at, n);
            return;
        }
        const std::size_t good = pattern.check(at, block.data(), static_cast<std::size_t>(n));
        if (good != static_cast<std::size_t>(n))
            die("wrong byte at %llu; these stand at %lld", static_cast<unsigned long long>(at + good),
                static_cast<long long>(
                    pattern.find(block.data() + good, static_cast<std::size_t>(n) - good, at + 32 * 1024 * 1024)));
        at += static_cast<std::uint64_t>(n);
        progress.received = at;
    }
}

} // namespace

// transfer server|client --control FD up|down|both BYTES PIECE SEED PROGRESS-FILE. "up" is from the client.
int main(int argc, char **argv)
{
    Peer peer = parse_peer(&argc, argv);
    if (argc != 6)
        die("usage: transfer server|client --control FD up|down|both BYTES PIECE SEED PROGRESS-FILE");
    const std::string direction = argv[1];
    const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 0);
    const std::size_t piece = std::strtoull(argv[3], nullptr, 0);
    const std::uint64_t seed = std::strtoull(argv[4], nullptr, 0);
    Progress &progress = *map_progress(argv[5], peer.server ? 0 : 1);
    ::signal(SIGPIPE, SIG_IGN);

    peer.open_listener();
    const int fd = peer.connect_plain();
    peer.offload(fd);
    const bool sends = direction == "both" || (direction == "up") != peer.server;
    const bool receives = direction == "both" || (direction == "up") == peer.server;
    std::thread sender;
    if (sends)
        sender = std::thread([&] { source(fd, seed + peer.server, bytes, piece, progress); });
    if (receives)
        sink(fd, seed + !peer.server, piece, progress);
    if (sends)
        sender.join();
    if (!receives) { // as an application waits for the answer
        char byte;
        const ssize_t n = ::recv(fd, &byte, 1, 0);
        say_end("waited", 0, n);
    }
    ::close(fd);
    return 0;
}
