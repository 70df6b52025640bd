// SPDX-License-Identifier: BSD-2-Clause
// What the scenarios of extra_api share.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include <mellanox/vma_extra.h>

namespace extra_test {

extern vma_api_t *g_api;
extern pid_t g_peer;
extern const char *g_port; // of this host, for a sender elsewhere

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno,          \
                         std::strerror(errno));                                                                        \
            std::_Exit(1);                                                                                             \
        }                                                                                                              \
    } while (false)

template <typename Call> void fails(Call call, int error, int line)
{
    errno = 0;
    const long result = call();
    if (result >= 0 || errno != error) {
        std::fprintf(stderr, "line %d: %ld with errno %d, not -1 with %d (%s)\n", line, result, errno, error,
                     std::strerror(error));
        std::_Exit(1);
    }
}
#define FAILS(call, error) fails([&] { return static_cast<long>(call); }, error, __LINE__)

inline sockaddr *generic(sockaddr_in &a)
{
    return reinterpret_cast<sockaddr *>(&a);
}

// The peer is made before the sockets that it is not to inherit; `way` carries addresses.
template <typename Peer> int start_peer(Peer peer)
{
    int way[2];
    CHECK(::pipe(way) == 0);
    g_peer = ::fork();
    CHECK(g_peer >= 0);
    if (g_peer == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(way[1]);
        sockaddr_in to = {};
        CHECK(::read(way[0], &to, sizeof to) == sizeof to);
        peer(to);
        std::_Exit(0);
    }
    ::close(way[0]);
    return way[1];
}

inline void end_peer()
{
    ::kill(g_peer, SIGKILL);
    ::waitpid(g_peer, nullptr, 0);
}

inline int bound(int type, sockaddr_in &here)
{
    const int fd = ::socket(AF_INET, type, 0);
    socklen_t size = sizeof here;
    here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && ::bind(fd, generic(here), sizeof here) == 0 && ::getsockname(fd, generic(here), &size) == 0);
    return fd;
}

// A vma_packet_t of one part.
struct Head {
    void *id = nullptr;
    std::size_t parts = 1;
    iovec part = {};
    vma_packet_t *packet() { return reinterpret_cast<vma_packet_t *>(this); }
};
static_assert(sizeof(Head) == sizeof(vma_packet_t) + sizeof(iovec));

// extra_receive.cpp
[[noreturn]] void send_numbers(sockaddr_in to);                // datagrams
std::uint32_t number_of(const void *data, std::size_t length); // of one of these, whose bytes are right
int receiver_of_numbers();                                     // from a peer, or from elsewhere
bool is_time_over(time_t begin);
void udp_zcopy();
void udp_callback();

// extra_callbacks.cpp
void tcp_callback();
void tcp_callback_stream();
void callback_header();

// extra_faults.cpp
void udp_callback_faults();
void tcp_callback_faults();

// extra_matrix.cpp
void matrix();

// extra_waits.cpp
void callback_waits();
void dummies();
void header();

// extra_rings.cpp
void ring();
void own_frames();

// extra_xtreme.cpp
void xtreme();
void xtreme_many();
void xtreme_flood();
void xtreme_threads();
void xtreme_full();
void xtreme_end();

// extra_streams.cpp
void send_stream(sockaddr_in to);
void be_ready(int fd); // what send_stream() waits for
void tcp_zcopy();
void tcp_held_over_fork();
void tcp_kept();

} // namespace extra_test
