// SPDX-License-Identifier: BSD-2-Clause
// ICMP errors: what they tell of a flow, which are not believed, and what becomes of the path MTUs they bring.
#include "prov/vma/test/inet/frames.hpp"

#include <cerrno>

#include "prov/vma/src/inet/base/path_mtu.hpp"
#include "prov/vma/src/inet/wire/icmp.hpp"

namespace {

using namespace frames;

const IpAddress kRouter4 = IpAddress::v4(0x0a0000fe);
const IpAddress kRouter6 = v6(0xfd00, 0xfe);

Frame transport(std::size_t length = 1480) // from our port 1000 to the peer's 2000, sequence number 0xdeadbeef
{
    Frame bytes = {0x03, 0xe8, 0x07, 0xd0, 0xde, 0xad, 0xbe, 0xef};
    bytes.resize(length, 0x11);
    return bytes;
}

// What we sent, as it is quoted: the whole of it, without the Ethernet header.
Frame sent(bool ipv6, Protocol protocol = Protocol::kTcp, const Frame &payload = transport())
{
    IpOut ip;
    ip.source = ipv6 ? kOurs6 : kOurs4;
    ip.target = ipv6 ? kPeer6 : kPeer4;
    ip.protocol = protocol;
    const Frame frame = frame_of(ip, payload);
    return {frame.begin() + kEthernetHeader, frame.end()};
}

struct Told {
    IcmpParsed parsed;
    IcmpError error;
    Frame message;
};

Told tell(bool ipv6, std::uint8_t type, std::uint8_t code, std::uint32_t rest, const Frame &quote, bool good_sum = true)
{
    Told told{};
    told.message = {type, code, 0, 0, 0, 0, 0, 0};
    store32(&told.message[4], rest);
    told.message.insert(told.message.end(), quote.begin(), quote.end());
    Packet packet;
    packet.source = ipv6 ? kRouter6 : kRouter4;
    packet.target = ipv6 ? kOurs6 : kOurs4;
    packet.protocol = ipv6 ? Protocol::kIcmp6 : Protocol::kIcmp;
    const std::uint32_t length = static_cast<std::uint32_t>(told.message.size());
    const std::uint32_t pseudo = ipv6 ? pseudo_sum(packet.source, packet.target, Protocol::kIcmp6, length) : 0;
    store16(&told.message[2], finish(sum(told.message.data(), length, pseudo)));
    told.message[3] = static_cast<std::uint8_t>(told.message[3] + !good_sum);
    packet.payload = told.message;
    told.parsed = parse_icmp(packet, told.error);
    return told;
}

void whose_it_is(void **)
{
    for (const bool ipv6 : {false, true})
        for (const Protocol protocol : {Protocol::kTcp, Protocol::kUdp}) {
            const Told told =
                ipv6 ? tell(true, 1, 4, 0, sent(true, protocol)) : tell(false, 3, 3, 0, sent(false, protocol));
            assert_int_equal(told.parsed, IcmpParsed::kError);
            const IcmpError &error = told.error;
            const Flow flow{{ipv6 ? kOurs6 : kOurs4, 1000}, {ipv6 ? kPeer6 : kPeer4, 2000}};
            assert_true(error.flow == flow);
            assert_int_equal(error.protocol, protocol);
            assert_int_equal(error.sequence, protocol == Protocol::kTcp ? 0xdeadbeef : 0);
            assert_int_equal(error.error, ECONNREFUSED);
            assert_true(error.hard);
            assert_int_equal(error.type, ipv6 ? 1 : 3);
            assert_int_equal(error.code, ipv6 ? 4 : 3);
            assert_int_equal(error.mtu, 0);
            assert_true(error.reporter == (ipv6 ? kRouter6 : kRouter4));
            assert_bytes(error.quoted, transport());
        }
}

struct Case {
    std::uint8_t type;
    std::uint8_t code;
    int error; // 0: not one
    bool hard;
};

void assert_cases(bool ipv6, std::span<const Case> cases)
{
    for (const Case &one : cases) {
        const Told told = tell(ipv6, one.type, one.code, 1300, sent(ipv6));
        assert_int_equal(told.parsed, one.error ? IcmpParsed::kError : IcmpParsed::kNotError);
        assert_int_equal(told.error.error, one.error);
        assert_int_equal(told.error.hard, one.hard);
        assert_int_equal(told.error.mtu, one.error == EMSGSIZE ? 1300 : 0);
    }
}

void errors_as_linux_has_them(void **)
{
    const Case four[] = {
        {3, 0, ENETUNREACH, false},
        {3, 1, EHOSTUNREACH, false},
        {3, 2, ENOPROTOOPT, true},
        {3, 3, ECONNREFUSED, true},
        {3, 4, EMSGSIZE, false},
        {3, 5, EOPNOTSUPP, false},
        {3, 6, ENETUNREACH, true},
        {3, 7, EHOSTDOWN, true},
        {3, 8, ENONET, true},
        {3, 9, ENETUNREACH, true},
        {3, 10, EHOSTUNREACH, true},
        {3, 11, ENETUNREACH, false},
        {3, 12, EHOSTUNREACH, false},
        {3, 13, EHOSTUNREACH, true},
        {3, 14, EHOSTUNREACH, true},
        {3, 15, EHOSTUNREACH, true},
        {3, 16, 0, false},
        {4, 0, 0, false},
        {11, 0, EHOSTUNREACH, false},
        {11, 1, EHOSTUNREACH, false},
        {12, 0, EPROTO, true},
        {0, 0, 0, false},
        {5, 1, 0, false},
        {8, 0, 0, false},
    };
    assert_cases(false, four);
    const Case six[] = {
        {1, 0, ENETUNREACH, false},  {1, 1, EACCES, true},       {1, 2, EHOSTUNREACH, false},
        {1, 3, EHOSTUNREACH, false}, {1, 4, ECONNREFUSED, true}, {1, 5, EACCES, true},
        {1, 6, EACCES, true},        {1, 7, EPROTO, true},       {2, 0, EMSGSIZE, false},
        {3, 0, EHOSTUNREACH, false}, {4, 1, EPROTO, true},       {128, 0, 0, false},
        {135, 0, 0, false},
    };
    assert_cases(true, six);
}

void mtus_that_are_believed(void **)
{
    const Frame quote = sent(false); // 1,500 bytes
    assert_int_equal(tell(false, 3, 4, 1499, quote).error.mtu, 1499);
    assert_int_equal(tell(false, 3, 4, 300, quote).error.mtu, kMinPathMtu4);
    assert_int_equal(tell(false, 3, 4, 1500, quote).parsed, IcmpParsed::kBadMtu);
    assert_int_equal(tell(false, 3, 4, 67, quote).parsed, IcmpParsed::kBadMtu);
    assert_int_equal(tell(false, 3, 4, 0xffff0000 | 1400, quote).error.mtu, 1400); // the upper half is unused
    assert_int_equal(tell(false, 3, 4, 0, quote).error.mtu, 1492);                 // RFC 1191, 7.1
    assert_int_equal(tell(false, 3, 4, 0, sent(false, Protocol::kTcp, transport(1472))).error.mtu, 576);
    assert_int_equal(tell(false, 3, 4, 0, sent(false, Protocol::kTcp, transport(8980))).error.mtu, 8166);
    assert_int_equal(tell(false, 3, 4, 0, sent(false, Protocol::kTcp, transport(500))).parsed, IcmpParsed::kBadMtu);
    const Frame six = sent(true); // 1,520 bytes
    assert_int_equal(tell(true, 2, 0, 1280, six).error.mtu, 1280);
    assert_int_equal(tell(true, 2, 0, 1279, six).parsed, IcmpParsed::kBadMtu); // RFC 8201, 4
    assert_int_equal(tell(true, 2, 0, 1520, six).parsed, IcmpParsed::kBadMtu);
    assert_int_equal(tell(true, 2, 0, 0x10500, six).parsed, IcmpParsed::kBadMtu);
}

void what_is_not_believed(void **)
{
    for (const bool ipv6 : {false, true}) {
        const std::uint8_t type = ipv6 ? 1 : 3;
        const std::size_t header = ipv6 ? 40 : 20;
        const Frame quote = sent(ipv6);
        assert_int_equal(tell(ipv6, type, 1, 0, quote, false).parsed, IcmpParsed::kBadChecksum);
        for (std::size_t length = 0; length < header + 8; ++length) {
            const Frame cut(quote.begin(), quote.begin() + static_cast<long>(length));
            assert_int_equal(tell(ipv6, type, 1, 0, cut).parsed, IcmpParsed::kTruncated);
        }
        const Frame enough(quote.begin(), quote.begin() + static_cast<long>(header + 8));
        assert_int_equal(tell(ipv6, type, 1, 0, enough).parsed, IcmpParsed::kError);
        Frame other_source = quote;
        other_source[ipv6 ? 23 : 15] ^= 1;
        assert_int_equal(tell(ipv6, type, 1, 0, other_source).parsed, IcmpParsed::kBadQuote);
        Frame other_version = quote;
        other_version[0] ^= 0x20;
        assert_int_equal(tell(ipv6, type, 1, 0, other_version).parsed, IcmpParsed::kBadQuote);
        const Protocol echo = ipv6 ? Protocol::kIcmp6 : Protocol::kIcmp;
        assert_int_equal(tell(ipv6, type, 1, 0, sent(ipv6, echo)).parsed, IcmpParsed::kNoPorts);
        // A message of the other family's.
        Packet packet;
        IcmpError error;
        const Told told = tell(ipv6, type, 1, 0, quote);
        packet.source = ipv6 ? kPeer4 : kPeer6;
        packet.target = ipv6 ? kOurs4 : kOurs6;
        packet.protocol = ipv6 ? Protocol::kIcmp6 : Protocol::kIcmp;
        packet.payload = told.message;
        assert_int_equal(parse_icmp(packet, error), IcmpParsed::kNotError);
        packet.payload = packet.payload.first(7);
        packet.target = ipv6 ? kOurs6 : kOurs4;
        assert_int_equal(parse_icmp(packet, error), IcmpParsed::kTruncated);
    }
    Told to_group = tell(false, 3, 1, 0, sent(false)); // which can have sent nothing
    const IpAddress group = IpAddress::v4(0xe0000005);
    memcpy(&to_group.message[8 + 12], group.v4_bytes(), 4);
    store16(&to_group.message[2], 0);
    store16(&to_group.message[2], finish(sum(to_group.message.data(), to_group.message.size())));
    Packet packet;
    packet.source = kRouter4;
    packet.target = group;
    packet.protocol = Protocol::kIcmp;
    packet.payload = to_group.message;
    assert_int_equal(parse_icmp(packet, to_group.error), IcmpParsed::kBadQuote);
    Frame fragment = sent(false);
    fragment[7] = 5;
    assert_int_equal(tell(false, 3, 1, 0, fragment).parsed, IcmpParsed::kNoPorts);
    Frame short_header = sent(false);
    short_header[0] = 0x44;
    assert_int_equal(tell(false, 3, 1, 0, short_header).parsed, IcmpParsed::kBadQuote);
}

void fragments_and_options_quoted(void **)
{
    Frame options = sent(false);
    options.insert(options.begin() + 20, {1, 1, 1, 1});
    options[0] = 0x46;
    assert_int_equal(tell(false, 3, 1, 0, options).error.flow.remote.port, 2000);
    Frame payload = {17, 0, 0, 1, 0, 0, 0, 9};
    const Frame udp = transport(64);
    payload.insert(payload.end(), udp.begin(), udp.end());
    const Told first = tell(true, 1, 1, 0, sent(true, Protocol{44}, payload));
    assert_int_equal(first.parsed, IcmpParsed::kError);
    assert_int_equal(first.error.protocol, Protocol::kUdp);
    assert_int_equal(first.error.flow.local.port, 1000);
    payload[3] = 0x41;
    assert_int_equal(tell(true, 1, 1, 0, sent(true, Protocol{44}, payload)).parsed, IcmpParsed::kNoPorts);
    const Frame routed = {6, 0, 0, 0, 0, 0, 0, 0};
    assert_int_equal(tell(true, 1, 1, 0, sent(true, Protocol{43}, routed)).parsed, IcmpParsed::kBadQuote);
}

void path_mtus(void **)
{
    PathMtus paths(8, 1);
    Nanos now = 5 * kSecond;
    assert_int_equal(paths.get(kPeer4, 1500, now), 1500);
    assert_true(paths.lower(kPeer4, 1400, now));
    assert_int_equal(paths.get(kPeer4, 1500, now), 1400);
    assert_int_equal(paths.get(kPeer4, 1300, now), 1300); // the link itself
    assert_int_equal(paths.get(kPeer6, 1500, now), 1500);
    assert_false(paths.lower(kPeer4, 1400, now));
    assert_false(paths.lower(kPeer4, 1450, now));
    now += 300 * kSecond;
    assert_true(paths.lower(kPeer4, 1300, now));
    now += 600 * kSecond - 1;
    assert_int_equal(paths.get(kPeer4, 1500, now), 1300);
    assert_int_equal(paths.get(kPeer4, 1500, now + 1), 1500);
    assert_true(paths.lower(kPeer4, 1450, now + 1)); // it is told anew
    assert_true(paths.lower(kPeer6, 1280, now));
    paths.forget(kPeer4);
    assert_int_equal(paths.get(kPeer4, 1500, now), 1500);
    assert_int_equal(paths.get(kPeer6, 1500, now), 1280);
    paths.clear();
    assert_int_equal(paths.get(kPeer6, 1500, now), 1500);
}

void path_mtus_are_bounded(void **)
{
    PathMtus paths(64, 0x123456789);
    const Nanos now = kSecond;
    unsigned known = 0;
    for (std::uint32_t i = 0; i < 10'000; ++i)
        assert_true(paths.lower(IpAddress::v4(0x0a000000 + i), 1000, now + i));
    for (std::uint32_t i = 0; i < 10'000; ++i)
        known += paths.get(IpAddress::v4(0x0a000000 + i), 1500, now) == 1000;
    assert_int_equal(known, 64);
    assert_int_equal(paths.get(IpAddress::v4(0x0a000000 + 9999), 1500, now), 1000); // the latest is there
    PathMtus roomy(1024, 0x123456789);
    for (std::uint32_t i = 0; i < 256; ++i)
        assert_true(roomy.lower(IpAddress::v4(0x0a000000 + i), 1000, now));
    for (std::uint32_t i = 0; i < 256; ++i) // addresses that are alike spread well enough
        known += roomy.get(IpAddress::v4(0x0a000000 + i), 1500, now) == 1000;
    assert_int_equal(known, 64 + 256);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(whose_it_is),
        cmocka_unit_test(errors_as_linux_has_them),
        cmocka_unit_test(mtus_that_are_believed),
        cmocka_unit_test(what_is_not_believed),
        cmocka_unit_test(fragments_and_options_quoted),
        cmocka_unit_test(path_mtus),
        cmocka_unit_test(path_mtus_are_bounded),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
