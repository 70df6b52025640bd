// SPDX-License-Identifier: BSD-2-Clause
// Datagrams cut for any MTU, read again as frames and put together: the three must agree.
#include "prov/vma/test/inet/frames.hpp"

#include <algorithm>

#include "prov/vma/src/inet/wire/fragment.hpp"
#include "prov/vma/src/inet/wire/reassembly.hpp"

namespace {

using namespace frames;

struct Way { // there and back
    bool ipv6;
    std::uint32_t mtu;
    std::uint16_t vlan;
    std::vector<Frame> frames;
    Reassembler reassembler{2};

    void cut(const Frame &data, std::span<const Bytes> parts, std::uint32_t id)
    {
        IpOut ip = from_peer(ipv6, Protocol::kUdp);
        ip.traffic_class = 0x22;
        ip.hop_limit = 33;
        Fragmenter fragmenter(L2{kOurMac, kPeerMac, vlan}, ip, parts, mtu, id);
        frames.clear();
        Frame out(kMaxEthernetHeader + mtu);
        while (const std::size_t length = fragmenter.next(out.data()))
            frames.emplace_back(out.begin(), out.begin() + static_cast<long>(length));
        assert_int_equal(fragmenter.next(out.data()), 0);
        assert_int_equal(frames.size(), fragmenter.frames());
        const std::size_t header = ipv6 ? 40 : 20;
        assert_int_equal(frames.size() > 1, data.size() > mtu - header);
    }

    void join(const Frame &data, std::uint32_t id)
    {
        Packet packet;
        Packet whole;
        FragmentInfo fragment;
        for (std::size_t i = 0; i < frames.size(); ++i) {
            const Parsed parsed = parse_frame(frames[i], FrameInfo{}, packet, fragment);
            if (frames.size() == 1) {
                assert_int_equal(parsed, Parsed::kPacket);
                whole = packet;
                break;
            }
            assert_int_equal(parsed, Parsed::kFragment);
            assert_int_equal(fragment.id, ipv6 ? id : id & 0xffff);
            assert_true(frames[i].size() <= mtu + ethernet_header_size(vlan));
            if (i + 1 < frames.size()) // as long as can be
                assert_true(frames[i].size() + 8 > mtu + ethernet_header_size(vlan));
            const bool last = i + 1 == frames.size();
            assert_int_equal(reassembler.join(packet, fragment, 0, whole), last ? Joined::kWhole : Joined::kWaiting);
        }
        assert_bytes(whole.payload, data);
        assert_int_equal(whole.protocol, Protocol::kUdp);
        assert_int_equal(whole.traffic_class, 0x22);
        assert_int_equal(whole.hop_limit, 33);
        assert_int_equal(whole.vlan, vlan);
    }
};

void there_and_back(void **)
{
    Random random;
    for (const bool ipv6 : {false, true})
        for (const std::uint32_t mtu : {68u, 576u, 1280u, 1283u, 1500u, 9000u}) {
            if (ipv6 && mtu < 1280)
                continue;
            Way way{ipv6, mtu, static_cast<std::uint16_t>(random(2) * 9), {}};
            for (unsigned round = 0; round < 60; ++round) {
                const Frame data = bytes_of(8 + random(round % 2 ? 65508 : 3 * mtu), round);
                const std::size_t first = random(static_cast<std::uint32_t>(data.size()));
                const std::size_t second = first + random(static_cast<std::uint32_t>(data.size() - first));
                const Bytes all(data);
                const Bytes parts[] = {all.first(first), all.subspan(first, second - first), {}, all.subspan(second)};
                const std::uint32_t id = random(UINT32_MAX);
                way.cut(data, parts, id);
                way.join(data, id);
            }
        }
}

void around_the_mtu(void **)
{
    for (const bool ipv6 : {false, true}) {
        const std::size_t header = ipv6 ? 40 : 20;
        Way way{ipv6, 1500, 0, {}};
        for (std::size_t length = 1500 - header - 20; length < 1500 - header + 20; ++length) {
            const Frame data = bytes_of(length);
            const Bytes parts[] = {data};
            way.cut(data, parts, 7);
            way.join(data, 7);
        }
        const Frame longest = bytes_of(ipv6 ? 65535 : 65515);
        const Bytes parts[] = {longest};
        way.cut(longest, parts, 8);
        way.join(longest, 8);
    }
}

void bits_on_the_wire(void **)
{
    Way way{false, 1500, 0, {}};
    const Frame data = bytes_of(1481);
    const Bytes parts[] = {data};
    way.cut(data, parts, 0x12345);
    assert_int_equal(way.frames.size(), 2);
    assert_int_equal(load16(&way.frames[0][14 + 6]), 0x2000); // no don't-fragment bit
    assert_int_equal(load16(&way.frames[1][14 + 6]), 185);
    assert_int_equal(load16(&way.frames[1][14 + 4]), 0x2345);
    Way six{true, 1280, 0, {}};
    six.cut(data, parts, 0x12345);
    const Frame first = {17, 0, 0, 1, 0, 1, 0x23, 0x45};
    assert_int_equal(six.frames[0][14 + 6], 44);
    assert_memory_equal(&six.frames[0][14 + 40], first.data(), 8);
    assert_int_equal(load16(&six.frames[1][14 + 42]), 1232);
}

void ids(void **)
{
    FragmentIds source;
    const std::uint64_t one = 0x1122334455667788;
    const std::uint64_t other = 0x2122334455667788;
    assert_int_equal(source.next(one), 0x55667788);
    assert_int_equal(source.next(one), 0x55667789);
    assert_int_equal(source.next(other), 0x55667788); // a counter of its own
    assert_int_equal(source.next(one), 0x5566778a);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(around_the_mtu),
        cmocka_unit_test(bits_on_the_wire),
        cmocka_unit_test(ids),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
