// SPDX-License-Identifier: BSD-2-Clause
// A NIC by a RAW_PACKET queue pair, over the simulated NIC: the rules of its flows.
#include "prov/vma/test/ether/raw.hpp"

#include <cerrno>

using namespace raw;
using inet::Protocol;

namespace {

void only_frames_of_flows_come(void **)
{
    Wire wire;
    assert_false(arrives(wire, datagram(kPort)));
    for (const inet::Flow &flow : {kFive, kThree}) {
        do_add(wire, flow);
        assert_int_equal(wire.nic(1).flows().count(), 1);
        assert_true(arrives(wire, datagram(kPort)));
        assert_false(arrives(wire, datagram(kPort + 1)));
        do_remove(wire, flow);
        assert_false(arrives(wire, datagram(kPort)));
    }
    do_add(wire, {kFive.local, {kFive.remote.address, 9001}});
    assert_false(arrives(wire, datagram(kPort)));
    assert_int_equal(wire.nic(1).flows().add(kFive, Protocol::kTcp), 0);
    assert_false(arrives(wire, datagram(kPort)));
}

void a_flow_of_any_address_is_of_those_named(void **)
{
    Wire wire;
    const inet::Flow any = {{kAny4, kPort}, {}};
    do_add(wire, any);
    do_add(wire, {{kAny6, kPort}, {}});
    assert_false(arrives(wire, datagram(kPort)));
    ether::Flows &flows = wire.nic(1).flows();
    for (int i = 0; i < 2; ++i) // the second time is no error, and nothing more
        assert_int_equal(flows.add_address(address_of(1)), 0);
    assert_int_equal(sim::flows(1).size(), 1);
    assert_true(arrives(wire, datagram(kPort)));
    assert_int_equal(flows.remove_address(address_of(1)), 0);
    assert_int_equal(flows.remove_address(address_of(1)), -ENOENT);
    assert_false(arrives(wire, datagram(kPort)));
    assert_int_equal(flows.add_address(address_of(1)), 0);
    assert_true(arrives(wire, datagram(kPort)));
    do_remove(wire, any);
    assert_false(arrives(wire, datagram(kPort)));
    assert_int_equal(sim::flows(1).size(), 0);
}

void an_ipv6_flow_has_a_rule(void **)
{
    Wire wire;
    inet::IpAddress six;
    six.bytes[0] = 0xfd;
    six.bytes[15] = 2;
    do_add(wire, {{six, kPort}, {}});
    inet::IpOut ip;
    ip.source = six;
    ip.source.bytes[15] = 1;
    ip.target = six;
    ip.protocol = Protocol::kUdp;
    const Frame data(10);
    const inet::Bytes parts[] = {data};
    Frame frame(128);
    frame.resize(inet::write_udp_frame(frame.data(), {mac_of(1), mac_of(0), 0}, ip, {9, kPort}, parts));
    assert_true(arrives(wire, frame));
    ++frame[14 + 40 + 3]; // another port
    assert_false(arrives(wire, frame));
}

void a_group_has_a_mac_of_its_own(void **)
{
    Wire wire;
    const inet::IpAddress group = inet::IpAddress::v4(0xef810203); // 239.129.2.3: the 23 lowest bits count
    do_add(wire, {{group, kPort}, {}});
    Frame frame = datagram(kPort);
    const std::uint8_t mac[] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
    std::memcpy(frame.data(), mac, sizeof mac);
    std::memcpy(&frame[14 + 16], group.v4_bytes(), 4);
    assert_true(arrives(wire, frame));
    frame[5] ^= 1;
    assert_false(arrives(wire, frame));
}

void a_vlan_is_part_of_a_flow(void **)
{
    Wire wire;
    do_add(wire, kThree);
    assert_false(arrives(wire, datagram(kPort, 5))); // the rule takes it, it is no flow's
    do_add(wire, kThree, {5, 0});
    assert_true(arrives(wire, datagram(kPort, 5)));
    assert_true(arrives(wire, datagram(kPort)));
    assert_false(arrives(wire, datagram(kPort, 6)));
    do_remove(wire, kThree);
    assert_false(arrives(wire, datagram(kPort)));
    assert_true(arrives(wire, datagram(kPort, 5)));
    assert_int_equal(wire.nic(1).flows().add(kThree, Protocol::kUdp, {5, 6}), ether::kFlowRefused);
}

void what_is_no_flow_is_refused(void **)
{
    Wire wire;
    ether::Flows &flows = wire.nic(1).flows();
    assert_int_equal(flows.add(kFive, Protocol::kIcmp), -EINVAL);
    assert_int_equal(flows.add({{address_of(1), 0}, {}}, Protocol::kUdp), -EINVAL);
    assert_int_equal(flows.add({{kAny4, kPort}, kFive.remote}, Protocol::kUdp), -EINVAL);
    assert_int_equal(flows.remove(kFive, Protocol::kUdp), -ENOENT);
    do_add(wire, kFive);
    assert_int_equal(flows.add(kFive, Protocol::kUdp), -EEXIST);
    assert_int_equal(flows.count(), 1);
}

// A rule that the device does not take leaves the flow to the kernel, all of it.
void a_rule_that_is_refused(void **)
{
    Wire wire;
    ether::Flows &flows = wire.nic(1).flows();
    const struct {
        int device;
        int flows;
    } answers[] = {{EINVAL, ether::kFlowRefused},
                   {EOPNOTSUPP, ether::kFlowRefused},
                   {ENOMEM, ether::kFlowTableFull},
                   {ENOSPC, ether::kFlowTableFull},
                   {EIO, -ENODEV}};
    for (const auto &answer : answers) {
        assert_true(sim::fail_call("create_flow", 1, answer.device));
        assert_int_equal(flows.add(kFive, Protocol::kUdp), answer.flows);
        assert_int_equal(flows.count(), 0);
    }
    for (unsigned i = 1; i < 4; ++i)
        assert_int_equal(flows.add_address(address_of(i)), 0);
    assert_true(sim::fail_call("create_flow", 3, ENOMEM));
    assert_int_equal(flows.add({{kAny4, kPort}, {}}, Protocol::kUdp), ether::kFlowTableFull);
    assert_int_equal(flows.count(), 0);
    assert_int_equal(sim::flows(1).size(), 0);
    do_add(wire, {{kAny4, kPort}, {}});
    do_add(wire, {{kAny4, kPort + 1}, {}});
    assert_true(sim::fail_call("create_flow", 2, ENOMEM));
    assert_int_equal(flows.add_address(address_of(9)), ether::kFlowTableFull);
    assert_int_equal(sim::flows(1).size(), 6);
    assert_int_equal(flows.remove_address(address_of(9)), -ENOENT);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(only_frames_of_flows_come), cmocka_unit_test(a_flow_of_any_address_is_of_those_named),
        cmocka_unit_test(an_ipv6_flow_has_a_rule),   cmocka_unit_test(a_group_has_a_mac_of_its_own),
        cmocka_unit_test(a_vlan_is_part_of_a_flow),  cmocka_unit_test(what_is_no_flow_is_refused),
        cmocka_unit_test(a_rule_that_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
