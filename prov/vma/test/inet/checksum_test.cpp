// SPDX-License-Identifier: BSD-2-Clause
// The internet checksum against its definition, over every length, alignment and way of cutting; and headers written.
#include "prov/vma/test/inet/frames.hpp"

#include <algorithm>

namespace {

using namespace frames;

std::uint16_t slow(const std::uint8_t *data, std::size_t length)
{
    std::uint32_t total = 0;
    for (std::size_t i = 0; i < length; ++i)
        total += i % 2 ? data[i] : std::uint32_t{data[i]} << 8;
    while (total >> 16)
        total = (total >> 16) + (total & 0xffff);
    return static_cast<std::uint16_t>(~total);
}

void the_rfc_s_example(void **) // RFC 1071, 3
{
    const std::uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    assert_int_equal(sum(bytes, sizeof bytes), 0xddf2);
    assert_int_equal(sum_fixed<8>(bytes), 0xddf2);
    assert_int_equal(finish(0xddf2), 0x220d);
}

void every_length_and_alignment(void **)
{
    Random random;
    Frame bytes(400);
    for (auto &byte : bytes)
        byte = random(4) ? static_cast<std::uint8_t>(random(256)) : 0xff;
    for (std::size_t from = 0; from < 17; ++from)
        for (std::size_t length = 0; length < 300; ++length) {
            Frame copy(length + 1, 0xaa);
            const std::uint16_t wanted = slow(&bytes[from], length);
            assert_int_equal(finish(sum(&bytes[from], length)), wanted);
            assert_int_equal(finish(copy_and_sum(copy.data(), &bytes[from], length)), wanted);
            assert_memory_equal(copy.data(), &bytes[from], length);
            assert_int_equal(copy[length], 0xaa);
        }
}

void cut_anywhere(void **)
{
    Random random;
    Frame bytes(5000);
    for (auto &byte : bytes)
        byte = static_cast<std::uint8_t>(random(256));
    for (unsigned round = 0; round < 2000; ++round) {
        const std::size_t length = random(static_cast<std::uint32_t>(bytes.size()));
        std::uint32_t partial = 0;
        for (std::size_t at = 0; at < length;) {
            const std::size_t part = std::min<std::size_t>(length - at, random(random(2) ? 9 : 999));
            partial = sum(&bytes[at], part, partial);
            at += part;
        }
        assert_int_equal(finish(partial), slow(bytes.data(), length));
    }
}

void no_carry_is_lost(void **)
{
    const Frame ones(262'144, 0xff);
    std::uint32_t partial = 0;
    for (unsigned i = 0; i < 1000; ++i)
        partial = sum(ones.data(), ones.size() - 1, partial);
    assert_int_equal(finish(partial), 0);
    assert_int_equal(finish(0x7fffffff), slow(Frame{0x7f, 0xff, 0xff, 0xff}.data(), 4));
}

void pseudo_headers(void **)
{
    std::uint8_t four[12] = {10, 0, 0, 2, 10, 0, 0, 1, 0, 6, 0x12, 0x34};
    assert_int_equal(finish(pseudo_sum(kPeer4, kOurs4, Protocol::kTcp, 0x1234)), slow(four, sizeof four));
    std::uint8_t six[40] = {};
    memcpy(six, kPeer6.bytes.data(), 16);
    memcpy(six + 16, kOurs6.bytes.data(), 16);
    store32(six + 32, 0x00012345);
    six[39] = 58;
    assert_int_equal(finish(pseudo_sum(kPeer6, kOurs6, Protocol::kIcmp6, 0x12345)), slow(six, sizeof six));
}

void headers_as_they_stand_on_the_wire(void **)
{
    IpOut ip = from_peer(false, Protocol::kTcp);
    ip.traffic_class = 0xb8;
    ip.hop_limit = 3;
    ip.id = 0x1234;
    // The sum of the words is 0x45b8 + 0x0016 + 0x1234 + 0x4000 + 0x0306 + 0x0a00 + 2 + 0x0a00 + 1 = 0xaf0b.
    const Frame four = {2,    0,    0,    0,    0,    1,    2,    0,    0,    0,    0,    2,    0x81, 0x00,
                        0x00, 0x07, 0x08, 0x00, 0x45, 0xb8, 0x00, 0x16, 0x12, 0x34, 0x40, 0x00, 3,    6,
                        0x50, 0xf4, 10,   0,    0,    2,    10,   0,    0,    1,    0xaa, 0xbb};
    assert_bytes(frame_of(ip, {0xaa, 0xbb}, 7), four);
    IpOut six = from_peer(true, Protocol::kUdp);
    six.traffic_class = 0xb8;
    six.flow_label = 0x12345;
    const Frame frame = frame_of(six, {0xaa});
    assert_int_equal(frame.size(), kEthernetHeader + kIpv6Header + 1);
    const Frame start = {0x86, 0xdd, 0x6b, 0x81, 0x23, 0x45, 0, 1, 17, 64, 0xfd, 0};
    assert_memory_equal(&frame[12], start.data(), start.size());
    assert_memory_equal(&frame[22], kPeer6.bytes.data(), 16);
    assert_memory_equal(&frame[38], kOurs6.bytes.data(), 16);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_rfc_s_example), cmocka_unit_test(every_length_and_alignment),
        cmocka_unit_test(cut_anywhere),      cmocka_unit_test(no_carry_is_lost),
        cmocka_unit_test(pseudo_headers),    cmocka_unit_test(headers_as_they_stand_on_the_wire),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
