// SPDX-License-Identifier: BSD-2-Clause
// UDP's header and its checksum, and the queue that datagrams wait in.
#include "prov/vma/test/inet/frames.hpp"

#include <deque>

#include "prov/vma/src/inet/udp/datagram_queue.hpp"
#include "prov/vma/src/inet/udp/header.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"
#include "prov/vma/test/inet/udp_frame.hpp"

namespace {

using namespace frames;

const UdpPorts kPorts{1000, 2000};

Frame frame_with(bool ipv6, std::span<const Bytes> parts)
{
    std::size_t length = kMaxEthernetHeader + kIpv6Header + kUdpHeader;
    for (const Bytes part : parts)
        length += part.size();
    Frame frame(length);
    frame.resize(
        write_udp_frame(frame.data(), L2{kOurMac, kPeerMac, 0}, from_peer(ipv6, Protocol::kUdp), kPorts, parts));
    return frame;
}

struct Read {
    Packet packet;
    UdpParsed parsed;
    UdpDatagram datagram;
};

Read read(const Frame &frame, bool checksums_good = false, PartialSums partial = PartialSums::kNone)
{
    Read r{};
    FragmentInfo fragment;
    assert_int_equal(
        parse_frame(frame, FrameInfo{.checksums_good = checksums_good, .partial_sums = partial}, r.packet, fragment),
        Parsed::kPacket);
    r.parsed = parse_udp(r.packet, r.datagram);
    return r;
}

void written_and_read(void **)
{
    for (const bool ipv6 : {false, true})
        for (std::size_t length = 0; length < 100; ++length) {
            const Frame data = bytes_of(length, 3);
            for (std::size_t at = 0; at <= length; at += 7) {
                const Bytes all(data);
                const Bytes parts[] = {all.first(at), {}, all.subspan(at)};
                const Frame frame = frame_with(ipv6, parts);
                const Read r = read(frame);
                assert_int_equal(r.parsed, UdpParsed::kDatagram);
                assert_int_equal(r.datagram.source_port, 1000);
                assert_int_equal(r.datagram.target_port, 2000);
                assert_bytes(r.datagram.data, data);
                const auto header = udp_header(from_peer(ipv6, Protocol::kUdp), kPorts, parts);
                assert_memory_equal(header.data(), r.packet.payload.data(), 8);
            }
        }
}

// A kernel that leaves the sum to a device: the field has that of the pseudo-header.
void partial_sums(void **)
{
    const Frame data = bytes_of(33);
    const Bytes parts[] = {data};
    for (const bool ipv6 : {false, true}) {
        Frame frame = frame_with(ipv6, parts);
        assert_int_equal(read(frame, false, PartialSums::kAny).parsed, UdpParsed::kDatagram); // whole ones stay good
        frame.back() ^= 1;
        assert_int_equal(read(frame, false, PartialSums::kAny).parsed, UdpParsed::kBadChecksum); // and wrong ones bad
        const Packet packet = read(frame, true).packet;
        const std::uint32_t pseudo =
            pseudo_sum(packet.source, packet.target, Protocol::kUdp, static_cast<std::uint32_t>(packet.payload.size()));
        store16(&frame[kEthernetHeader + (ipv6 ? 40 : 20) + 6], static_cast<std::uint16_t>(fold16(pseudo)));
        const Read r = read(frame, false, PartialSums::kAny);
        assert_int_equal(r.parsed, UdpParsed::kDatagram);
        assert_int_equal(r.datagram.data.size(), data.size());
        for (const PartialSums other : {PartialSums::kNone, PartialSums::kTcp}) // several datagrams, in the latter case
            assert_int_equal(read(frame, false, other).parsed, UdpParsed::kBadChecksum);
    }
}

void headers_that_lie(void **)
{
    const Frame data = bytes_of(20);
    const Bytes parts[] = {data};
    for (const bool ipv6 : {false, true}) {
        const std::size_t udp = kEthernetHeader + (ipv6 ? 40 : 20);
        Frame frame = frame_with(ipv6, parts);
        for (std::size_t i = udp; i < frame.size(); ++i) {
            Frame flipped = frame;
            flipped[i] ^= 0x10;
            const UdpParsed parsed = read(flipped).parsed;
            assert_true(parsed == UdpParsed::kBadChecksum || (parsed == UdpParsed::kBadLength && (i - udp) / 2 == 2));
            if (i >= udp + 8)
                assert_int_equal(read(flipped, true).parsed, UdpParsed::kDatagram); // the NIC has looked
        }
        for (const std::uint16_t length : {std::uint16_t{0}, std::uint16_t{7}, std::uint16_t{29}}) {
            Frame lying = frame;
            store16(&lying[udp + 4], length);
            assert_int_equal(read(lying, true).parsed, UdpParsed::kBadLength);
        }
        Frame unsummed = frame;
        store16(&unsummed[udp + 6], 0);
        for (const bool good : {false, true})
            assert_int_equal(read(unsummed, good).parsed, ipv6 ? UdpParsed::kNoChecksum : UdpParsed::kDatagram);
        Frame no_port = frame;
        store16(&no_port[udp + 2], 0);
        assert_int_equal(read(no_port, true).parsed, UdpParsed::kNoPort);
        Packet packet = read(frame).packet;
        UdpDatagram datagram;
        packet.payload = packet.payload.first(7);
        assert_int_equal(parse_udp(packet, datagram), UdpParsed::kTruncated);
    }
}

void shorter_than_its_packet(void **) // the rest is not data (RFC 768)
{
    const Frame data = bytes_of(20);
    const auto header = udp_header(from_peer(false, Protocol::kUdp), kPorts, std::array{Bytes(data)});
    Frame payload(header.begin(), header.end());
    payload.insert(payload.end(), data.begin(), data.end());
    payload.resize(payload.size() + 5, 0xee);
    const Frame frame = frame_of(from_peer(false, Protocol::kUdp), payload);
    const Read r = read(frame);
    assert_int_equal(r.parsed, UdpParsed::kDatagram);
    assert_bytes(r.datagram.data, data);
}

void a_sum_of_zero(void **)
{
    unsigned zeros = 0;
    for (std::uint32_t word = 0; word < 0x10000; ++word) {
        std::uint8_t data[2];
        store16(data, static_cast<std::uint16_t>(word));
        const Bytes parts[] = {data};
        const auto header = udp_header(from_peer(true, Protocol::kUdp), kPorts, parts);
        const std::uint16_t checksum = load16(&header[6]);
        assert_int_not_equal(checksum, 0);
        if (checksum != 0xffff)
            continue;
        ++zeros;
        const Frame frame = frame_with(true, parts);
        assert_int_equal(read(frame).parsed, UdpParsed::kDatagram);
    }
    assert_true(zeros == 1 || zeros == 2);
}

void a_queue_as_a_list(void **)
{
    Random random;
    BlockPool pool(64, 8);
    DatagramQueue queue;
    std::deque<Frame> list;
    std::uint64_t refused = 0;
    for (unsigned round = 0; round < 20'000; ++round) {
        if (random(2)) {
            const Frame data = bytes_of(random(4) ? random(600) : random(9000), round);
            DatagramInfo info;
            info.hop_limit = static_cast<std::uint8_t>(round);
            info.source.port = static_cast<std::uint16_t>(data.size());
            const std::uint32_t available = pool.available();
            if (queue.push(pool, info, data)) {
                list.push_back(data);
            } else {
                ++refused;
                assert_int_equal(pool.available(), available);
            }
        } else if (!list.empty()) {
            const std::size_t size = list.front().size();
            Frame out(size, 0);
            const std::size_t first = random(static_cast<std::uint32_t>(size) + 1);
            const std::size_t room = random(3) ? size : first + random(static_cast<std::uint32_t>(size - first) + 1);
            const std::span all(out);
            const std::span<std::uint8_t> parts[] = {all.first(first), {}, all.subspan(first, room - first)};
            DatagramInfo info;
            assert_int_equal(queue.read(pool, parts, info), room);
            assert_memory_equal(out.data(), list.front().data(), room);
            assert_int_equal(info.length, size);
            assert_int_equal(info.source.port, size);
            assert_int_equal(queue.first_length(pool), size);
            if (random(4)) {
                queue.pop(pool);
                list.pop_front();
            }
        }
        assert_int_equal(queue.count(), list.size());
        assert_int_equal(queue.blocks() + pool.available(), pool.total());
    }
    assert_true(refused > 100);
    queue.clear(pool);
    assert_true(queue.empty());
    assert_int_equal(pool.available(), pool.total());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read),        cmocka_unit_test(partial_sums),  cmocka_unit_test(headers_that_lie),
        cmocka_unit_test(shorter_than_its_packet), cmocka_unit_test(a_sum_of_zero), cmocka_unit_test(a_queue_as_a_list),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
