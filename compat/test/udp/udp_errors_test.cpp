// SPDX-License-Identifier: BSD-2-Clause
// Errors of datagrams that were refused: each is the kernel's, is told at once by whatever looks, until somebody takes
// it, and then not again.
#include "compat/test/udp/udp_socket.hpp"

#include <poll.h>
#include <sched.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "compat/src/engine/places.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint32_t kAsked = POLLIN | POLLOUT;

std::uint32_t look(const UdpSocket &socket)
{
    return sock::ready_events(*socket.s, socket.fd, kAsked);
}

int option_error(const UdpSocket &socket)
{
    int error = -1;
    socklen_t size = sizeof error;
    assert_int_equal(sock::get_option(*socket.s, socket.fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    return error;
}

void await_option_error(const UdpSocket &socket)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    int error = option_error(socket);
    for (; error == 0 && sock::now_ns() < until; error = option_error(socket))
        ::sched_yield();
    assert_int_equal(error, ECONNREFUSED);
}

int queued_error(const UdpSocket &socket)
{
    char bytes[kLongest];
    char control[512];
    iovec part = {bytes, sizeof bytes};
    msghdr msg = {};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    return sock::receive_msg(*socket.s, socket.fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0 ? errno : 0;
}

bool is_refused(const UdpSocket &from, const UdpSocket &to)
{
    return !from.send_number(0, 0, to.address) && errno == ECONNREFUSED;
}

bool may_be_told(const UdpSocket &socket)
{
    return (sock::ready_events_fast(*socket.s, POLLOUT) & POLLERR) != 0;
}

// Without a look that asks the kernel: so that none is missed by one that finds other things.
void await_error(const UdpSocket &socket)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (!may_be_told(socket) && sock::now_ns() < until)
        ::sched_yield();
    assert_true(may_be_told(socket));
}

// By another program's call, so to say.
void send_past_the_library(const UdpSocket &from, const UdpSocket &to)
{
    assert_int_equal(::sendto(from.fd, "x", 1, 0, reinterpret_cast<const sockaddr *>(&to.address), sizeof to.address),
                     1);
}

// Accelerated both ways, and hears of errors. `gone` is where nobody is (any more).
struct Speaker {
    UdpSocket socket;
    UdpSocket peer;
    UdpSocket gone;

    Speaker()
    {
        const int on = 1;
        assert_int_equal(socket.set(IPPROTO_IP, IP_RECVERR, on), 0);
        assert_true(accelerate_all({{socket, peer}, {peer, socket}}));
        assert_true(socket.takes_by_endpoint());
        gone.close();
        look(socket); // what it was told when it was accelerated is over
        assert_int_equal(option_error(socket), 0);
    }
    // The answer is there when the kernel has sent it, but for a machine that is so busy that it is put off.
    void be_refused() const
    {
        assert_true(socket.send_number(0, 0, gone.address));
        await_error(socket);
    }
};

void is_told_until_it_is_taken(void **)
{
    const Speaker speaker;
    const UdpSocket &a = speaker.socket;
    assert_int_equal(look(a), POLLOUT);
    for (int i = 0; i < 3; ++i) {
        speaker.be_refused();
        assert_int_equal(look(a), POLLOUT | POLLERR);
        assert_int_equal(look(a), POLLOUT | POLLERR);
        assert_int_equal(option_error(a), ECONNREFUSED);
        assert_int_equal(look(a), POLLOUT | POLLERR); // the error queue
        assert_int_equal(queued_error(a), 0);
        assert_int_equal(look(a), POLLOUT);
        assert_int_equal(queued_error(a), EAGAIN);
    }
}

// Wherever to, and also by an endpoint.
void fails_the_next_send(void **)
{
    const Speaker speaker;
    speaker.be_refused();
    assert_true(is_refused(speaker.socket, speaker.peer));
    assert_true(speaker.socket.send_number(0, 1, speaker.peer.address));
    Datagram datagram;
    assert_true(datagram.is_whole(speaker.peer.receive(datagram)));
    assert_int_equal(datagram.number, 1); // not the refused one
}

// Before what is there to be read.
void fails_the_next_receive(void **)
{
    const Speaker speaker;
    assert_true(speaker.peer.send_number(0, 1, speaker.socket.address));
    speaker.be_refused();
    assert_int_equal(look(speaker.socket), kAsked | POLLERR);
    Datagram datagram;
    assert_int_equal(speaker.socket.receive(datagram, MSG_DONTWAIT), -1);
    assert_int_equal(errno, ECONNREFUSED);
    assert_true(datagram.is_whole(speaker.socket.receive(datagram)));
}

// What stands next in the error queue is the socket's error from then on.
void comes_again_from_the_queue(void **)
{
    const Speaker speaker;
    for (int i = 0; i < 2; ++i) {
        speaker.be_refused();
        await_option_error(speaker.socket); // what was told may be the first one's entry in the queue
    }
    assert_true(speaker.socket.send_number(0, 1, speaker.peer.address));
    assert_int_equal(queued_error(speaker.socket), 0);
    assert_true(is_refused(speaker.socket, speaker.peer));
    assert_int_equal(queued_error(speaker.socket), 0);
    assert_true(speaker.socket.send_number(0, 2, speaker.peer.address));
}

// As from another host: no send of ours is there to look. The helper thread hears of it.
void comes_later(void **)
{
    const Speaker speaker;
    const UdpSocket &a = speaker.socket;
    send_past_the_library(a, speaker.gone);
    await_error(a);
    assert_int_equal(look(a), POLLOUT | POLLERR);
    assert_true(is_refused(a, speaker.peer));
}

// One that somebody sleeps for is heard of for other news, once, and of errors again after that.
void comes_after_other_news(void **)
{
    const Speaker speaker;
    const UdpSocket &a = speaker.socket;
    for (int i = 0; i < 3; ++i) {
        static_cast<void>(sock::place_for_input(*a.s, a.fd));
        send_past_the_library(speaker.peer, a);
        Datagram datagram;
        assert_int_equal(a.receive(datagram), 1);
        send_past_the_library(a, speaker.gone);
        await_error(a);
        assert_int_equal(option_error(a), ECONNREFUSED);
        assert_int_equal(queued_error(a), 0);
        assert_int_equal(look(a) & POLLERR, 0);
    }
}

// Of the thread that receives: what it asks the kernel to tell it when it has nothing to do.
struct Sleeps {
    static constexpr unsigned kMost = 20; // of a thread that sleeps; one that turns has any number
    std::atomic<unsigned> begun{0};
    std::atomic<unsigned> ended{0};
    std::atomic<pid_t> thread{0};
};
constinit Sleeps g_sleeps;
decltype(&::ppoll) g_kernels_ppoll = nullptr;

int count_ppoll(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask)
{
    const bool counts = ::gettid() == g_sleeps.thread;
    g_sleeps.begun += counts ? 1 : 0;
    const int result = g_kernels_ppoll(fds, count, timeout, mask);
    g_sleeps.ended += counts ? 1 : 0;
    return result;
}

bool is_asleep()
{
    if (g_sleeps.begun != g_sleeps.ended + 1)
        return false;
    std::ifstream status("/proc/self/task/" + std::to_string(g_sleeps.thread) + "/stat");
    std::string line;
    std::getline(status, line);
    const std::size_t name = line.rfind(") ");
    return name != std::string::npos && line[name + 2] == 'S' && g_sleeps.begun == g_sleeps.ended + 1;
}

// A thread in a receive that waits.
class Receiving
{
public:
    explicit Receiving(const UdpSocket &socket)
        : thread_([this, &socket] {
              g_sleeps.thread = ::gettid();
              length_ = socket.receive(datagram_);
              error_ = errno;
          })
    {
    }
    // Once is enough: what the helper thread has to say late, of what was received before, may wake it again.
    bool falls_asleep() const
    {
        const std::int64_t until = sock::now_ns() + patience::nanoseconds();
        bool asleep = false;
        while (!asleep && g_sleeps.begun < Sleeps::kMost && sock::now_ns() < until) {
            asleep = is_asleep();
            ::sched_yield();
        }
        return asleep;
    }
    int end() // 0, or the error that it ended with
    {
        thread_.join();
        g_sleeps.thread = 0;
        g_sleeps.begun = g_sleeps.ended = 0;
        return length_ < 0 ? error_ : 0;
    }

private:
    Datagram datagram_;
    ssize_t length_ = 0;
    int error_ = 0;
    std::thread thread_;
};

// As the kernel's own receive does: what is in the error queue is nobody's news any more.
void a_receive_sleeps_beside_an_unread_error_queue(void **)
{
    const Speaker speaker;
    const UdpSocket &a = speaker.socket;
    speaker.be_refused();
    assert_int_equal(option_error(a), ECONNREFUSED);
    for (int round = 0; round < 3; ++round) {
        Receiving one(a);
        const bool slept = one.falls_asleep();
        send_past_the_library(speaker.peer, a);
        assert_int_equal(one.end(), 0);
        assert_true(slept);
        Receiving other(a);
        assert_true(other.falls_asleep());
        assert_true(speaker.peer.send_number(0, 1, a.address)); // by the endpoint
        assert_int_equal(other.end(), 0);
        Receiving third(a);
        assert_true(third.falls_asleep());
        send_past_the_library(a, speaker.gone); // one more error is news
        assert_int_equal(third.end(), ECONNREFUSED);
    }
    while (queued_error(a) == 0) {
    }
    static_cast<void>(option_error(a)); // what was last in the queue
    assert_int_equal(look(a) & POLLERR, 0);
}

} // namespace

int main()
{
    const Library library;
    g_kernels_ppoll = std::exchange(libc::real.ppoll, count_ppoll);
    static const CMUnitTest tests[] = {
        cmocka_unit_test(is_told_until_it_is_taken),
        cmocka_unit_test(fails_the_next_send),
        cmocka_unit_test(fails_the_next_receive),
        cmocka_unit_test(comes_again_from_the_queue),
        cmocka_unit_test(comes_later),
        cmocka_unit_test(comes_after_other_news),
        cmocka_unit_test(a_receive_sleeps_beside_an_unread_error_queue),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
