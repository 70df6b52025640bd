// SPDX-License-Identifier: BSD-2-Clause
// Frames of RAW_PACKET queue pairs over the simulated wire: which of them a rule gives to a QP, and what becomes of the
// others.
#include "fabtests/unit.hpp"

#include "contrib/lab/sim/test/frame_host.hpp"

using namespace vma;
using namespace vma::sim_test;

namespace {

// ---- rules ----------------------------------------------------------------------------------------------------------

void no_rule_no_frame(void **)
{
    Wire wire;
    wire.b->receive(wire.b->qp(), 2);
    assert_int_equal(wire.a->send(datagram()), 0);
    assert_false(wire.b->got(datagram()));
    assert_int_equal(sim::stats().unsteered, 1);
    ibv_flow *const flow = wire.b->steer();
    assert_non_null(flow);
    assert_int_equal(wire.a->send(datagram()), 0);
    assert_true(wire.b->got(datagram()));
    wire.b->unsteer(flow);
    assert_int_equal(wire.a->send(datagram()), 0);
    assert_false(wire.b->got(datagram()));
}

using Rule = Host::Rule;

// Changes of the rule that takes the datagram, and whether it still does.
const struct {
    void (*change)(Rule &);
    bool takes;
} kRules[] = {
    {[](Rule &) {}, true},
    {[](Rule &r) { r.eth.val.dst_mac[5] ^= 1; }, false},
    {[](Rule &r) { r.eth.val.dst_mac[5] ^= 1, r.eth.mask.dst_mac[5] = 0; }, true},
    {[](Rule &r) { r.eth.mask.vlan_tag = htons(0x0fff), r.eth.val.vlan_tag = htons(5); }, false},
    {[](Rule &r) { r.eth.mask.ether_type = 0xffff, r.eth.val.ether_type = htons(0x0800); }, true},
    {[](Rule &r) { r.eth.mask.ether_type = 0xffff, r.eth.val.ether_type = htons(0x86dd); }, false},
    {[](Rule &r) { r.ip.val.dst_ip = ::inet_addr("10.0.0.6"); }, false},
    {[](Rule &r) { r.ip.val.dst_ip = ::inet_addr("10.0.0.0"), r.ip.mask.dst_ip = ::inet_addr("255.255.255.0"); }, true},
    {[](Rule &r) { r.ip.val.src_ip = ::inet_addr("10.0.0.8"), r.ip.mask.src_ip = 0xffffffff; }, true},
    {[](Rule &r) { r.ip.val.src_ip = ::inet_addr("10.0.0.9"), r.ip.mask.src_ip = 0xffffffff; }, false},
    {[](Rule &r) { r.ports.val.dst_port = htons(7001); }, false},
    {[](Rule &r) { r.ports.val.src_port = htons(7000), r.ports.mask.src_port = 0xffff; }, true},
    {[](Rule &r) { r.ports.val.src_port = htons(7001), r.ports.mask.src_port = 0xffff; }, false},
    {[](Rule &r) { r.ports.type = IBV_FLOW_SPEC_TCP; }, false},
};

void rules_have_specs_and_masks(void **)
{
    for (const auto &rule : kRules) {
        Wire wire;
        wire.b->receive(wire.b->qp(), 1);
        assert_non_null(wire.b->steer(rule.change));
        assert_int_equal(wire.a->send(datagram()), 0);
        assert_int_equal(wire.b->got(datagram()), rule.takes);
    }
}

void a_tag_is_matched_where_the_rule_says_so(void **)
{
    Wire wire;
    wire.b->receive(wire.b->qp(), 2);
    ibv_flow *const any = wire.b->steer();
    assert_int_equal(wire.a->send(datagram(7000, 5)), 0); // a rule that says nothing of tags
    assert_true(wire.b->got(datagram(7000, 5)));
    wire.b->unsteer(any);
    assert_non_null(wire.b->steer([](Rule &r) { r.eth.mask.vlan_tag = htons(0x0fff), r.eth.val.vlan_tag = htons(5); }));
    assert_int_equal(wire.a->send(datagram(7000, 5)), 0);
    assert_true(wire.b->got(datagram(7000, 5)));
    assert_int_equal(wire.a->send(datagram(7000, 6)), 0);
    assert_int_equal(wire.a->send(datagram()), 0);
    assert_false(wire.b->got(datagram()));
}

void the_lower_priority_number_goes_first(void **)
{
    Wire wire;
    ibv_qp *const other = wire.b->other_qp();
    wire.b->receive(wire.b->qp(), 2);
    wire.b->receive(other, 2);
    assert_non_null(wire.b->steer([](Rule &r) { r.attr.priority = 1; }));
    ibv_flow *const narrow =
        wire.b->steer([](Rule &r) { r.ports.val.src_port = htons(7000), r.ports.mask.src_port = 0xffff; }, other);
    assert_int_equal(wire.a->send(datagram()), 0);
    assert_true(wire.b->got(datagram(), other));
    wire.b->unsteer(narrow);
    assert_int_equal(wire.a->send(datagram()), 0);
    assert_true(wire.b->got(datagram()));
}

void fragments_have_no_ports(void **)
{
    Wire wire;
    wire.b->receive(wire.b->qp(), 1);
    assert_non_null(wire.b->steer());
    Frame first = datagram();
    first[20] |= 0x20; // more fragments
    assert_int_equal(wire.a->send(first), 0);
    assert_false(wire.b->got(first));
}

void what_is_malformed_is_no_ones(void **)
{
    Wire wire;
    wire.b->receive(wire.b->qp(), 1);
    assert_non_null(wire.b->steer());
    const Frame whole = datagram();
    for (std::size_t length = 14; length < whole.size(); ++length)
        assert_int_equal(wire.a->send(Frame(whole.begin(), whole.begin() + static_cast<long>(length))), 0);
    Frame changed = whole;
    changed[14] = 0x44; // a header of 16 bytes
    assert_int_equal(wire.a->send(changed), 0);
    assert_false(wire.b->got(whole));
    assert_int_equal(sim::stats().unsteered, whole.size() - 14 + 1);
}

void rules_that_are_refused(void **)
{
    sim::DeviceConfig small;
    small.max_flows = 1;
    Wire wire(two_devices(small));
    const auto refused = [&wire](int error, void (*change)(Rule &)) {
        errno = 0;
        assert_null(wire.b->steer(change));
        assert_int_equal(errno, error);
    };
    refused(EINVAL, [](Rule &r) { r.attr.num_of_specs = 4; });
    refused(EINVAL, [](Rule &r) { r.attr.port = 2; });
    refused(EINVAL, [](Rule &r) { r.attr.priority = 16; });
    refused(EINVAL, [](Rule &r) { r.ip.size = 2000; });
    refused(EINVAL, [](Rule &r) { r.eth.type = IBV_FLOW_SPEC_TCP, r.eth.size = sizeof r.ports; });
    refused(EOPNOTSUPP, [](Rule &r) { r.attr.type = IBV_FLOW_ATTR_SNIFFER; });
    refused(EOPNOTSUPP, [](Rule &r) { r.ip.type = IBV_FLOW_SPEC_ESP; });
    refused(EOPNOTSUPP, [](Rule &r) { r.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS; });
    assert_non_null(wire.b->steer());
    refused(ENOMEM, [](Rule &) {});
}

// ---- frames ---------------------------------------------------------------------------------------------------------

void a_frame_without_a_receive_is_lost(void **)
{
    Wire wire;
    assert_non_null(wire.b->steer());
    assert_int_equal(wire.a->send(datagram()), 0);
    assert_int_equal(sim::stats().lost, 1);
    wire.b->receive(wire.b->qp(), 1);
    assert_false(wire.b->got(datagram()));
    assert_int_equal(wire.a->send(datagram()), 0);
    assert_true(wire.b->got(datagram()));
}

void a_frame_that_does_not_fit_breaks_the_queue(void **)
{
    Wire wire;
    assert_non_null(wire.b->steer());
    wire.b->receive(wire.b->qp(), 1, 64);
    assert_int_equal(wire.a->send(datagram()), 0);
    ibv_wc wc{};
    assert_true(wire.b->next(wc));
    assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
    assert_int_equal(wire.b->qp()->state, IBV_QPS_ERR);
}

void checksums_are_verified_and_written(void **)
{
    Wire wire;
    wire.b->receive(wire.b->qp(), 4);
    assert_non_null(wire.b->steer());
    const auto flags_of = [&wire](const Frame &frame, unsigned flags) {
        assert_int_equal(wire.a->send(frame, flags), 0);
        ibv_wc wc{};
        assert_true(wire.b->next(wc));
        return wc.wc_flags & IBV_WC_IP_CSUM_OK;
    };
    Frame frame = datagram();
    assert_int_not_equal(flags_of(frame, 0), 0);
    frame.back() ^= 1;
    assert_int_equal(flags_of(frame, 0), 0);
    assert_int_not_equal(flags_of(frame, IBV_SEND_IP_CSUM), 0);
    frame[24] ^= 1; // of IPv4's header
    assert_int_not_equal(flags_of(frame, IBV_SEND_IP_CSUM), 0);
}

// RFC 1071, 4.1: 0xffff is a right one. IPv4 without options, no tag.
std::uint16_t plain_sum(const Frame &frame, std::size_t from, std::size_t to, std::uint32_t total)
{
    for (std::size_t i = from; i < to; ++i)
        total += (i - from) % 2 == 0 ? std::uint32_t{frame[i]} << 8 : frame[i];
    while (total >> 16 != 0)
        total = (total & 0xffff) + (total >> 16);
    return static_cast<std::uint16_t>(total);
}

// 20 bytes of TCP from 10.0.0.8 to 10.0.0.7, with CWR, ACK, PSH and FIN, number 0xfffffff0, id 0xffff.
Frame segment_header()
{
    Frame header = datagram();
    header.resize(14 + 20);
    header[17] = 40;
    header[18] = header[19] = 0xff;
    header[23] = IPPROTO_TCP;
    header.insert(header.end(),
                  {0x1b, 0x58, 0x1b, 0x58, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x50, 0x99, 1, 0, 0, 0, 0, 0});
    return header;
}

void segments_are_cut(void **)
{
    const Frame header = segment_header();
    Frame data(250);
    for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<std::uint8_t>(i);
    std::vector<Frame> frames;
    assert_true(sim::cut(header, data, 100, frames));
    assert_int_equal(frames.size(), 3);
    std::uint32_t number = 0xfffffff0;
    for (std::size_t i = 0; i < 3; ++i) {
        Frame &frame = frames[i];
        const std::size_t length = i < 2 ? 100 : 50;
        assert_int_equal(frame.size(), 54 + length);
        assert_memory_equal(&frame[54], &data[100 * i], length);
        assert_int_equal(frame[16] * 256 + frame[17], 40 + length);
        assert_int_equal(frame[18] * 256 + frame[19], (0xffff + i) & 0xffff);
        const std::uint8_t wire[] = {static_cast<std::uint8_t>(number >> 24), static_cast<std::uint8_t>(number >> 16),
                                     static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number)};
        assert_memory_equal(&frame[38], wire, sizeof wire);
        constexpr unsigned kFlags[] = {0x90, 0x10, 0x19}; // CWR first, PSH and FIN last
        assert_int_equal(frame[47], kFlags[i]);
        number += 100;
        sim::Headers headers;
        assert_true(sim::parse(frame, headers));
        sim::write_checksums(frame, headers);
        assert_int_equal(plain_sum(frame, 14, 34, 0), 0xffff);
        const std::uint32_t pseudo = 0x0a00 + 8 + 0x0a00 + 7 + IPPROTO_TCP + static_cast<std::uint32_t>(20 + length);
        assert_int_equal(plain_sum(frame, 34, frame.size(), pseudo), 0xffff);
    }
    assert_false(sim::cut(header, {}, 100, frames));
    assert_false(sim::cut(std::span(header).first(50), data, 100, frames));
    Frame udp = datagram();
    udp.resize(42);
    assert_false(sim::cut(udp, data, 100, frames));
}

void a_device_without_checksums(void **)
{
    sim::DeviceConfig plain;
    plain.ip_csum = false;
    Wire wire(two_devices(plain));
    wire.b->receive(wire.b->qp(), 1);
    assert_non_null(wire.b->steer());
    assert_int_equal(wire.a->send(datagram(), IBV_SEND_IP_CSUM), EINVAL);
    assert_int_equal(wire.a->send(datagram()), 0);
    ibv_wc wc{};
    assert_true(wire.b->next(wc));
    assert_int_equal(wc.wc_flags, 0);
}

void frames_get_lost_as_asked_for(void **)
{
    Wire wire;
    assert_non_null(wire.b->steer());
    sim::lose_frames(500);
    unsigned came = 0;
    bool posted = false;
    for (unsigned i = 0; i < 2000; ++i) {
        if (!posted)
            wire.b->receive(wire.b->qp(), 1);
        assert_int_equal(wire.a->send(datagram()), 0); // the sender does not hear of it
        ibv_wc wc{};
        posted = !wire.b->next(wc);
        came += !posted;
    }
    assert_in_range(came, 1800, 1980);
}

void no_frames_through_a_cut_or_a_removed_device(void **)
{
    Wire wire;
    wire.b->receive(wire.b->qp(), 1);
    assert_non_null(wire.b->steer());
    sim::cut(0, 1);
    assert_int_equal(wire.a->send(datagram()), 0);
    sim::join(0, 1);
    sim::port_down(1);
    assert_int_equal(wire.a->send(datagram()), 0);
    sim::port_up(1);
    assert_false(wire.b->got(datagram()));
    sim::remove_device(1);
    assert_int_equal(wire.a->send(datagram()), 0);
    ibv_wc wc{};
    assert_true(wire.b->next(wc));
    assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
    assert_null(wire.b->steer());
    assert_int_equal(errno, EIO);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(no_rule_no_frame),
        cmocka_unit_test(rules_have_specs_and_masks),
        cmocka_unit_test(a_tag_is_matched_where_the_rule_says_so),
        cmocka_unit_test(the_lower_priority_number_goes_first),
        cmocka_unit_test(fragments_have_no_ports),
        cmocka_unit_test(what_is_malformed_is_no_ones),
        cmocka_unit_test(rules_that_are_refused),
        cmocka_unit_test(a_frame_without_a_receive_is_lost),
        cmocka_unit_test(a_frame_that_does_not_fit_breaks_the_queue),
        cmocka_unit_test(checksums_are_verified_and_written),
        cmocka_unit_test(segments_are_cut),
        cmocka_unit_test(a_device_without_checksums),
        cmocka_unit_test(frames_get_lost_as_asked_for),
        cmocka_unit_test(no_frames_through_a_cut_or_a_removed_device),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
