// SPDX-License-Identifier: BSD-2-Clause
// Waits that ask a receive callback; sends that send nothing; the header of a socket's frames.
#include <sys/select.h>

#include "fabtests/extra/programs/extra_api.hpp"
#include "fabtests/patience.hpp"

namespace extra_test {

namespace {

constexpr int kWaitMs = 60;

// A datagram by the endpoint: from then on the library has them, and not the kernel.
void wait_until_accelerated(int fd)
{
    const time_t begin = std::time(nullptr);
    for (int flags = 0; (flags & MSG_VMA_ZCOPY) == 0;) {
        char buffer[2048];
        flags = 0;
        CHECK(!is_time_over(begin) && g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, nullptr, nullptr) > 0);
        vma_packet_t first = {};
        std::memcpy(&first, buffer + sizeof(vma_packets_t), sizeof first);
        if ((flags & MSG_VMA_ZCOPY) != 0)
            CHECK(g_api->free_packets(fd, &first, 1) == 0);
    }
}

struct Judge {
    vma_recv_callback_retval_t verdict = VMA_PACKET_DROP;
    unsigned asked = 0;
    unsigned passes_after = 0; // so many are dropped or held, then one is received; 0: none is
    std::uint32_t passed = 0;  // its number
    std::vector<void *> held;
    std::vector<iovec> parts;
    std::vector<std::uint32_t> numbers;
};

vma_recv_callback_retval_t judge(int, std::size_t, iovec part[], vma_info_t *info, void *context)
{
    Judge &judge = *static_cast<Judge *>(context);
    const std::uint32_t number = number_of(part[0].iov_base, part[0].iov_len);
    if (++judge.asked == judge.passes_after) {
        judge.passed = number;
        return VMA_PACKET_RECV;
    }
    if (judge.verdict != VMA_PACKET_HOLD || judge.held.size() == 20)
        return VMA_PACKET_DROP;
    judge.held.push_back(info->packet_id);
    judge.parts.push_back(part[0]);
    judge.numbers.push_back(number);
    return VMA_PACKET_HOLD;
}

int wait_by_poll(int fd, int, int milliseconds)
{
    pollfd p = {fd, POLLIN, 0};
    return ::poll(&p, 1, milliseconds);
}

int wait_by_select(int fd, int, int milliseconds)
{
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000L};
    const int n = ::select(fd + 1, &in, nullptr, nullptr, &time);
    CHECK(n == (FD_ISSET(fd, &in) ? 1 : 0));
    return n;
}

int wait_by_pselect(int fd, int, int milliseconds)
{
    fd_set in, out;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    FD_ZERO(&out);
    const timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    return ::pselect(fd + 1, &in, &out, nullptr, &time, nullptr);
}

int wait_by_epoll(int, int set, int milliseconds)
{
    epoll_event event = {};
    return ::epoll_wait(set, &event, 1, milliseconds);
}

int set_with(int fd, std::uint32_t events)
{
    const int set = ::epoll_create1(0);
    epoll_event event = {};
    event.events = events;
    CHECK(set >= 0 && ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}

struct Wait {
    int (*wait)(int fd, int set, int milliseconds);
    std::uint32_t events; // of the epoll set
};

// All is dropped: nothing wakes it. (A datagram by the kernel may, once in a while: what is asked about when it is
// received.)
void check_silence(int fd, int set, const Wait &wait, Judge &judge)
{
    unsigned woken = 0; // by something: the sender may have had no processor
    int is_woken = 0;
    for (judge.asked = 0; (is_woken = wait.wait(fd, set, kWaitMs)) != 0 || judge.asked == 0;) {
        char buffer[2048];
        static_cast<void>(::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT));
        woken += is_woken != 0;
        CHECK(woken < 20);
    }
}

// One of many is for the program: that is what it gets.
void check_one(int fd, int set, const Wait &wait, Judge &judge)
{
    judge.asked = 0;
    judge.passes_after = 500;
    CHECK(wait.wait(fd, set, patience::milliseconds()) == 1 && judge.asked >= 500);
    char buffer[2048];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    CHECK(n > 0 && number_of(buffer, static_cast<std::size_t>(n)) == judge.passed);
    judge.passes_after = 0;
}

void give_back(int fd, Judge &judge)
{
    CHECK(judge.held.size() == 20);
    for (std::size_t i = 0; i < judge.held.size(); ++i) {
        CHECK(number_of(judge.parts[i].iov_base, judge.parts[i].iov_len) == judge.numbers[i]);
        vma_packet_t packet = {};
        packet.packet_id = judge.held[i];
        CHECK(g_api->free_packets(fd, &packet, 1) == 0);
    }
    judge = {};
}

} // namespace

void callback_waits()
{
    constexpr Wait kWaits[] = {
        {wait_by_poll, 0},
        {wait_by_select, 0},
        {wait_by_pselect, 0},
        {wait_by_epoll, EPOLLIN},
        {wait_by_epoll, EPOLLIN | EPOLLET},
    };
    const int fd = receiver_of_numbers();
    wait_until_accelerated(fd);
    Judge state;
    CHECK(g_api->register_recv_callback(fd, judge, &state) == 0);
    for (const Wait &wait : kWaits) {
        const int set = wait.events != 0 ? set_with(fd, wait.events) : -1;
        state.verdict = VMA_PACKET_DROP;
        check_silence(fd, set, wait, state);
        check_one(fd, set, wait, state);
        state.verdict = VMA_PACKET_HOLD;
        check_silence(fd, set, wait, state);
        give_back(fd, state);
        if (set >= 0)
            ::close(set);
    }
    // Without it all wakes again.
    CHECK(g_api->register_recv_callback(fd, nullptr, nullptr) == 0);
    CHECK(wait_by_select(fd, -1, patience::milliseconds()) == 1);
    end_peer();
}

namespace {

// Each number is there, and nothing in between.
[[noreturn]] void expect_numbers(int listener_way, sockaddr_in)
{
    sockaddr_in here = {};
    const int fd = bound(SOCK_DGRAM, here);
    CHECK(::write(listener_way, &here, sizeof here) == sizeof here);
    for (std::uint32_t next = 0;; ++next) {
        std::uint32_t number = 0;
        sockaddr_in from = {};
        socklen_t size = sizeof from;
        CHECK(::recvfrom(fd, &number, sizeof number, MSG_TRUNC, generic(from), &size) == sizeof number);
        CHECK(number == next);
        CHECK(::sendto(fd, &number, sizeof number, 0, generic(from), size) == sizeof number);
    }
}

int send_and_wait(int fd, std::uint32_t number)
{
    std::uint32_t answer = 0;
    CHECK(::send(fd, &number, sizeof number, 0) == sizeof number);
    CHECK(::recv(fd, &answer, sizeof answer, 0) == sizeof answer && answer == number);
    return 0;
}

// All calls, all lengths; also to somebody else than whom it is connected to.
unsigned send_dummies(int fd, sockaddr_in to)
{
    static char bytes[4000];
    iovec part = {bytes, 700};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    mmsghdr several[3] = {};
    for (mmsghdr &one : several)
        one.msg_hdr = message;
    for (const std::size_t length : {std::size_t{0}, std::size_t{4}, std::size_t{28}, std::size_t{1472}, sizeof bytes})
        CHECK(::send(fd, bytes, length, VMA_SND_FLAGS_DUMMY) == static_cast<ssize_t>(length));
    CHECK(::sendto(fd, bytes, 12, VMA_SND_FLAGS_DUMMY, generic(to), sizeof to) == 12);
    CHECK(::sendmsg(fd, &message, VMA_SND_FLAGS_DUMMY) == 700);
    CHECK(::sendmmsg(fd, several, 3, VMA_SND_FLAGS_DUMMY) == 3 && several[2].msg_len == 700);
    return 10;
}

} // namespace

// Between datagrams that all arrive; the last line of the log counts them.
void dummies()
{
    int way[2];
    sockaddr_in to = {};
    CHECK(::pipe(way) == 0);
    g_peer = ::fork();
    if (g_peer == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        expect_numbers(way[1], {});
    }
    CHECK(::read(way[0], &to, sizeof to) == sizeof to);
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0);
    std::uint32_t number = 0;
    for (; number < 200; ++number)
        send_and_wait(fd, number);
    unsigned sent = 0;
    for (const std::uint32_t end = number + 5000; number < end; ++number) {
        sent += send_dummies(fd, to);
        send_and_wait(fd, number);
    }
    CHECK(g_api->dump_fd_stats(fd, 3) == 0);
    std::printf("dummies %u\n", sent);
    int status = 0;
    CHECK(::waitpid(g_peer, &status, WNOHANG) == 0); // it has seen nothing else
    end_peer();
}

// Of a socket that is connected to an echo on another host: HEADER_HOST of the environment, HEADER_STREAM for one of
// TCP.
void header()
{
    const char *const host = std::getenv("HEADER_HOST");
    const bool stream = std::getenv("HEADER_STREAM") != nullptr;
    CHECK(host != nullptr && g_port != nullptr);
    sockaddr_in v4 = {};
    sockaddr_in6 v6 = {};
    v4.sin_family = AF_INET;
    v6.sin6_family = AF_INET6;
    v4.sin_port = v6.sin6_port = htons(static_cast<std::uint16_t>(std::atoi(g_port)));
    const bool is_v4 = ::inet_pton(AF_INET, host, &v4.sin_addr) == 1;
    CHECK(is_v4 || ::inet_pton(AF_INET6, host, &v6.sin6_addr) == 1);
    const int fd = ::socket(is_v4 ? AF_INET : AF_INET6, stream ? SOCK_STREAM : SOCK_DGRAM, 0);
    std::uint8_t bytes[128] = {};
    std::uint16_t room = sizeof bytes;
    CHECK(::connect(fd, is_v4 ? generic(v4) : reinterpret_cast<sockaddr *>(&v6), is_v4 ? sizeof v4 : sizeof v6) == 0);
    FAILS(g_api->get_socket_network_header(fd, bytes, &room), ENOTCONN); // it has sent nothing yet
    const time_t begin = std::time(nullptr);
    while (g_api->get_socket_network_header(fd, nullptr, &room) != 0) {
        CHECK(errno == ENOTCONN && !is_time_over(begin));
        char answer[8] = "";
        CHECK(::send(fd, "hello", 5, 0) == 5 && ::recv(fd, answer, sizeof answer, 0) == 5);
    }
    const unsigned length = 14 + (is_v4 ? 20 : 40) + (stream ? 20 : 8);
    CHECK(room == length);
    --room;
    FAILS(g_api->get_socket_network_header(fd, bytes, &room), ENOBUFS);
    room = sizeof bytes;
    CHECK(g_api->get_socket_network_header(fd, bytes, &room) == 0 && room == length);
    for (unsigned i = 0; i < room; ++i)
        std::printf("%02x", bytes[i]);
    std::printf("\n");
    ::close(fd);
}

} // namespace extra_test
