// SPDX-License-Identifier: BSD-2-Clause
// Frames read: the plain ones, those with tags, options and extension headers, and every reason of dropping one.
#include "prov/vma/test/inet/frames.hpp"

namespace {

using namespace frames;

constexpr std::size_t kIp = kEthernetHeader; // where the IP header of an untagged frame starts
const Frame kData = bytes_of(30);

struct Read {
    Parsed parsed;
    Packet packet;
    FragmentInfo fragment;
};

Read read(const Frame &frame, bool checksums_good = false)
{
    Read r{};
    const Frame exact(frame.begin(), frame.end()); // its end is the end of the memory, for AddressSanitizer
    r.parsed = parse_frame({exact.data(), exact.size()}, FrameInfo{checksums_good, 5}, r.packet, r.fragment);
    if (r.parsed <= Parsed::kFragment && !r.packet.payload.empty()) // of the caller's frame, which outlives the call
        r.packet.payload = {frame.data() + (r.packet.payload.data() - exact.data()), r.packet.payload.size()};
    return r;
}

void assert_parsed(const Frame &frame, Parsed wanted)
{
    assert_int_equal(read(frame).parsed, wanted);
}

void plain_packets(void **)
{
    for (const bool ipv6 : {false, true})
        for (const std::uint16_t vlan : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{4094}}) {
            IpOut ip = from_peer(ipv6, Protocol::kTcp);
            ip.traffic_class = 0x2b;
            ip.hop_limit = 9;
            Frame frame = frame_of(ip, kData, vlan);
            frame.resize(frame.size() + 11, 0x55); // padding
            const Read r = read(frame);
            assert_int_equal(r.parsed, Parsed::kPacket);
            assert_true(r.packet.source == ip.source && r.packet.target == ip.target);
            assert_true(r.packet.source_mac == kPeerMac);
            assert_int_equal(r.packet.protocol, Protocol::kTcp);
            assert_int_equal(r.packet.traffic_class, 0x2b);
            assert_int_equal(r.packet.hop_limit, 9);
            assert_int_equal(r.packet.vlan, vlan);
            assert_int_equal(r.packet.info.arrived, 5);
            assert_bytes(r.packet.payload, kData);
        }
}

void cut_at_every_byte(void **)
{
    for (const bool ipv6 : {false, true}) {
        const Frame whole = frame_of(from_peer(ipv6, Protocol::kUdp), kData, 5);
        for (std::size_t length = 0; length < whole.size(); ++length) {
            const Parsed parsed = read(Frame(whole.begin(), whole.begin() + static_cast<long>(length))).parsed;
            assert_true(parsed == Parsed::kTruncated || parsed == Parsed::kBadLength || parsed == Parsed::kNotIp);
        }
    }
}

Frame tagged(std::initializer_list<std::uint16_t> tags)
{
    Frame frame = frame_of(from_peer(false, Protocol::kUdp), kData);
    std::uint8_t bytes[2];
    std::size_t at = 12;
    for (const std::uint16_t word : tags) {
        store16(bytes, word);
        frame.insert(frame.begin() + static_cast<long>(at), bytes, bytes + 2);
        at += 2;
    }
    return frame;
}

void vlan_tags(void **)
{
    assert_int_equal(read(tagged({0x8100, 0xe000})).packet.vlan, 0); // a priority only
    assert_int_equal(read(tagged({0x8100, 0xe123})).packet.vlan, 0x123);
    assert_int_equal(read(tagged({0x88a8, 0xa000})).packet.vlan, 0);
    assert_int_equal(read(tagged({0x88a8, 0xa000, 0x8100, 0x0123})).packet.vlan, 0x123);
    assert_parsed(tagged({0x88a8, 0x2000, 0x8100, 0x0123}), Parsed::kPacket);
    assert_parsed(tagged({0x88a8, 0x0001, 0x8100, 0x0123}), Parsed::kNotIp);
    assert_parsed(tagged({0x8100, 0x0001, 0x8100, 0x0123}), Parsed::kNotIp);
    assert_parsed(tagged({0x8100, 0x0fff}), Parsed::kNotIp); // reserved
    assert_parsed(tagged({0x8100, 0, 0x8100, 0, 0x8100, 0}), Parsed::kNotIp);
    assert_parsed(tagged({0x0806}), Parsed::kNotIp);
    assert_parsed(tagged({0x0040}), Parsed::kNotIp); // an IEEE 802.3 length
}

Frame ipv4_with(std::size_t at, std::uint16_t value, bool fixed = true)
{
    Frame frame = frame_of(from_peer(false, Protocol::kUdp), kData);
    store16(&frame[kIp + at], value);
    if (fixed)
        fix_ipv4(frame);
    return frame;
}

void ipv4_headers_that_lie(void **)
{
    assert_parsed(ipv4_with(8, 0x4012, false), Parsed::kBadHeaderChecksum);
    assert_int_equal(read(ipv4_with(8, 0x4012, false), true).parsed, Parsed::kPacket); // the NIC has looked
    assert_parsed(ipv4_with(0, 0x6500), Parsed::kBadVersion);
    assert_parsed(ipv4_with(0, 0x4400), Parsed::kBadLength);
    assert_parsed(ipv4_with(2, 19), Parsed::kBadLength);
    assert_parsed(ipv4_with(2, 51), Parsed::kBadLength);
    assert_parsed(ipv4_with(2, 0), Parsed::kBadLength);
    assert_int_equal(read(ipv4_with(2, 20)).packet.payload.size(), 0);
    Frame six = frame_of(from_peer(true, Protocol::kUdp), kData);
    six[kIp] = 0x45;
    assert_parsed(six, Parsed::kBadVersion);
}

Frame with_options(Frame options)
{
    options.resize((options.size() + 3) / 4 * 4);
    Frame frame = frame_of(from_peer(false, Protocol::kUdp), kData);
    frame.insert(frame.begin() + kIp + 20, options.begin(), options.end());
    frame[kIp] = static_cast<std::uint8_t>(0x45 + options.size() / 4);
    store16(&frame[kIp + 2], static_cast<std::uint16_t>(20 + options.size() + kData.size()));
    fix_ipv4(frame);
    return frame;
}

void ipv4_options(void **)
{
    for (const Frame &good :
         {Frame{148, 4, 0, 0}, Frame{1, 1, 1, 0}, Frame{7, 7, 4, 0, 0, 0, 0, 1}, Frame(40, 1), Frame{0, 131, 99, 0}}) {
        const Read r = read(with_options(good));
        assert_int_equal(r.parsed, Parsed::kPacket);
        assert_int_equal(r.packet.payload.size(), kData.size());
    }
    assert_parsed(with_options({131, 7, 4, 10, 0, 0, 9, 0}), Parsed::kSourceRouted);
    assert_parsed(with_options({1, 137, 7, 4, 10, 0, 0, 9}), Parsed::kSourceRouted);
    assert_parsed(with_options({7, 1, 0, 0}), Parsed::kBadOptions);
    assert_parsed(with_options({7, 0, 0, 0}), Parsed::kBadOptions);
    assert_parsed(with_options({7, 5, 0, 0}), Parsed::kBadOptions);
    assert_parsed(with_options({1, 1, 1, 7}), Parsed::kBadOptions);
    Frame bad_sum = with_options({148, 4, 0, 0});
    bad_sum[kIp + 23] = 1;
    assert_parsed(bad_sum, Parsed::kBadHeaderChecksum);
}

void ipv4_fragments(void **)
{
    const Read first = read(ipv4_with(6, 0x2000));
    assert_int_equal(first.parsed, Parsed::kFragment);
    assert_true(first.fragment.more);
    assert_int_equal(first.fragment.offset, 0);
    Frame frame = ipv4_with(6, 0x1fff);
    store16(&frame[kIp + 4], 0xbeef);
    fix_ipv4(frame);
    const Read last = read(frame);
    assert_int_equal(last.parsed, Parsed::kFragment);
    assert_false(last.fragment.more);
    assert_int_equal(last.fragment.offset, 65528);
    assert_int_equal(last.fragment.id, 0xbeef);
    assert_bytes(last.packet.payload, std::span(last.packet.payload.data(), kData.size()));
    assert_int_equal(read(ipv4_with(6, 0xc000)).parsed, Parsed::kPacket); // don't fragment, and the evil bit
}

Parsed martian(IpAddress source, IpAddress target, Protocol protocol, bool to_all = false)
{
    IpOut ip;
    ip.source = source;
    ip.target = target;
    ip.protocol = protocol;
    Frame frame = frame_of(ip, kData);
    if (to_all)
        memset(frame.data(), 0xff, 6);
    return read(frame).parsed;
}

void martians(void **)
{
    for (const std::uint32_t host : {0u, 0x00000005u, 0x7f000001u, 0xe0000001u, 0xefffffffu, 0xffffffffu})
        assert_int_equal(martian(IpAddress::v4(host), kOurs4, Protocol::kUdp), Parsed::kMartian);
    for (const IpAddress &source : {v6(0, 0), v6(0, 1), v6(0xff02, 1)})
        assert_int_equal(martian(source, kOurs6, Protocol::kUdp), Parsed::kMartian);
    Frame mapped = frame_of(from_peer(true, Protocol::kUdp), kData);
    memcpy(&mapped[kIp + 8], kPeer4.bytes.data(), 16);
    assert_parsed(mapped, Parsed::kMartian);
    assert_int_equal(martian(kPeer4, IpAddress::v4(0x7f000001), Protocol::kUdp), Parsed::kMartian);
    assert_int_equal(martian(kPeer6, v6(0, 1), Protocol::kUdp), Parsed::kMartian);
    const IpAddress group4 = IpAddress::v4(0xe0000005);
    const IpAddress group6 = v6(0xff02, 5);
    assert_int_equal(martian(kPeer4, group4, Protocol::kTcp), Parsed::kMartian);
    assert_int_equal(martian(kPeer4, IpAddress::v4(0xffffffff), Protocol::kTcp), Parsed::kMartian);
    assert_int_equal(martian(kPeer6, group6, Protocol::kTcp), Parsed::kMartian);
    assert_int_equal(martian(kPeer4, kOurs4, Protocol::kTcp, true), Parsed::kMartian);
    assert_int_equal(martian(kPeer4, group4, Protocol::kUdp, true), Parsed::kPacket);
    assert_int_equal(martian(kPeer6, group6, Protocol::kUdp), Parsed::kPacket);
    assert_int_equal(martian(kPeer4, IpAddress::v4(0xffffffff), Protocol::kUdp, true), Parsed::kPacket);
}

// Extension headers in front of kData; each names the next, the last one TCP.
Frame with_headers(std::initializer_list<std::pair<std::uint8_t, Frame>> headers)
{
    Frame payload;
    std::uint8_t first = 6;
    std::size_t last = 0;
    for (const auto &[kind, bytes] : headers) {
        if (payload.empty())
            first = kind;
        else
            payload[last] = kind;
        last = payload.size();
        payload.insert(payload.end(), bytes.begin(), bytes.end());
    }
    payload[last] = 6;
    payload.insert(payload.end(), kData.begin(), kData.end());
    return frame_of(from_peer(true, static_cast<Protocol>(first)), payload);
}

void ipv6_extension_headers(void **)
{
    const Frame padding = {0, 0, 1, 4, 0, 0, 0, 0};
    const Frame unknown = {0, 1, 0x1e, 2, 1, 2, 0, 0, 0, 0, 5, 3, 0, 0, 0, 0}; // may be skipped
    const Frame visited = {0, 0, 2, 0, 0, 0, 0, 0};
    const Read r = read(with_headers({{0, padding}, {60, unknown}, {43, visited}, {60, padding}}));
    assert_int_equal(r.parsed, Parsed::kPacket);
    assert_int_equal(r.packet.protocol, Protocol::kTcp);
    assert_int_equal(r.packet.payload.size(), kData.size());
    assert_parsed(with_headers({{60, padding}, {0, padding}}), Parsed::kBadOptions); // hop-by-hop must be the first
    assert_parsed(with_headers({{43, {0, 0, 0, 0, 0, 0, 0, 0}}}), Parsed::kSourceRouted);
    assert_parsed(with_headers({{43, {0, 0, 2, 1, 0, 0, 0, 0}}}), Parsed::kSourceRouted);
    assert_parsed(with_headers({{60, {0, 0, 0x5e, 4, 0, 0, 0, 0}}}), Parsed::kUnsupportedExtension);
    assert_parsed(with_headers({{60, {0, 0, 0x9e, 4, 0, 0, 0, 0}}}), Parsed::kUnsupportedExtension);
    assert_parsed(with_headers({{51, padding}}), Parsed::kUnsupportedExtension);
    assert_parsed(with_headers({{0, {0, 0, 0xc2, 4, 0, 1, 0, 0}}}), Parsed::kJumbogram);
    assert_parsed(with_headers({{60, {0, 0, 1, 5, 0, 0, 0, 0}}}), Parsed::kBadOptions);
    assert_parsed(with_headers({{60, {0, 0, 0, 0, 0, 0, 0, 1}}}), Parsed::kBadOptions);
    assert_parsed(with_headers({{60, {0, 200, 1, 4, 0, 0, 0, 0}}}), Parsed::kBadLength);
    Frame options = {0, 3};
    for (unsigned i = 0; i < 15; ++i)
        options.insert(options.end(), {0x1e, 0});
    assert_parsed(with_headers({{60, options}}), Parsed::kBadOptions);
    const std::pair<std::uint8_t, Frame> one{60, padding};
    assert_parsed(with_headers({one, one, one, one, one, one, one, one}), Parsed::kPacket);
    assert_parsed(with_headers({one, one, one, one, one, one, one, one, one}), Parsed::kBadOptions);
    assert_parsed(frame_of(from_peer(true, Protocol{60}), {6, 0, 1}), Parsed::kTruncated);
    assert_parsed(frame_of(from_peer(true, Protocol{0}), {}), Parsed::kJumbogram);
    assert_parsed(frame_of(from_peer(true, Protocol{59}), {}), Parsed::kPacket);
}

void ipv6_fragments(void **)
{
    const Frame padding = {0, 0, 1, 4, 0, 0, 0, 0};
    const Read r = read(with_headers({{0, padding}, {44, {0, 0, 0x12, 0x31, 0xde, 0xad, 0xbe, 0xef}}}));
    assert_int_equal(r.parsed, Parsed::kFragment);
    assert_int_equal(r.packet.protocol, Protocol::kTcp);
    assert_int_equal(r.fragment.id, 0xdeadbeef);
    assert_int_equal(r.fragment.offset, 0x1230);
    assert_true(r.fragment.more);
    const Frame atomic = {0, 0, 0, 0, 1, 2, 3, 4};
    const Read whole = read(with_headers({{44, atomic}, {60, padding}}));
    assert_int_equal(whole.parsed, Parsed::kPacket);
    assert_int_equal(whole.packet.payload.size(), kData.size());
    assert_parsed(with_headers({{44, atomic}, {44, atomic}}), Parsed::kBadOptions);
    Frame cut = with_headers({{44, {0, 0, 0, 1, 1, 2, 3, 4}}});
    assert_parsed(cut, Parsed::kFragment);
    cut.resize(kIp + kIpv6Header + 7);
    store16(&cut[kIp + 4], 7);
    assert_parsed(cut, Parsed::kTruncated);
}

void noise(void **)
{
    Random random;
    unsigned packets = 0;
    for (unsigned round = 0; round < 100'000; ++round) {
        Frame frame = frame_of(from_peer(random(2) != 0, random(2) ? Protocol::kTcp : Protocol{60}), kData,
                               static_cast<std::uint16_t>(random(2)));
        for (unsigned flips = random(4); flips; --flips)
            frame[12 + random(static_cast<std::uint32_t>(frame.size()) - 12)] = static_cast<std::uint8_t>(random(256));
        const std::span cut(frame.data(), frame.size() - (random(3) ? 0 : random(60)));
        Read r{};
        r.parsed = parse_frame(cut, FrameInfo{random(2) != 0, 0}, r.packet, r.fragment);
        if (r.parsed > Parsed::kFragment)
            continue;
        ++packets;
        const auto payload = r.packet.payload;
        assert_true(payload.data() >= cut.data() && payload.data() + payload.size() <= cut.data() + cut.size());
    }
    assert_true(packets > 1000);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(plain_packets),  cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(vlan_tags),      cmocka_unit_test(ipv4_headers_that_lie),
        cmocka_unit_test(ipv4_options),   cmocka_unit_test(ipv4_fragments),
        cmocka_unit_test(martians),       cmocka_unit_test(ipv6_extension_headers),
        cmocka_unit_test(ipv6_fragments), cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
