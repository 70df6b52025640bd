// SPDX-License-Identifier: BSD-2-Clause
// The stamps of raw packets: they are the simulated NIC's, whatever its clock.
#include "prov/vma/test/ether/raw.hpp"

#include "ether/nic/raw_clock.hpp"

using namespace raw;

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

void steer(Wire &wire)
{
    assert_int_equal(wire.nic(1).flows().add({{address_of(1), kPort}, {}}, inet::Protocol::kUdp), 0);
}

// What the device has stamped the next frame with, whose checksums are looked at as without stamps.
std::uint64_t next_stamp(Wire &wire)
{
    std::array<ether::ReceivedFrame, 1> burst;
    assert_int_equal(wire.queue(1).receive(burst), 1);
    assert_true(burst[0].checksums_good);
    assert_int_equal(burst[0].stamps.arrived, 0);
    assert_memory_equal(burst[0].bytes.data(), datagram(kPort).data(), 100);
    wire.queue(1).release(burst[0].index);
    return burst[0].stamps.hardware;
}

// Each frame at a time of its own, all read much later.
void frames_have_the_devices(void **)
{
    for (const std::uint32_t khz : {1'000'000U, 156'250U}) {
        sim::DeviceConfig device;
        device.clock_khz = khz;
        Wire wire(2, device, 1500, {.stamps = true});
        assert_true(wire.nic(1).stamps() == ether::XdpStamps::kHardware);
        steer(wire);
        std::vector<std::uint64_t> at;
        for (unsigned i = 0; i < 100; ++i) { // more than are read at a time
            sim::advance(std::chrono::nanoseconds(1'234'567));
            send(wire.queue(0), datagram(kPort));
            at.push_back(static_cast<std::uint64_t>(sim::now().count()) * khz / 1'000'000 * 1'000'000 / khz);
        }
        for (const std::uint64_t time : at)
            assert_int_equal(next_stamp(wire), time);
        std::array<ether::ReceivedFrame, 1> burst;
        assert_int_equal(wire.queue(1).receive(burst), 0);
    }
}

void devices_without_a_clock(void **)
{
    sim::DeviceConfig device;
    device.clock_khz = 0;
    Wire wire(2, device, 1500, {.stamps = true});
    assert_true(wire.nic(1).stamps() == ether::XdpStamps::kNone);
    steer(wire);
    send(wire.queue(0), datagram(kPort));
    assert_int_equal(next_stamp(wire), 0);
}

// It has a clock, and gives no such queue.
void devices_that_refuse(void **)
{
    sim::Config config;
    config.clock = sim::Clock::manual;
    config.devices.resize(1);
    sim::reset(config);
    verbs::use_table(sim::table());
    assert_true(sim::fail_call("create_cq_ex", 1, EOPNOTSUPP));
    RawNic nic;
    assert_int_equal(RawNic::open(interface_of(0), {"sim0", 1}, nic, {.stamps = true}), 0);
    assert_true(nic.stamps() == ether::XdpStamps::kNone);
}

void nobody_pays_who_does_not_ask(void **)
{
    Wire wire;
    assert_true(wire.nic(1).stamps() == ether::XdpStamps::kNone);
    steer(wire);
    send(wire.queue(0), datagram(kPort));
    assert_int_equal(next_stamp(wire), 0);
}

// The queue pair breaks while receives are out: an error has no time, and ends the queue.
void the_end(void **)
{
    Wire wire(2, {}, 1500, {.stamps = true});
    steer(wire);
    send(wire.queue(0), datagram(kPort));
    sim::break_qp(wire.queue(1).qp()->qp_num);
    std::array<ether::ReceivedFrame, 4> burst;
    while (!wire.queue(1).is_broken())
        static_cast<void>(wire.queue(1).receive(burst));
    assert_int_equal(wire.queue(1).receive(burst), 0);
}

void a_counter_that_begins_anew(void **)
{
    ether::RawClock clock((std::uint64_t{1} << 20) - 1, 1'000'000); // 1.05 ms
    constexpr std::uint64_t kHost = 5 * kSecond;
    for (const std::uint64_t ns : {100U, 1'000'000U, 1'048'575U, 1'048'577U, 2'000'000U, 50'000'000U, 50'000'001U}) {
        // Read some time later, and not always equally late.
        assert_int_equal(clock.time_of(ns & ((1U << 20) - 1), kHost + ns + ns % 1000), ns);
    }
    ether::RawClock whole(~std::uint64_t{0}, 1'000'000);
    assert_int_equal(whole.time_of(77, kHost), 77);
    assert_int_equal(whole.time_of(1ULL << 63, kHost + 1), 1ULL << 63);
    assert_false(ether::RawClock(0, 5).runs() || ether::RawClock(5, 0).runs());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(frames_have_the_devices),
        cmocka_unit_test(devices_without_a_clock),
        cmocka_unit_test(devices_that_refuse),
        cmocka_unit_test(nobody_pays_who_does_not_ask),
        cmocka_unit_test(the_end),
        cmocka_unit_test(a_counter_that_begins_anew),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
