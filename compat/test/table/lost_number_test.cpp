// SPDX-License-Identifier: BSD-2-Clause
// Another thread takes a descriptor's number from its socket between the look-up that begins a call and the call's
// wait, and may have signalled the thread by then, as Java does: the call finds what is behind the number now.
#include "compat/test/tcp/stream_pair.hpp"

#include <fcntl.h>
#include <poll.h>

#include <latch>
#include <optional>

#include "compat/src/libc/this_thread.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/test/udp/udp_socket.hpp"

using namespace vma;
using namespace vma::test;

namespace {

// A stream that has ended, in the place of the socket's file. The entry of the table goes first, as in dup2().
void put_end_on(int fd)
{
    int ended[2];
    assert_int_equal(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ended), 0);
    ::shutdown(ended[0], SHUT_RDWR);
    sock::forget(fd);
    assert_int_equal(::dup3(ended[0], fd, O_CLOEXEC), fd);
    ::close(ended[0]);
    ::close(ended[1]);
}

// Why the socket is there, or not, when its number has been taken.
enum class Kept { kNot, kByCall, kByDescriptor };
constexpr Kept kAll[] = {Kept::kNot, Kept::kByCall, Kept::kByDescriptor};

// A call of another thread's that is open for as long as this is there, or another descriptor of the socket.
class Keeper
{
public:
    Keeper(sock::Socket &s, int fd, Kept how)
    {
        if (how == Kept::kByDescriptor) {
            other_ = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
            sock::track_dup(fd, other_);
        }
        if (how != Kept::kByCall)
            return;
        thread_ = std::thread([this, &s] {
            const sock::Call call(s, sock::CallKind::kWait);
            began_.count_down();
            ends_.wait();
        });
        began_.wait();
    }
    ~Keeper()
    {
        ends_.count_down();
        if (thread_.joinable())
            thread_.join();
        if (other_ < 0)
            return;
        sock::forget(other_);
        ::close(other_);
    }
    Keeper(const Keeper &) = delete;
    Keeper &operator=(const Keeper &) = delete;

private:
    std::latch began_{1};
    std::latch ends_{1};
    std::thread thread_;
    int other_ = -1;
};

template <typename Call> void expect_on_lost_number(bool accelerated, Kept how, ssize_t result, int error, Call call)
{
    Pair pair;
    if (accelerated) {
        assert_true(offload(pair));
        drain(pair);
    }
    const Keeper keeper(*pair.a.s, pair.a.fd, how);
    put_end_on(pair.a.fd);
    assert_int_equal(call(pair.a), result);
    if (result < 0)
        assert_int_equal(errno, error);
}

void a_receive_finds_what_is_there_now(void **)
{
    for (const bool accelerated : {false, true})
        for (const Kept how : kAll)
            for (const std::size_t size : {std::size_t{0}, std::size_t{10}})
                expect_on_lost_number(accelerated, how, 0, 0, [size](const End &end) {
                    char bytes[10];
                    return sock::receive(*end.s, end.fd, bytes, size, 0);
                });
}

void a_send_finds_what_is_there_now(void **)
{
    for (const Kept how : kAll)
        expect_on_lost_number(false, how, -1, EPIPE,
                              [](const End &end) { return sock::send(*end.s, end.fd, "x", 1, MSG_NOSIGNAL); });
}

void a_send_that_finds_no_room_does_too(void **)
{
    for (const Kept how : kAll) {
        Pair pair;
        assert_true(offload(pair));
        drain(pair);
        send_until_full(pair.a);
        const Keeper keeper(*pair.a.s, pair.a.fd, how);
        put_end_on(pair.a.fd);
        assert_int_equal(sock::send(*pair.a.s, pair.a.fd, "x", 1, MSG_NOSIGNAL), -1);
        assert_int_equal(errno, EPIPE);
    }
}

void a_datagrams_receive_does_too(void **)
{
    for (const Kept how : kAll) {
        const UdpSocket to;
        const Keeper keeper(*to.s, to.fd, how);
        put_end_on(to.fd);
        char bytes[10];
        assert_int_equal(sock::receive(*to.s, to.fd, bytes, sizeof bytes, 0), 0);
    }
}

// The entry of the table is gone, and the kernel has not seen why: the number still leads to the socket's file, which
// goes on by another descriptor. Its bytes have to be counted.
void a_number_that_is_about_to_go_is_the_sockets(void **)
{
    Pair pair;
    const Keeper keeper(*pair.a.s, pair.a.fd, Kept::kByDescriptor);
    sock::forget(pair.a.fd);
    const std::uint64_t before = pair.a.s->rx.kernel_bytes.load();
    assert_int_equal(::send(pair.b.fd, "x", 1, 0), 1);
    char byte = 0;
    assert_int_equal(sock::receive(*pair.a.s, pair.a.fd, &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(pair.a.s->rx.kernel_bytes.load(), before + 1);
}

// It goes on where it began, and not with the file that has the number by then.
void a_part_of_a_call_stays_on_its_socket(void **)
{
    for (const bool accelerated : {false, true}) {
        Pair pair;
        if (accelerated) {
            assert_true(offload(pair));
            drain(pair);
        }
        const sock::Call call(*pair.a.s, sock::CallKind::kWait);
        std::thread([fd = pair.a.fd] { put_end_on(fd); }).join();
        send_some(pair.b, 10);
        char bytes[10];
        assert_int_equal(sock::receive(*pair.a.s, pair.a.fd, bytes, sizeof bytes, 0), 10);
        assert_int_equal(sock::receive(*pair.a.s, pair.a.fd, bytes, sizeof bytes, MSG_DONTWAIT), -1);
        assert_int_equal(errno, EAGAIN);
    }
}

// As the trampoline does before a program's handler.
void count_handler()
{
    ++libc::t_libc.signals.all;
    ++libc::t_libc.signals.interrupting;
}

// The number is taken, and the thread signalled, before the kernel has the call: there nothing would end it.
void who_is_signalled_before_the_kernels_call_is_interrupted(void **)
{
    for (const Kept how : {Kept::kNot, Kept::kByDescriptor}) {
        Pair pair;
        const Keeper keeper(*pair.a.s, pair.a.fd, how);
        sock::Wait wait = sock::begin_receive(*pair.a.s);
        std::optional<sock::Call> call;
        ssize_t n = 0;
        bool by_kernel = false;
        const auto kernel = [&by_kernel](int) {
            by_kernel = true;
            return ssize_t{0};
        };
        assert_true(sock::begin_call(call, *pair.a.s, sock::CallKind::kBlockedReceive, pair.a.fd, wait, kernel, n));
        std::thread([fd = pair.a.fd] { put_end_on(fd); }).join();
        count_handler();
        n = sock::by_live_fd(*pair.a.s, pair.a.fd, POLLIN, wait, kernel);
        assert_int_equal(n, -1);
        assert_int_equal(errno, EINTR);
        assert_false(by_kernel);
    }
}

// One that has begun is not ended by that alone: it has what the peer sends.
void a_call_that_has_begun_outlives_its_number(void **)
{
    Pair pair;
    sock::Wait wait = sock::begin_receive(*pair.a.s);
    std::optional<sock::Call> call;
    ssize_t n = 0;
    char byte = 0;
    const auto kernel = [&byte](int fd) { return libc::real.recv(fd, &byte, 1, 0); };
    assert_true(sock::begin_call(call, *pair.a.s, sock::CallKind::kBlockedReceive, pair.a.fd, wait, kernel, n));
    std::thread([fd = pair.a.fd] { put_end_on(fd); }).join();
    assert_int_equal(::send(pair.b.fd, "x", 1, 0), 1);
    assert_int_equal(sock::by_live_fd(*pair.a.s, pair.a.fd, POLLIN, wait, kernel), 1);
    assert_int_equal(byte, 'x');
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_finds_what_is_there_now),
        cmocka_unit_test(a_send_finds_what_is_there_now),
        cmocka_unit_test(a_send_that_finds_no_room_does_too),
        cmocka_unit_test(a_datagrams_receive_does_too),
        cmocka_unit_test(a_number_that_is_about_to_go_is_the_sockets),
        cmocka_unit_test(a_part_of_a_call_stays_on_its_socket),
        cmocka_unit_test(who_is_signalled_before_the_kernels_call_is_interrupted),
        cmocka_unit_test(a_call_that_has_begun_outlives_its_number),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
