// SPDX-License-Identifier: BSD-2-Clause
// The segments that vmad sends, as a stack reads them.
#include "fabtests/unit.hpp"

#include "inet/tcp/segment.hpp"
#include "inet/wire/ip_header.hpp"
#include "util/vmad/flow.hpp"

using namespace vma;
using guard::FlowKey;
using guard::FlowState;

namespace {

constexpr inet::Nanos kThen = 5 * inet::kSecond;

FlowKey key_v4()
{
    return {inet::IpAddress::v4(0x0a630001), inet::IpAddress::v4(0x0a630002), 7000, 40000};
}

FlowKey key_v6()
{
    FlowKey key = key_v4();
    key.local = key.remote = {};
    key.local.bytes[0] = key.remote.bytes[0] = 0xfd;
    key.local.bytes[15] = 1;
    key.remote.bytes[15] = 2;
    return key;
}

// As it would come in a frame.
inet::Segment read(const FlowKey &key, const FlowState &state, unsigned round, inet::Nanos now)
{
    static std::uint8_t bytes[sizeof(guard::Probe)];
    guard::Probe probe;
    const std::size_t length = guard::write_probe(key, state, round, now, probe);
    memcpy(bytes, probe.data(), length);
    inet::Packet packet;
    inet::Segment segment;
    const std::size_t ip = inet::ip_header_size(key.remote);
    packet.source = key.local;
    packet.target = key.remote;
    packet.protocol = inet::Protocol::kTcp;
    packet.payload = {bytes + ip, length - ip};
    assert_true(inet::parse_segment(packet, segment));
    assert_int_equal(segment.source_port, 7000);
    assert_int_equal(segment.target_port, 40000);
    assert_int_equal(segment.flags, inet::kAck);
    assert_int_equal(segment.length(), 0);
    return segment;
}

void test_rounds(void **)
{
    for (const FlowKey &key : {key_v4(), key_v6()}) {
        const FlowState state = {
            .seq = 0xfffffff0, .ack = 77, .stamp = 0, .echo = 0, .timestamps = false, .since = kThen};
        const inet::Segment first = read(key, state, 0, kThen);
        assert_int_equal(first.seq, 0xfffffff0);
        assert_int_equal(first.ack, 77);
        assert_false(first.options.has_timestamps);
        assert_int_equal(read(key, state, 1, kThen).seq, 0x7ffffff0); // outside of any window that the first is in
        assert_int_equal(read(key, state, 2, kThen).seq, 0xfffffff0);
    }
}

// Not older than any that the process may have sent since.
void test_stamps(void **)
{
    const FlowState state = {.seq = 1, .ack = 2, .stamp = 0xffffff00, .echo = 9, .timestamps = true, .since = kThen};
    const inet::Segment segment = read(key_v4(), state, 0, kThen + 3600 * inet::kSecond);
    assert_true(segment.options.has_timestamps);
    assert_int_equal(segment.options.timestamp, std::uint32_t{0xffffff00} + 3'600'000 + 1000);
    assert_int_equal(segment.options.timestamp_echo, 9);
}

void test_plausible(void **)
{
    assert_true(guard::is_plausible(key_v4()));
    assert_true(guard::is_plausible(key_v6()));
    FlowKey mixed = key_v6();
    mixed.remote = key_v4().remote;
    assert_false(guard::is_plausible(mixed));
    FlowKey portless = key_v4();
    portless.remote_port = 0;
    assert_false(guard::is_plausible(portless));
    FlowKey group = key_v4();
    group.remote = inet::IpAddress::v4(0xe0000001);
    assert_false(guard::is_plausible(group));
}

void test_text(void **)
{
    assert_string_equal(guard::text_of(key_v4()).c_str(), "10.99.0.1:7000 to 10.99.0.2:40000");
    assert_string_equal(guard::text_of(key_v6()).c_str(), "[fd00::1]:7000 to [fd00::2]:40000");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_stamps),
        cmocka_unit_test(test_plausible),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
