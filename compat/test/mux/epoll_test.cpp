// SPDX-License-Identifier: BSD-2-Clause
// Rules of epoll over offloaded sockets, one by one: triggering, one-shot, changes, closing, several sets. Both sides
// in one wait, and nesting, are in epoll_both_sides_test.cpp; what threads do to each other in epoll_threads_test.cpp.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/epoll_look.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace vma;
using namespace epoll_look;

// ---- the program's data ---------------------------------------------------------------------------------------------

// Whatever number it is: an address of ours, one with a descriptor in its lower half (Java leaves the upper one as it
// was), ...
void data_may_be_an_address_of_ours(void **)
{
    One one(kIn);
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    assert_int_equal(::write(ends[1], "x", 1), 1);
    const mux::Set &set = *mux::set_of(one.epfd);
    const auto entry = reinterpret_cast<std::uintptr_t>(set.entries);
    const std::uint64_t numbers[] = {entry, entry | 6, reinterpret_cast<std::uintptr_t>(&set), 0, 1, 2, ~UINT64_C(0)};
    epoll_event event = {};
    event.events = EPOLLIN;
    assert_int_equal(mux::epoll_control(one.epfd, EPOLL_CTL_ADD, ends[0], &event), 0);
    for (const std::uint64_t number : numbers) {
        event.data.u64 = number;
        assert_int_equal(mux::epoll_control(one.epfd, EPOLL_CTL_MOD, ends[0], &event), 0);
        epoll_event got[2] = {};
        assert_int_equal(mux::epoll_wait_ms(one.epfd, got, 2, 0, nullptr), 1);
        assert_int_equal(got[0].data.u64, number);
    }
    ::close(ends[0]);
    ::close(ends[1]);
}

// ---- triggering -----------------------------------------------------------------------------------------------------

void level_triggered_stays_until_read(void **)
{
    One one(kIn);
    ASSERT_NOTHING(one.epfd);
    fake::deliver(one.fd);
    for (int i = 0; i < 3; ++i)
        ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    drain(one.fd);
    ASSERT_NOTHING(one.epfd);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
}

void edge_triggered_is_told_once_an_event(void **)
{
    One one(kIn | EPOLLET);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    ASSERT_NOTHING(one.epfd);
    fake::deliver(one.fd); // unread bytes are still there: a new edge all the same
    fake::deliver(one.fd); // and both are one event
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    ASSERT_NOTHING(one.epfd);
    drain(one.fd);
    ASSERT_NOTHING(one.epfd);
}

void edge_is_only_for_who_asked(void **)
{
    One one(EPOLLOUT | EPOLLET);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLOUT));
    fake::deliver(one.fd);
    ASSERT_NOTHING(one.epfd);
    fake::set_full(one.fd, true);
    fake::set_full(one.fd, false);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLOUT));
}

void no_room_to_send(void **)
{
    One one(EPOLLIN | EPOLLOUT);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLOUT));
    fake::set_full(one.fd, true);
    ASSERT_NOTHING(one.epfd);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN));
    fake::set_full(one.fd, false);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN | EPOLLOUT));
}

void one_shot_waits_for_modify(void **)
{
    One one(kIn | EPOLLONESHOT);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    fake::deliver(one.fd);
    ASSERT_NOTHING(one.epfd);
    assert_int_equal(modify(one.epfd, one.fd, kIn | EPOLLONESHOT), 0);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    ASSERT_NOTHING(one.epfd);
}

void one_shot_keeps_its_state_across_the_paths(void **)
{
    One one(kIn | EPOLLONESHOT);
    fake::give_up(one.fd);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn)); // fired in the kernel
    assert_true(fake::offload(one.fd));
    fake::deliver(one.fd);
    ASSERT_NOTHING(one.epfd);
    fake::give_up(one.fd);
    ASSERT_NOTHING(one.epfd);
    assert_int_equal(add(one.epfd, one.fd, kIn), -EEXIST);
    assert_int_equal(modify(one.epfd, one.fd, kIn | EPOLLONESHOT), 0);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    assert_true(fake::offload(one.fd));
    assert_int_equal(control(one.epfd, EPOLL_CTL_DEL, one.fd, 0, 0), 0);
    assert_int_equal(add(one.epfd, one.fd, kIn), 0);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
}

void hang_up_is_told_unasked(void **)
{
    One one(EPOLLPRI);
    ASSERT_NOTHING(one.epfd);
    fake::close_peer(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLHUP));
}

void half_close_by_the_kernel(void **)
{
    One one(EPOLLIN | EPOLLRDHUP | EPOLLET);
    ASSERT_NOTHING(one.epfd);
    fake::finish_peer(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN | EPOLLRDHUP));
    ASSERT_NOTHING(one.epfd);
}

// The stream's end comes by the endpoint, and behind it the kernel's FIN.
void end_is_one_edge(void **)
{
    for (const std::uint32_t asked : {EPOLLIN | EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLET}) {
        One one(asked);
        ASSERT_NOTHING(one.epfd);
        fake::finish_peer(one.fd);
        fake::post(one.fd, EPOLLIN | EPOLLRDHUP);
        ASSERT_EVENTS(one.epfd, just(one.fd, asked & (EPOLLIN | EPOLLRDHUP)));
        ASSERT_NOTHING(one.epfd);
        fake::close_peer(one.fd);
        ASSERT_EVENTS(one.epfd, just(one.fd, (asked & (EPOLLIN | EPOLLRDHUP)) | EPOLLHUP));
        ASSERT_NOTHING(one.epfd);
    }
}

// What the peer has ended by its endpoint is told with the FIN, which the kernel brings: what is unread was told.
void end_behind_unread_bytes_is_one_edge(void **)
{
    for (const std::uint32_t room : {std::uint32_t{0}, std::uint32_t{EPOLLOUT}}) {
        One one(EPOLLIN | EPOLLRDHUP | EPOLLET | room);
        look(one.epfd);
        fake::deliver(one.fd);
        ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN | room));
        fake::post(one.fd, EPOLLIN | EPOLLOUT | sock::kBeforeEnd);
        ASSERT_NOTHING(one.epfd);
        fake::finish_peer(one.fd);
        ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN | EPOLLRDHUP | room));
        ASSERT_NOTHING(one.epfd);
    }
}

void bytes_beside_the_end_are_an_edge(void **)
{
    One one(EPOLLIN | EPOLLRDHUP | EPOLLET);
    fake::deliver(one.fd);
    fake::post(one.fd, EPOLLIN | sock::kBeforeEnd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN));
    fake::post(one.fd, EPOLLIN | sock::kBeforeEnd);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN));
    ASSERT_NOTHING(one.epfd);
}

// What the kernel has for one of them is reported by the next call, though another is always ready; and once.
void the_kernel_is_asked_when_it_tells(void **)
{
    for (const std::uint32_t edges : {std::uint32_t{0}, std::uint32_t{EPOLLET}}) {
        One one(EPOLLOUT);
        const int other = fake::open_socket();
        assert_int_equal(add(one.epfd, other, EPOLLIN | edges), 0);
        assert_true(fake::offload(other));
        for (int i = 0; i < 20; ++i) // whenever its turn is
            ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLOUT));
        fake::close_peer(other);
        fake::post(other, sock::kKernelTells);
        assert_int_equal(look(one.epfd)[static_cast<std::uint64_t>(other)], EPOLLIN | EPOLLHUP);
        assert_int_equal(look(one.epfd).size(), edges != 0 ? 1 : 2);
        fake::close_socket(other);
    }
}

// ---- registrations --------------------------------------------------------------------------------------------------

void modify_is_an_edge_if_ready(void **)
{
    One one(kIn | EPOLLET);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    assert_int_equal(modify(one.epfd, one.fd, kIn | EPOLLOUT | EPOLLET), 0);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn | EPOLLOUT));
    assert_int_equal(modify(one.epfd, one.fd, 0), 0);
    ASSERT_NOTHING(one.epfd);
    assert_int_equal(control(one.epfd, EPOLL_CTL_MOD, one.fd, kIn, 77), 0);
    assert_true(look(one.epfd) == Events({{77, kIn}}));
}

void verdicts_are_the_kernels(void **)
{
    One one(kIn);
    assert_int_equal(add(one.epfd, one.fd, kIn), -EEXIST);
    assert_int_equal(modify(one.epfd, one.fd, kIn | EPOLLEXCLUSIVE), -EINVAL);
    assert_int_equal(mux::epoll_control(one.epfd, EPOLL_CTL_MOD, one.fd, nullptr), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(control(one.epfd, 99, one.fd, kIn, 0), -EINVAL);
    assert_int_equal(control(one.epfd, EPOLL_CTL_DEL, one.fd, 0, 0), 0);
    assert_int_equal(control(one.epfd, EPOLL_CTL_DEL, one.fd, 0, 0), -ENOENT);
    assert_int_equal(modify(one.epfd, one.fd, kIn), -ENOENT);
    assert_int_equal(add(one.epfd, one.epfd, kIn), -EINVAL);
    assert_int_equal(add(one.fd, one.fd, kIn), -EINVAL);
    epoll_event event;
    assert_int_equal(mux::epoll_wait(one.epfd, &event, 0, &kNow, nullptr), -1);
    assert_int_equal(errno, EINVAL);
}

void wait_on_taken_set_checks_its_arguments(void **)
{
    One one(EPOLLOUT);
    epoll_event event;
    assert_int_equal(mux::epoll_wait(one.epfd, &event, 0, &kNow, nullptr), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mux::epoll_wait(one.epfd, &event, -1, &kNow, nullptr), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mux::epoll_wait(one.epfd, nullptr, 1, &kNow, nullptr), -1);
    assert_int_equal(errno, EFAULT);
    const timespec wrong = {0, 1000000000};
    assert_int_equal(mux::epoll_wait(one.epfd, &event, 1, &wrong, nullptr), -1);
    assert_int_equal(errno, EINVAL);
}

void added_when_offloaded_already(void **)
{
    const int epfd = fake::open_set();
    const int fd = fake::open_socket();
    assert_true(fake::offload(fd));
    fake::deliver(fd);
    assert_int_equal(add(epfd, fd, kIn), 0);
    ASSERT_EVENTS(epfd, just(fd, kIn));
    assert_int_equal(control(epfd, EPOLL_CTL_DEL, fd, 0, 0), 0);
    ASSERT_NOTHING(epfd);
    fake::close_socket(fd);
    fake::close_set(epfd);
}

void exclusive_moves_too(void **)
{
    One one(kIn | EPOLLEXCLUSIVE);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    assert_int_equal(modify(one.epfd, one.fd, kIn), -EINVAL); // as the kernel says of an exclusive entry
    fake::give_up(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    assert_int_equal(modify(one.epfd, one.fd, kIn), -EINVAL);
}

void same_socket_in_two_sets(void **)
{
    One one(kIn | EPOLLET);
    const int other = fake::open_set();
    assert_int_equal(add(other, one.fd, kIn), 0);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    ASSERT_EVENTS(other, just(one.fd, kIn));
    ASSERT_NOTHING(one.epfd);
    ASSERT_EVENTS(other, just(one.fd, kIn));
    fake::close_set(other);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
}

void two_descriptors_of_a_socket_are_two_entries(void **)
{
    const int epfd = fake::open_set();
    const int fd = fake::open_socket();
    const int copy = fake::dup_socket(fd);
    assert_int_equal(add(epfd, fd, kIn), 0);
    assert_int_equal(add(epfd, copy, kIn | EPOLLET), 0);
    assert_true(fake::offload(fd));
    fake::deliver(fd);
    assert_true(look(epfd).size() == 2);
    ASSERT_EVENTS(epfd, just(fd, kIn));
    assert_int_equal(control(epfd, EPOLL_CTL_DEL, fd, 0, 0), 0);
    ASSERT_NOTHING(epfd);
    assert_int_equal(modify(epfd, copy, kIn), 0);
    ASSERT_EVENTS(epfd, just(copy, kIn));
    fake::close_socket(fd);
    ASSERT_EVENTS(epfd, just(copy, kIn));
    assert_false(fake::is_pinned(copy)); // the closed number was in no set any more
    fake::close_socket(copy);
    ASSERT_NOTHING(epfd);
    fake::close_set(epfd);
}

// epoll(7), question 6: the registration lives as long as the open file.
void number_closed_while_the_file_lives(void **)
{
    One one(kIn);
    const int copy = fake::dup_socket(one.fd);
    fake::close_socket(one.fd);
    assert_true(fake::is_pinned(copy));
    fake::deliver(copy);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    const int reused = ::dup(copy); // the number comes back as something untracked
    assert_int_equal(reused, one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    ::close(reused);
    const int next = fake::open_socket(); // or as another socket
    assert_int_equal(next, one.fd);
    assert_int_equal(add(one.epfd, next, kIn), 0);
    drain(copy);
    assert_true(fake::offload(next));
    fake::deliver(next);
    ASSERT_EVENTS(one.epfd, just(next, kIn));
    fake::close_socket(copy);
    drain(next);
    ASSERT_NOTHING(one.epfd);
}

void closed_socket_leaves_its_sets(void **)
{
    const int epfd = fake::open_set();
    const int fd = fake::open_socket();
    assert_int_equal(add(epfd, fd, kIn | EPOLLOUT), 0);
    assert_true(fake::offload(fd));
    fake::deliver(fd);
    assert_int_equal(look(epfd).size(), 1);
    fake::close_socket(fd);
    ASSERT_NOTHING(epfd);
    const int next = fake::open_socket();
    assert_int_equal(next, fd);
    assert_int_equal(add(epfd, next, kIn), 0);
    ASSERT_NOTHING(epfd);
    fake::close_socket(next);
    fake::close_set(epfd);
}

void given_back_as_asked(void **)
{
    One one(kIn | EPOLLET);
    fake::deliver(one.fd);
    fake::give_up(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    ASSERT_NOTHING(one.epfd);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    assert_true(fake::offload(one.fd));
    drain(one.fd);
    ASSERT_NOTHING(one.epfd);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
}

// ---- sets -----------------------------------------------------------------------------------------------------------

void set_under_two_numbers(void **)
{
    One one(kIn);
    const int copy = fake::dup_set(one.epfd);
    fake::deliver(one.fd);
    ASSERT_EVENTS(copy, just(one.fd, kIn));
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    const int fd = fake::open_socket();
    assert_int_equal(add(copy, fd, EPOLLOUT), 0);
    assert_int_equal(add(one.epfd, fd, EPOLLOUT), -EEXIST);
    assert_true(fake::offload(fd));
    assert_int_equal(look(one.epfd).size(), 2);
    fake::close_socket(fd);
    fake::close_set(copy);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
}

// As in the kernel, an event of an entry that stays on the inner set's list is one of that set's, too.
void edge_triggered_set_around_a_level_triggered_one(void **)
{
    One inner(kIn);
    assert_true(fake::offload(inner.fd));
    const int outer = fake::open_set();
    assert_int_equal(add(outer, inner.epfd, kIn | EPOLLET), 0);
    for (int i = 0; i < 10; ++i) {
        fake::deliver(inner.fd);
        ASSERT_EVENTS(outer, just(inner.epfd, kIn));
        ASSERT_NOTHING(outer);
        ASSERT_EVENTS(inner.epfd, just(inner.fd, kIn)); // and goes to the end of the list
        drain(inner.fd);
    }
    fake::close_set(outer);
}

void first_number_of_a_set_closed(void **)
{
    const int first = fake::open_set();
    const int epfd = fake::dup_set(first);
    const int fd = fake::open_socket();
    assert_int_equal(add(first, fd, kIn), 0);
    fake::close_set(first);
    const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC); // takes the number
    assert_int_equal(other, first);
    assert_true(fake::offload(fd));
    fake::deliver(fd);
    ASSERT_EVENTS(epfd, just(fd, kIn));
    fake::give_up(fd);
    ASSERT_EVENTS(epfd, just(fd, kIn));
    ::close(other);
    fake::close_set(epfd);
    fake::close_socket(fd);
}

void closed_set_is_forgotten(void **)
{
    const int fd = fake::open_socket();
    assert_true(fake::offload(fd));
    for (int i = 0; i < 100; ++i) {
        const int epfd = fake::open_set();
        assert_int_equal(add(epfd, fd, kIn | EPOLLOUT), 0);
        assert_int_equal(look(epfd).size(), 1);
        fake::close_set(epfd);
        fake::deliver(fd);
    }
    const int a = ::dup(0);
    assert_true(a < 64); // nothing of theirs was left open
    ::close(a);
    fake::close_socket(fd);
}

} // namespace

int main()
{
    vma::libc::resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(data_may_be_an_address_of_ours),
        cmocka_unit_test(level_triggered_stays_until_read),
        cmocka_unit_test(edge_triggered_is_told_once_an_event),
        cmocka_unit_test(edge_is_only_for_who_asked),
        cmocka_unit_test(no_room_to_send),
        cmocka_unit_test(one_shot_waits_for_modify),
        cmocka_unit_test(one_shot_keeps_its_state_across_the_paths),
        cmocka_unit_test(hang_up_is_told_unasked),
        cmocka_unit_test(half_close_by_the_kernel),
        cmocka_unit_test(end_is_one_edge),
        cmocka_unit_test(end_behind_unread_bytes_is_one_edge),
        cmocka_unit_test(bytes_beside_the_end_are_an_edge),
        cmocka_unit_test(the_kernel_is_asked_when_it_tells),
        cmocka_unit_test(modify_is_an_edge_if_ready),
        cmocka_unit_test(verdicts_are_the_kernels),
        cmocka_unit_test(wait_on_taken_set_checks_its_arguments),
        cmocka_unit_test(added_when_offloaded_already),
        cmocka_unit_test(exclusive_moves_too),
        cmocka_unit_test(same_socket_in_two_sets),
        cmocka_unit_test(two_descriptors_of_a_socket_are_two_entries),
        cmocka_unit_test(number_closed_while_the_file_lives),
        cmocka_unit_test(closed_socket_leaves_its_sets),
        cmocka_unit_test(given_back_as_asked),
        cmocka_unit_test(set_under_two_numbers),
        cmocka_unit_test(edge_triggered_set_around_a_level_triggered_one),
        cmocka_unit_test(first_number_of_a_set_closed),
        cmocka_unit_test(closed_set_is_forgotten),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
