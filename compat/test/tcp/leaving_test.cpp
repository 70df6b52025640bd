// SPDX-License-Identifier: BSD-2-Clause
// A thread that gives a stream back to the kernel is late: the endpoint that it means has ended meanwhile, and there
// may be another one. Or it is in the middle of what other threads send and receive.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include <array>
#include <thread>
#include <vector>

#include "compat/src/engine/objects.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

// What it would have set for the endpoint is not for the one that comes.
void one_that_has_ended(void **)
{
    Pair pair;
    for (End *const end : {&pair.a, &pair.b}) {
        assert_false(sock::is_offloaded(*end->s));
        sock::start_leaving(*end->s, sock::Heir::kLibrary);
        sock::give_up_waiting(*end->s);
        random_traffic(pair);
        sock::return_one(*end->s, sock::Heir::kLibrary);
        wait_until_kernel_only(pair);
    }
}

void another_one_is_there(void **)
{
    Pair pair;
    for (End *const end : {&pair.a, &pair.b}) {
        assert_true(offload(pair));
        drain(pair);
        sock::start_leaving(*end->s, sock::Heir::kLibrary);
        sock::return_one(end == &pair.a ? *pair.b.s : *pair.a.s, sock::Heir::kLibrary);
        wait_until_kernel_only(pair);
        assert_true(offload(pair));
        send_some(pair.a, 5000);
        send_some(pair.b, 5000);
        assert_false(sock::close_left(*end->s));
        assert_true(sock::has_endpoint(*end->s));
        random_traffic(pair);
        sock::return_one(*end->s, sock::Heir::kLibrary);
        wait_until_kernel_only(pair);
        assert_true(sock::close_left(*end->s)); // there is none
    }
}

// A reader that has read the rest of one endpoint takes the next one for it.
void the_rest_is_another_one(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 5000);
    sock::drop_rest(*pair.b.s);
    assert_true(sock::has_endpoint(*pair.b.s));
    drain(pair);
}

// Nobody reads what fills the ring, and the kernel has room. A thread that sleeps until there is some has not asked the
// kernel, and its peer's process has nothing to say any more: it is told.
void under_one_that_waits_for_room(void **)
{
    struct Sleeper : sock::Watcher {
        bool told = false;
    } sleeper;
    sleeper.notify = [](sock::Watcher *watcher, std::uint32_t events) {
        auto &self = *static_cast<Sleeper *>(watcher);
        self.told |= (events & POLLOUT) != 0 && !sock::is_offloaded(*self.socket);
    };
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_until_full(pair.a);
    assert_false(sock::can_transmit(*pair.a.s));
    sock::watch(*pair.a.s, sleeper);
    sock::return_one(*pair.a.s, sock::Heir::kLibrary);
    sock::unwatch(sleeper);
    assert_true(sleeper.told);
    drain(pair);
}

// What `call(socket, descriptor)` of one end gives, in a thread that waits when another one closes the descriptor; then
// the stream goes back to the kernel, and the call goes on there.
template <typename Call, typename Meanwhile>
ssize_t behind_its_descriptor(End &end, End &other, const Call &call, const Meanwhile &meanwhile)
{
    ssize_t result = 0;
    std::thread waiter([&, s = end.s, fd = end.fd] {
        result = call(*s, fd);
        if (result < 0)
            print_error("the call that waited: %s\n", strerror(errno));
    });
    while (end.s->waiters.load() == 0)
        ::sched_yield();
    close_end(end);
    sock::return_one(*other.s, sock::Heir::kLibrary);
    meanwhile();
    waiter.join();
    return result;
}

void under_a_receive_whose_descriptor_is_closed(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    char byte = 0;
    const auto receive = [&](Stream &s, int fd) { return sock::receive(s, fd, &byte, 1, 0); };
    assert_int_equal(behind_its_descriptor(pair.b, pair.a, receive, [&] { send_some(pair.a, 1); }), 1);
}

void under_a_send_whose_descriptor_is_closed(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_until_full(pair.a);
    const std::uint8_t byte = byte_at(pair.a.sent, pair.a.key); // which may come with the last of those before it
    const auto send = [&](Stream &s, int fd) { return sock::send(s, fd, &byte, 1, MSG_NOSIGNAL); };
    const auto read = [&] {
        while (pair.b.received < pair.a.sent)
            receive_some(pair.b, pair.a, 65536, 0);
    };
    assert_int_equal(behind_its_descriptor(pair.a, pair.b, send, read), 1);
}

// A file takes the number.
struct Squatter {
    const int fd;
    explicit Squatter(int number) : fd(number)
    {
        const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        if (file == number)
            return;
        assert_int_equal(::dup2(file, number), number); // another thread had it for a moment
        ::close(file);
    }
    ~Squatter() { ::close(fd); }
    Squatter(const Squatter &) = delete;
    Squatter &operator=(const Squatter &) = delete;
};

// It is one call, of many pieces, and outlives its descriptor between two of them as well.
void under_a_file_whose_descriptor_is_closed(void **)
{
    constexpr std::size_t kSize = 4'000'000;
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    std::vector<std::uint8_t> bytes(kSize);
    for (std::size_t i = 0; i < kSize; ++i)
        bytes[i] = byte_at(pair.a.sent + i, pair.a.key);
    const int file = ::memfd_create("bytes", MFD_CLOEXEC);
    assert_int_equal(::pwrite(file, bytes.data(), kSize, 0), kSize);
    const int number = pair.a.fd;
    const auto send = [&](Stream &s, int fd) { return sock::send_file(s, fd, file, nullptr, kSize); };
    const auto read = [&] {
        const Squatter squatter(number);
        while (pair.b.received < pair.a.sent + kSize)
            receive_some(pair.b, pair.a, 65536, 0);
    };
    assert_int_equal(behind_its_descriptor(pair.a, pair.b, send, read), kSize);
    ::close(file);
}

// Another descriptor of the socket is open.
void under_a_receive_by_a_number_that_is_given_away(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    End second = {::dup(pair.b.fd), pair.b.s};
    sock::track_dup(pair.b.fd, second.fd);
    const int number = second.fd;
    char byte = 0;
    const auto receive = [&](Stream &s, int fd) { return sock::receive(s, fd, &byte, 1, 0); };
    const auto send = [&] {
        const Squatter squatter(number);
        send_some(pair.a, 1);
        while (pair.b.s->waiters.load() != 0)
            ::sched_yield();
    };
    assert_int_equal(behind_its_descriptor(second, pair.a, receive, send), 1);
}

void in_the_middle(std::array<bool, 2> leaves)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    flow(pair, 10'000'000, [&] {
        for (End *const end : {&pair.a, &pair.b})
            if (leaves[end == &pair.a ? 0 : 1] && sock::is_offloaded(*end->s))
                sock::return_one(*end->s, sock::Heir::kLibrary);
            else
                sched_yield();
    });
}

void the_sender_in_the_middle(void **)
{
    in_the_middle({true, false});
}

void the_receiver_in_the_middle(void **)
{
    in_the_middle({false, true});
}

void both_in_the_middle(void **)
{
    in_the_middle({true, true});
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(one_that_has_ended),
        cmocka_unit_test(another_one_is_there),
        cmocka_unit_test(the_rest_is_another_one),
        cmocka_unit_test(under_one_that_waits_for_room),
        cmocka_unit_test(under_a_receive_whose_descriptor_is_closed),
        cmocka_unit_test(under_a_send_whose_descriptor_is_closed),
        cmocka_unit_test(under_a_file_whose_descriptor_is_closed),
        cmocka_unit_test(under_a_receive_by_a_number_that_is_given_away),
        cmocka_unit_test(the_sender_in_the_middle),
        cmocka_unit_test(the_receiver_in_the_middle),
        cmocka_unit_test(both_in_the_middle),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
