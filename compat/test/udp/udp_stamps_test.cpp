// SPDX-License-Identifier: BSD-2-Clause
// Which times a datagram that came by a port is told with: those that the socket asks for, and of those what is known,
// as the kernel does (socket(7), Documentation/networking/timestamping.rst).
#include "fabtests/unit.hpp"

#include <sys/time.h>
#include <time.h>

#include <linux/errqueue.h> // needs timespec

#include <cstring>
#include <memory>
#include <optional>

#include "compat/src/udp/state.hpp"

using namespace vma::sock;
using namespace vma::sock::udp;

namespace {

constexpr std::int64_t kArrived = INT64_C(1700000000'123456789);
constexpr std::int64_t kHardware = INT64_C(42'000000007);

bool same(const timespec &time, std::int64_t ns)
{
    return time.tv_sec == ns / 1'000'000'000 && time.tv_nsec == ns % 1'000'000'000;
}

struct Told {
    std::optional<timeval> timestamp;
    std::optional<timespec> timestamp_ns;
    std::optional<scm_timestamping> timestamping;
    std::size_t count = 0;
};

template <typename T> std::optional<T> value_of(const cmsghdr *head)
{
    T value;
    assert_int_equal(head->cmsg_len, CMSG_LEN(sizeof value));
    std::memcpy(&value, CMSG_DATA(head), sizeof value);
    return value;
}

Told told(const Wanted &wanted, std::int64_t arrived, std::int64_t hardware)
{
    const auto socket = std::make_unique<Socket>();
    const auto state = std::make_unique<State>();
    socket->udp_memory = state.get();
    state->family = AF_INET;
    state->wanted = wanted;
    state->wanted.any = true;
    About about = {};
    about.arrived_ns = arrived;
    about.hardware_ns = hardware;
    alignas(cmsghdr) std::uint8_t control[256];
    msghdr msg = {};
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    describe(*socket, about, &msg);
    Told said;
    for (cmsghdr *head = CMSG_FIRSTHDR(&msg); head != nullptr; head = CMSG_NXTHDR(&msg, head), ++said.count) {
        assert_int_equal(head->cmsg_level, SOL_SOCKET);
        if (head->cmsg_type == SCM_TIMESTAMP)
            said.timestamp = value_of<timeval>(head);
        else if (head->cmsg_type == SCM_TIMESTAMPNS)
            said.timestamp_ns = value_of<timespec>(head);
        else if (head->cmsg_type == SCM_TIMESTAMPING)
            said.timestamping = value_of<scm_timestamping>(head);
    }
    socket->udp_memory = nullptr;
    return said;
}

void the_time_of_day(void **)
{
    const Told one = told({.timestamp = true}, kArrived, kHardware);
    assert_int_equal(one.count, 1);
    assert_int_equal(one.timestamp->tv_sec, kArrived / 1'000'000'000);
    assert_int_equal(one.timestamp->tv_usec, kArrived % 1'000'000'000 / 1000);
    const Told both = told({.timestamp = true, .timestamp_ns = true}, kArrived, kHardware); // the latter wins
    assert_int_equal(both.count, 1);
    assert_true(same(*both.timestamp_ns, kArrived));
    assert_int_equal(told({.timestamp = true, .timestamp_ns = true}, 0, kHardware).count, 0);
}

void the_time_of_the_device(void **)
{
    const Wanted hardware{.hardware = true};
    const Told known = told(hardware, kArrived, kHardware);
    assert_int_equal(known.count, 1);
    assert_true(same(known.timestamping->ts[0], 0));
    assert_true(same(known.timestamping->ts[1], 0));
    assert_true(same(known.timestamping->ts[2], kHardware));
    assert_int_equal(told(hardware, kArrived, 0).count, 0); // a device that has not stamped it
}

void both_times(void **)
{
    const Wanted all{.timestamping = true, .hardware = true};
    const Told known = told(all, kArrived, kHardware);
    assert_true(same(known.timestamping->ts[0], kArrived));
    assert_true(same(known.timestamping->ts[2], kHardware));
    const Told one = told(all, kArrived, 0);
    assert_true(same(one.timestamping->ts[0], kArrived));
    assert_true(same(one.timestamping->ts[2], 0));
    const Told software = told({.timestamping = true}, kArrived, kHardware); // did not ask for the device's
    assert_true(same(software.timestamping->ts[0], kArrived));
    assert_true(same(software.timestamping->ts[2], 0));
}

void a_time_that_was_is_told_in_the_clock_of_the_day(void **)
{
    timespec monotonic{};
    timespec real{};
    ::clock_gettime(CLOCK_REALTIME, &real);
    ::clock_gettime(CLOCK_MONOTONIC, &monotonic);
    const auto ns = [](const timespec &time) { return time.tv_sec * INT64_C(1'000'000'000) + time.tv_nsec; };
    const std::int64_t minute = INT64_C(60'000'000'000);
    const std::int64_t then = time_of_day(ns(monotonic) - minute);
    assert_in_range(then, ns(real) - minute - minute / 2,
                    ns(real) - minute / 2); // of a clock that may be set meanwhile
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_time_of_day),
        cmocka_unit_test(the_time_of_the_device),
        cmocka_unit_test(both_times),
        cmocka_unit_test(a_time_that_was_is_told_in_the_clock_of_the_day),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
