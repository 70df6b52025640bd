// SPDX-License-Identifier: BSD-2-Clause
// The clocks beside each other: PTP clocks as the kernel tells them, and the counter of the simulated NIC that stamps
// frames.
#include "prov/vma/test/ether/raw.hpp"

#include <fcntl.h>
#include <linux/ptp_clock.h>

#include <cerrno>

#include "core/clock.hpp"
#include "ether/nic/device_times.hpp"

using namespace raw;
using ether::ClockReading;
using ether::DeviceTimes;
using ether::PtpClock;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kAhead = 37 * kSecond; // of the system's clock, as TAI is

// What a driver can, and how long its looks take.
struct Driver {
    int extended = 0; // errno of the call
    int plain = 0;
    std::vector<std::int64_t> lengths{900, 300, 700, 500, 400}; // ns, of each look
    std::int64_t start = 1'700'000'000 * kSecond;
    unsigned calls = 0;
};
Driver g_driver;

ptp_clock_time time_of(std::int64_t ns)
{
    ptp_clock_time time{};
    time.sec = ns / kSecond;
    time.nsec = static_cast<std::uint32_t>(ns % kSecond);
    return time;
}

int answer(int error)
{
    errno = error;
    return error == 0 ? 0 : -1;
}

int control(int, unsigned long request, void *argument) noexcept
{
    ++g_driver.calls;
    std::int64_t at = g_driver.start;
    if (request == PTP_SYS_OFFSET_EXTENDED && g_driver.extended == 0) {
        auto &looks = *static_cast<ptp_sys_offset_extended *>(argument);
        for (unsigned i = 0; i < looks.n_samples; ++i, at += 1000) {
            const std::int64_t length = g_driver.lengths[i % g_driver.lengths.size()];
            looks.ts[i][0] = time_of(at);
            looks.ts[i][1] = time_of(at + length / 2 + kAhead);
            looks.ts[i][2] = time_of(at + length);
        }
        return 0;
    }
    if (request == PTP_SYS_OFFSET && g_driver.plain == 0) {
        auto &looks = *static_cast<ptp_sys_offset *>(argument);
        for (std::size_t i = 0; i < looks.n_samples; ++i) {
            const std::int64_t length = g_driver.lengths[i % g_driver.lengths.size()];
            looks.ts[2 * i] = time_of(at);
            looks.ts[2 * i + 1] = time_of(at + length / 2 + kAhead);
            at += length;
            looks.ts[2 * i + 2] = time_of(at);
        }
        return 0;
    }
    return answer(request == PTP_SYS_OFFSET_EXTENDED ? g_driver.extended
                  : request == PTP_SYS_OFFSET        ? g_driver.plain
                                                     : ENOTTY);
}

PtpClock clock_of(const Driver &driver)
{
    g_driver = driver;
    return {core::make_fd([] { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }), control};
}

void the_best_look_counts(void **)
{
    for (const int extended : {0, EOPNOTSUPP, ENOTTY, EINVAL}) {
        PtpClock clock = clock_of({.extended = extended});
        ClockReading reading;
        assert_int_equal(clock.read(reading), 0);
        assert_int_equal(reading.within, 150);
        assert_int_equal(reading.clock - reading.system, kAhead);
        const unsigned before = g_driver.calls;
        assert_int_equal(clock.read(reading), 0);
        assert_int_equal(g_driver.calls, before + 1); // it knows by then which call works
    }
}

void clocks_that_fail(void **)
{
    ClockReading reading;
    PtpClock none;
    assert_false(none.is_open());
    assert_int_equal(none.read(reading), -ENODEV);
    assert_int_equal(clock_of({.extended = ENODEV}).read(reading), -ENODEV); // it was pulled out
    assert_int_equal(clock_of({.extended = EOPNOTSUPP, .plain = EOPNOTSUPP}).read(reading), -EOPNOTSUPP);
    PtpClock set = clock_of({.lengths = {-5}}); // the system's was set back in each look
    assert_int_equal(set.read(reading), -EAGAIN);
    assert_int_equal(PtpClock::open("lo", none), -ENODEV);
    assert_true(PtpClock::open("no such interface, whose name is too long", none) < 0);
}

// AF_XDP: what frames are stamped with is the PTP clock.
void frames_have_the_ptp_clocks(void **)
{
    DeviceTimes times;
    times.open(clock_of({}), nullptr, {});
    fi_vma_times read{};
    assert_int_equal(times.read(read), 0);
    assert_int_equal(read.has_ptp, 1);
    assert_int_equal(read.device_ns, read.ptp_ns);
    assert_int_equal(read.device_ns - read.system_ns, kAhead);
    assert_int_equal(read.system_within_ns, 150);
    assert_int_equal(read.ptp_within_ns, 0);
    DeviceTimes nothing;
    nothing.open(PtpClock(), nullptr, {});
    assert_int_equal(nothing.read(read), -EOPNOTSUPP);
}

std::int64_t system_now()
{
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
}

// Raw packets: the counter goes on by the simulator's clock, which stands here.
void the_counter_that_stamps(void **)
{
    for (const std::uint32_t khz : {1'000'000U, 156'250U}) {
        sim::DeviceConfig device;
        device.clock_khz = khz;
        Wire wire(2, device, 1500, {.stamps = true});
        ether::RawQueue &queue = wire.queue(1);
        DeviceTimes times;
        times.open(clock_of({.start = system_now()}), queue.context(), queue.clock());
        assert_int_equal(wire.nic(1).flows().add({{address_of(1), 7000}, {}}, inet::Protocol::kUdp), 0);
        for (unsigned i = 0; i < 10; ++i) {
            sim::advance(std::chrono::milliseconds(1234));
            send(wire.queue(0), datagram(7000));
            const std::int64_t before = system_now();
            fi_vma_times read{};
            assert_int_equal(times.read(read), 0);
            std::array<ether::ReceivedFrame, 1> burst;
            assert_int_equal(queue.receive(burst), 1);
            assert_int_equal(burst[0].stamps.hardware, read.device_ns); // the same clock at the same time
            queue.release(burst[0].index);
            assert_in_range(read.system_ns, before, system_now());
            assert_int_equal(read.has_ptp, 1);
            assert_int_equal(read.ptp_ns - read.system_ns, kAhead);
            assert_int_equal(read.ptp_within_ns, read.system_within_ns + 150);
        }
    }
}

void devices_that_tell_nothing(void **)
{
    sim::DeviceConfig device;
    device.clock_khz = 0;
    fi_vma_times read{};
    {
        Wire wire(1, device, 1500, {.stamps = true});
        DeviceTimes times;
        times.open(clock_of({}), wire.queue(0).context(), wire.queue(0).clock());
        assert_int_equal(times.read(read), -EOPNOTSUPP);
    }
    device.clock_khz = 1000;
    Wire wire(1, device, 1500, {.stamps = true});
    DeviceTimes times;
    times.open(PtpClock(), wire.queue(0).context(), wire.queue(0).clock());
    assert_int_equal(times.read(read), 0);
    assert_int_equal(read.has_ptp, 0);
    assert_true(sim::fail_call("query_rt_values", 1, EIO));
    assert_int_equal(times.read(read), -EIO);
    assert_int_equal(times.read(read), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_best_look_counts),       cmocka_unit_test(clocks_that_fail),
        cmocka_unit_test(frames_have_the_ptp_clocks), cmocka_unit_test(the_counter_that_stamps),
        cmocka_unit_test(devices_that_tell_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
