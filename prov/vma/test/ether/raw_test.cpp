// SPDX-License-Identifier: BSD-2-Clause
// A NIC by a RAW_PACKET queue pair, over the simulated NIC: its frames, sleep, its opening and its end.
#include "prov/vma/test/ether/raw.hpp"

#include <array>
#include <cerrno>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "ether/net_if.hpp"
#include "ether/nic.hpp"
#include "ofi/process_ops.hpp"

using namespace raw;
using ether::FrameIndex;
using ether::RawQueue;
using ether::ReceivedFrame;
using inet::Protocol;

namespace {

// ---- frames ---------------------------------------------------------------------------------------------------------

// Frames that the program has on loan: the others go on coming, and half of them at most are out.
void lent_frames(void **)
{
    Wire wire(2, {}, 1500, {.receive_frames = 64});
    do_add(wire, kThree);
    RawQueue &queue = wire.queue(1);
    std::vector<std::span<const std::uint8_t>> held;
    ether::LentFrames *lender = nullptr;
    const auto pass_one = [&](std::uint8_t mark) {
        Frame frame = datagram(kPort);
        frame.back() = mark;
        send(wire.queue(0), frame);
        std::array<ReceivedFrame, 4> burst;
        assert_int_equal(queue.receive(burst), 1);
        const std::span<const std::uint8_t> bytes = burst[0].bytes;
        assert_int_equal(bytes.back(), mark);
        ether::LentFrames *const here = queue.lender_of(bytes.data(), bytes.size());
        if (here != nullptr) {
            lender = here;
            lender->lend(bytes.data());
            held.push_back(bytes);
        }
        queue.release(burst[0].index);
    };
    const auto give_back = [&](std::size_t place) {
        lender->give_back(lender, held[place].data(), held[place].size());
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
    };
    for (unsigned i = 0; i < 300; ++i)
        pass_one(static_cast<std::uint8_t>(i));
    assert_int_equal(held.size(), 32);
    for (unsigned i = 0; i < 32; ++i) // the first ones, untouched since
        assert_int_equal(held[i].back(), i);
    std::thread([&] {
        for (unsigned i = 0; i < 8; ++i)
            give_back(i);
    }).join();
    for (unsigned i = 0; i < 300; ++i)
        pass_one(static_cast<std::uint8_t>(100 + i));
    assert_int_equal(held.size(), 32);
    assert_null(queue.lender_of(held.front().data() - 1000000, 10));
    while (!held.empty())
        give_back(held.size() / 2);
}

// The memory stays when the NIC is gone.
void lent_frames_outlive_the_nic(void **)
{
    const Frame sent = datagram(kPort);
    std::span<const std::uint8_t> held;
    ether::LentFrames *lender = nullptr;
    {
        Wire wire;
        do_add(wire, kThree);
        send(wire.queue(0), sent);
        std::array<ReceivedFrame, 4> burst;
        assert_int_equal(wire.queue(1).receive(burst), 1);
        held = burst[0].bytes;
        lender = wire.queue(1).lender_of(held.data(), held.size());
        assert_non_null(lender);
        lender->lend(held.data());
        wire.queue(1).release(burst[0].index);
    }
    assert_memory_equal(held.data(), sent.data(), sent.size());
    lender->give_back(lender, held.data(), held.size());
}

void many_frames(void **)
{
    constexpr unsigned kBursts = 1000;
    constexpr unsigned kBurst = 20;
    Wire wire;
    do_add(wire, kFive);
    std::size_t came = 0;
    for (unsigned i = 0; i < kBursts; ++i) {
        for (unsigned k = 0; k < kBurst; ++k)
            assert_true(put(wire.queue(0), datagram(kPort, 0, i % 1400)));
        assert_int_equal(wire.queue(0).flush(), 0);
        came += take_all(wire.nic(1));
    }
    assert_int_equal(came, kBursts * kBurst);
    assert_int_equal(wire.queue(0).counters().sent, kBursts * kBurst);
    assert_int_equal(wire.queue(0).counters().doorbells, kBursts);
    assert_int_equal(wire.queue(1).counters().received, kBursts * kBurst);
    assert_true(wire.queue(1).counters().posts <= kBursts + 1); // a burst is given back at once
    assert_int_equal(sim::stats().signaled, kBursts * kBurst / 32);
}

void more_frames_than_there_is_room_for(void **)
{
    Wire wire;
    do_add(wire, kFive);
    for (int turn = 0; turn < 3; ++turn) {
        for (int i = 0; i < 1500; ++i)
            send(wire.queue(0), datagram(kPort));
        assert_int_equal(take_all(wire.nic(1)), 1024); // the device's longest queue
        assert_int_equal(sim::stats().lost, (turn + 1) * (1500 - 1024));
    }
}

void all_frames_are_taken(void **)
{
    Wire wire;
    RawQueue &queue = wire.queue(0);
    std::vector<FrameIndex> taken;
    for (FrameIndex frame; (frame = queue.take()) != ether::kNoFrame;)
        taken.push_back(frame);
    assert_int_equal(taken.size(), 1024);
    for (const FrameIndex frame : taken)
        queue.release(frame);
    for (int i = 0; i < 5000; ++i) // more than there are: those that are sent come back
        send(queue, datagram(kPort));
}

void long_frames(void **)
{
    sim::DeviceConfig device;
    Wire wire(2, device, 9000);
    do_add(wire, kFive);
    assert_true(arrives(wire, datagram(kPort, 0, 8900)));
}

void checksums_that_the_device_has_verified(void **)
{
    for (const bool verifies : {true, false}) {
        sim::DeviceConfig device;
        device.ip_csum = verifies;
        Wire wire(2, device);
        do_add(wire, kFive);
        std::array<ReceivedFrame, 4> burst;
        Frame frame = datagram(kPort);
        send(wire.queue(0), frame);
        frame.back() ^= 1;
        send(wire.queue(0), frame);
        assert_int_equal(wire.queue(1).receive(burst), 2);
        assert_int_equal(burst[0].checksums_good, verifies);
        assert_false(burst[1].checksums_good);
    }
}

// ---- sleep ----------------------------------------------------------------------------------------------------------

bool is_readable(const RawQueue &queue)
{
    return ::poll(std::array{pollfd{queue.fd(), POLLIN, 0}}.data(), 1, 0) == 1;
}

void a_frame_wakes(void **)
{
    Wire wire;
    RawQueue &queue = wire.queue(1);
    do_add(wire, kFive);
    for (int turn = 0; turn < 3; ++turn) {
        assert_true(queue.arm());
        assert_true(queue.arm()); // twice is no harm
        assert_false(is_readable(queue));
        send(wire.queue(0), datagram(kPort));
        assert_true(is_readable(queue));
        assert_false(queue.arm()); // it is there
        assert_int_equal(take_all(wire.nic(1)), 1);
    }
    // Before it is armed nothing wakes, but arming sees it.
    assert_true(queue.arm());
    send(wire.queue(0), datagram(kPort));
    assert_int_equal(take_all(wire.nic(1)), 1);
    send(wire.queue(0), datagram(kPort));
    assert_false(queue.arm());
    assert_int_equal(take_all(wire.nic(1)), 1);
    assert_true(queue.arm());
    assert_false(is_readable(queue));
    assert_int_equal(queue.counters().armings, 5); // the first, and one after each that was seen
    assert_int_equal(queue.counters().wakes, 4);
}

// ---- the end --------------------------------------------------------------------------------------------------------

// It moves nothing, refuses flows, keeps nothing from the kernel, and does not keep its user busy.
void assert_dead(Wire &wire)
{
    RawQueue &queue = wire.queue(1);
    wire.nic(1).follow();
    assert_true(queue.is_broken());
    assert_int_equal(sim::flows(1).size(), 0);
    assert_int_equal(wire.nic(1).flows().add(kThree, Protocol::kUdp), -ENODEV);
    assert_int_equal(wire.nic(1).flows().remove(kFive, Protocol::kUdp), 0);
    assert_int_equal(take_all(wire.nic(1)), 0);
    for (int i = 0; i < 3000; ++i) {
        assert_true(put(queue, datagram(kPort)));
        assert_int_equal(queue.flush(), -ENODEV);
    }
    assert_true(queue.arm());
    wire.nic(1).follow();
    assert_false(is_readable(queue));
}

void the_device_is_removed(void **)
{
    Wire wire;
    do_add(wire, kFive);
    send(wire.queue(0), datagram(kPort));
    assert_true(put(wire.queue(1), datagram(kPort))); // under way at that moment
    assert_true(wire.queue(1).arm() || take_all(wire.nic(1)) == 1);
    sim::remove_device(1);
    assert_true(is_readable(wire.queue(1)));
    assert_dead(wire);
}

void a_sleeper_sees_the_end(void **)
{
    Wire wire;
    do_add(wire, kFive);
    assert_true(wire.queue(1).arm());
    sim::remove_device(1);
    assert_true(is_readable(wire.queue(1)));
    assert_int_equal(take_all(wire.nic(1)), 0); // flushed receives are no frames
    assert_dead(wire);
}

void the_queue_pair_breaks(void **)
{
    Wire wire;
    do_add(wire, kFive);
    sim::break_qp(wire.queue(1).qp()->qp_num);
    assert_dead(wire);
}

void a_frame_that_is_too_long(void **)
{
    Wire wire;
    do_add(wire, kFive);
    const Frame frame = datagram(kPort, 0, 2040);
    RawQueue &from = wire.queue(0);
    const FrameIndex index = from.take();
    assert_true(frame.size() > from.bytes(index).size());
    from.release(index);
    sim::fail_post(from.qp()->qp_num, EINVAL); // what a device says to it
    assert_true(put(from, datagram(kPort)));
    assert_int_equal(from.flush(), -ENODEV);
    assert_true(from.is_broken());
}

void receives_that_are_not_taken(void **)
{
    Wire wire;
    do_add(wire, kFive);
    send(wire.queue(0), datagram(kPort));
    assert_true(sim::fail_call("post_recv", 1, ENOMEM));
    assert_int_equal(take_all(wire.nic(1)), 1);
    assert_dead(wire);
}

void a_port_event_is_no_end(void **)
{
    Wire wire;
    do_add(wire, kFive);
    sim::port_down(1);
    wire.nic(1).follow();
    assert_false(wire.queue(1).is_broken());
    sim::port_up(1);
    wire.nic(1).follow();
    assert_true(arrives(wire, datagram(kPort)));
}

void a_child_leaves_the_parents_alone(void **)
{
    Wire wire;
    do_add(wire, kFive);
    const pid_t child = ::fork();
    if (child == 0) {
        wire.nic(1) = RawNic();
        ::_exit(sim::stats().live.qps == 2 && sim::flows(1).size() == 1 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(arrives(wire, datagram(kPort)));
}

// ---- opening --------------------------------------------------------------------------------------------------------

void each_step_of_opening_may_fail(void **)
{
    Wire wire;
    for (const char *call : {"open_device", "query_device", "alloc_pd", "create_comp_channel", "create_cq", "create_qp",
                             "reg_mr", "modify_qp", "post_recv", "create_flow"}) {
        RawNic nic;
        assert_true(sim::fail_call(call, 1, EPERM));
        assert_true(RawNic::open(interface_of(0), {"sim0", 1}, nic) < 0);
        assert_int_equal(sim::stats().live.qps, 2);
    }
    RawNic nic;
    assert_int_equal(RawNic::open(interface_of(0), {"none", 1}, nic), -ENODEV);
    assert_int_equal(RawNic::open(interface_of(0), {"sim0", 2}, nic), -EINVAL);
    ether::Interface no_ethernet = interface_of(0);
    no_ethernet.mac = {};
    assert_int_equal(RawNic::open(no_ethernet, {"sim0", 1}, nic), -EOPNOTSUPP);
}

void a_device_without_raw_packets(void **)
{
    Wire wire;
    sim::Config config;
    config.devices = {{.raw_packets = false}};
    wire.nic(0) = RawNic();
    wire.nic(1) = RawNic();
    sim::reset(config);
    RawNic nic;
    assert_int_equal(RawNic::open(interface_of(0), {"sim0", 1}, nic), -EOPNOTSUPP);
}

void the_kind_is_chosen_by_a_variable(void **)
{
    const struct {
        const char *text;
        ether::NicKind kind;
    } kinds[] = {{"auto", ether::NicKind::kAuto},
                 {"xdp", ether::NicKind::kXdp},
                 {"raw", ether::NicKind::kRaw},
                 {"", ether::NicKind::kXdp},
                 {"Raw", ether::NicKind::kXdp}};
    for (const auto &kind : kinds) {
        assert_int_equal(::setenv("FI_VMA_ETHERNET", kind.text, 1), 0);
        assert_true(ether::configured_nic_kind() == kind.kind);
    }
    assert_int_equal(::unsetenv("FI_VMA_ETHERNET"), 0);
    assert_true(ether::configured_nic_kind() == ether::NicKind::kXdp);
    ether::Nic nic;
    assert_int_equal(ether::Nic::open("lo", {ether::NicKind::kRaw, "/nonexistent"}, nic), -EOPNOTSUPP);
    assert_int_equal(ether::Nic::open("no-such-port", {ether::NicKind::kRaw, "/nonexistent"}, nic), -ENODEV);
}

void streams_of_gro_are_a_variable(void **)
{
    const struct {
        const char *text;
        std::uint32_t streams;
    } cases[] = {{"0", 0},           {"1", 1},     {"32", 32}, {"2147483647", 2147483647}, {"", 32}, {"-1", 32},
                 {"2147483648", 32}, {"many", 32}, {"3 ", 32}};
    for (const auto &one : cases) {
        assert_int_equal(::setenv("FI_VMA_GRO_STREAMS_MAX", one.text, 1), 0);
        assert_int_equal(ether::configured_gro_streams(), one.streams);
    }
    ofi::process_ops.set_gro_streams("7"); // stands for it
    assert_int_equal(ether::configured_gro_streams(), 7);
    ofi::process_ops.set_gro_streams(nullptr);
    assert_int_equal(::unsetenv("FI_VMA_GRO_STREAMS_MAX"), 0);
    assert_int_equal(ether::configured_gro_streams(), 32);
}

void interrupts_are_moderated(void **)
{
    Wire wire;
    assert_int_equal(wire.nic(1).moderate(32, 16), 0);
    assert_int_equal(sim::stats().held_completions, 32);
    assert_int_equal(sim::stats().held_us, 16);
    assert_true(sim::fail_call("modify_cq", 1, EOPNOTSUPP));
    assert_int_equal(wire.nic(1).moderate(1, 1), -EOPNOTSUPP);
    assert_int_equal(sim::stats().moderations, 1);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(lent_frames),
        cmocka_unit_test(lent_frames_outlive_the_nic),
        cmocka_unit_test(many_frames),
        cmocka_unit_test(more_frames_than_there_is_room_for),
        cmocka_unit_test(all_frames_are_taken),
        cmocka_unit_test(long_frames),
        cmocka_unit_test(checksums_that_the_device_has_verified),
        cmocka_unit_test(a_frame_wakes),
        cmocka_unit_test(interrupts_are_moderated),
        cmocka_unit_test(the_device_is_removed),
        cmocka_unit_test(a_sleeper_sees_the_end),
        cmocka_unit_test(the_queue_pair_breaks),
        cmocka_unit_test(a_frame_that_is_too_long),
        cmocka_unit_test(receives_that_are_not_taken),
        cmocka_unit_test(a_port_event_is_no_end),
        cmocka_unit_test(a_child_leaves_the_parents_alone),
        cmocka_unit_test(each_step_of_opening_may_fail),
        cmocka_unit_test(a_device_without_raw_packets),
        cmocka_unit_test(the_kind_is_chosen_by_a_variable),
        cmocka_unit_test(streams_of_gro_are_a_variable),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
