// SPDX-License-Identifier: BSD-2-Clause
// Receives of sockets with a receive callback that name memory which is not there, or has no room for all of it: as on
// a socket without one. What is received was asked about before, in a wait.
#include <netinet/in.h>
#include <sys/mman.h>

#include "fabtests/extra/programs/extra_api.hpp"
#include "fabtests/patience.hpp"

namespace extra_test {

namespace {

constexpr std::size_t kAnswer = 100;

vma_recv_callback_retval_t let_through(int, std::size_t, iovec *, vma_info_t *, void *asked)
{
    ++*static_cast<unsigned *>(asked);
    return VMA_PACKET_RECV;
}

// Answers each message, of whoever that is.
void answer_all(int fd)
{
    char answer[kAnswer];
    std::memset(answer, 'a', sizeof answer);
    for (;;) {
        char byte = 0;
        sockaddr_in from = {};
        socklen_t length = sizeof from;
        if (::recvfrom(fd, &byte, 1, 0, generic(from), &length) != 1)
            return;
        ::sendto(fd, answer, sizeof answer, 0, length != 0 ? generic(from) : nullptr, length);
    }
}

void answer_datagrams(sockaddr_in to)
{
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0 && ::send(fd, "x", 1, 0) == 1);
    answer_all(fd);
}

void answer_stream(sockaddr_in to)
{
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0);
    answer_all(fd);
}

struct Fixture {
    int fd = -1;
    unsigned asked = 0;

    // One more answer is there. Whether it was asked about already.
    bool await()
    {
        const unsigned before = asked;
        CHECK(::send(fd, "y", 1, 0) == 1);
        pollfd p = {fd, POLLIN, 0};
        CHECK(::poll(&p, 1, patience::milliseconds()) == 1 && p.revents == POLLIN);
        return asked != before;
    }
    void begin()
    {
        char room[kAnswer];
        CHECK(g_api->register_recv_callback(fd, let_through, &asked) == 0);
        for (const time_t start = std::time(nullptr); !await();) {
            CHECK(::recv(fd, room, sizeof room, MSG_WAITALL) == sizeof room);
            CHECK(!is_time_over(start));
        }
        CHECK(::recv(fd, room, sizeof room, MSG_WAITALL) == sizeof room);
    }
    ~Fixture()
    {
        ::close(fd);
        end_peer();
    }
};

// A page, behind which is none. (A hole would be filled by who maps memory next.)
char *end_of_memory()
{
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void *const memory = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(::mprotect(static_cast<char *>(memory) + page, page, PROT_NONE) == 0);
    return static_cast<char *>(memory) + page;
}

} // namespace

// A datagram that finds no room is taken all the same.
void udp_callback_faults()
{
    const int way = start_peer(answer_datagrams);
    sockaddr_in here = {};
    Fixture f;
    f.fd = bound(SOCK_DGRAM, here);
    CHECK(::write(way, &here, sizeof here) == sizeof here);
    sockaddr_in peer = {};
    socklen_t size = sizeof peer;
    char room[2 * kAnswer] = {};
    CHECK(::recvfrom(f.fd, room, 1, 0, generic(peer), &size) == 1 && ::connect(f.fd, generic(peer), size) == 0);
    f.begin();
    char *const end = end_of_memory();
    const auto is_gone = [&] { FAILS(::recv(f.fd, room, sizeof room, MSG_DONTWAIT), EAGAIN); };
    CHECK(f.await());
    FAILS(::recv(f.fd, end, kAnswer, 0), EFAULT);
    is_gone();
    CHECK(f.await());
    FAILS(::recv(f.fd, end - kAnswer / 2, kAnswer, 0), EFAULT);
    is_gone();
    CHECK(f.await() && ::recv(f.fd, end - kAnswer / 2, kAnswer / 2, MSG_TRUNC) == kAnswer);
    is_gone();
    CHECK(f.await());
    FAILS(::recvfrom(f.fd, room, sizeof room, 0, generic(peer), reinterpret_cast<socklen_t *>(end)), EFAULT);
    is_gone();
    size = ~0U;
    CHECK(f.await());
    FAILS(::recvfrom(f.fd, room, sizeof room, 0, generic(peer), &size), EINVAL);
    is_gone();
    size = sizeof peer;
    CHECK(f.await());
    FAILS(::recvfrom(f.fd, room, sizeof room, 0, reinterpret_cast<sockaddr *>(end), &size), EFAULT);
    is_gone();
    CHECK(f.await() && ::recvfrom(f.fd, room, sizeof room, 0, generic(peer), &size) == kAnswer && size == sizeof peer);
    CHECK(f.await());
    int flags = 0;
    FAILS(g_api->recvfrom_zcopy(f.fd, end, sizeof room, &flags, nullptr, nullptr), EFAULT);
    CHECK(::recv(f.fd, room, sizeof room, 0) == kAnswer);
}

// Of a stream nothing is lost.
void tcp_callback_faults()
{
    const int way = start_peer(answer_stream);
    sockaddr_in here = {};
    const int listener = bound(SOCK_STREAM, here);
    CHECK(::listen(listener, 1) == 0 && ::write(way, &here, sizeof here) == sizeof here);
    Fixture f;
    f.fd = ::accept(listener, nullptr, nullptr);
    CHECK(f.fd >= 0 && ::close(listener) == 0);
    f.begin();
    char *const end = end_of_memory();
    char room[2 * kAnswer] = {};
    CHECK(f.await());
    FAILS(::recv(f.fd, end, kAnswer, 0), EFAULT);
    iovec parts[] = {{room, kAnswer / 4}, {end, kAnswer}};
    CHECK(::readv(f.fd, parts, 2) == kAnswer / 4);
    CHECK(::recv(f.fd, end, kAnswer / 4, MSG_TRUNC) == kAnswer / 4);
    sockaddr_in peer = {};
    FAILS(::recvfrom(f.fd, room, kAnswer / 4, 0, generic(peer), reinterpret_cast<socklen_t *>(end)), EFAULT);
    socklen_t size = sizeof peer;
    CHECK(::recvfrom(f.fd, room, kAnswer, 0, reinterpret_cast<sockaddr *>(end), &size) == kAnswer / 4 && size == 0);
    FAILS(::recv(f.fd, room, sizeof room, MSG_DONTWAIT), EAGAIN);
}

} // namespace extra_test
