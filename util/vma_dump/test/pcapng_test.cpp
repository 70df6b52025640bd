// SPDX-License-Identifier: BSD-2-Clause
// The frames that are made of a process's records, and the blocks of the file that they are written to, byte by byte.
#include "fabtests/unit.hpp"

#include <netinet/in.h>
#include <string.h>

#include <memory>
#include <string>
#include <vector>

#include "inet/wire/bytes.hpp"
#include "inet/wire/checksum.hpp"
#include "util/vma_dump/frame.hpp"
#include "util/vma_dump/pcapng.hpp"

using namespace vma_dump;
using namespace vma::inet;
using vma::stats::CaptureRecord;

namespace {

struct Record {
    CaptureRecord head = {};
    char bytes[64] = {};
};

Record make(std::uint16_t flags, const IpAddress &local, const IpAddress &peer, const char *text)
{
    Record r;
    const auto length = static_cast<std::uint32_t>(strlen(text));
    r.head.size = vma::stats::capture_record_size(length);
    r.head.length = r.head.copied = length;
    r.head.flags = flags;
    memcpy(r.head.local, local.bytes.data(), 16);
    memcpy(r.head.peer, peer.bytes.data(), 16);
    r.head.local_port = 6379;
    r.head.peer_port = 40000;
    r.head.before = 1000;
    r.head.other = 2000;
    memcpy(r.bytes, text, length);
    return r;
}

IpAddress v6(std::uint8_t last)
{
    IpAddress address;
    address.bytes[0] = 0xfd;
    address.bytes[15] = last;
    return address;
}

const IpAddress kHere = IpAddress::v4(0x7f000001);
const IpAddress kThere = IpAddress::v4(0x0a000002);

void test_tcp_out(void **)
{
    const auto message = std::make_unique<Message>();
    const Record r = make(vma::stats::kCaptureOut, kHere, kThere, "hello");
    assert_true(message->take(r.head, &r.head));
    const Frame frame = message->frame(262144);
    assert_int_equal(frame.length, 14 + 20 + 20 + 5);
    assert_int_equal(frame.captured, frame.length);
    const std::uint8_t *const ip = frame.bytes + 14;
    assert_int_equal(load16(frame.bytes + 12), 0x0800);
    assert_int_equal(load16(ip + 2), 45);
    assert_int_equal(ip[9], IPPROTO_TCP);
    assert_int_equal(load32(ip + 12), 0x7f000001);
    assert_int_equal(load32(ip + 16), 0x0a000002);
    assert_int_equal(finish(sum(ip, 20)), 0);
    const std::uint8_t *const tcp = ip + 20;
    assert_int_equal(load16(tcp), 6379);
    assert_int_equal(load16(tcp + 2), 40000);
    assert_int_equal(load32(tcp + 4), 1001); // behind a SYN
    assert_int_equal(load32(tcp + 8), 2001);
    assert_int_equal(finish(sum(tcp, 25, pseudo_sum(kHere, kThere, Protocol::kTcp, 25))), 0);
    assert_memory_equal(tcp + 20, "hello", 5);
}

void test_tcp_in_v6(void **)
{
    const auto message = std::make_unique<Message>();
    const Record r = make(0, v6(1), v6(2), "hello!");
    assert_true(message->take(r.head, &r.head));
    const Frame frame = message->frame(262144);
    assert_int_equal(frame.length, 14 + 40 + 20 + 6);
    const std::uint8_t *const ip = frame.bytes + 14;
    assert_int_equal(load16(frame.bytes + 12), 0x86dd);
    assert_memory_equal(ip + 8, v6(2).bytes.data(), 16); // from the peer
    assert_memory_equal(ip + 24, v6(1).bytes.data(), 16);
    const std::uint8_t *const tcp = ip + 40;
    assert_int_equal(load16(tcp), 40000);
    assert_int_equal(load16(tcp + 2), 6379);
    assert_int_equal(finish(sum(tcp, 26, pseudo_sum(v6(2), v6(1), Protocol::kTcp, 26))), 0);
}

void test_udp(void **)
{
    const auto message = std::make_unique<Message>();
    const Record r = make(vma::stats::kCaptureUdp | vma::stats::kCaptureOut, kHere, IpAddress::v4(0xe1810203), "x");
    assert_true(message->take(r.head, &r.head));
    const Frame frame = message->frame(262144);
    assert_int_equal(frame.length, 14 + 20 + 8 + 1);
    const std::uint8_t group[] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
    assert_memory_equal(frame.bytes, group, sizeof group);
    assert_int_equal(load16(frame.bytes + 14 + 20 + 4), 9);
}

// Of a socket that is bound to :: and sends to an address of IPv4.
void test_families(void **)
{
    const auto message = std::make_unique<Message>();
    const Record r = make(vma::stats::kCaptureUdp | vma::stats::kCaptureOut, IpAddress{}, kThere, "x");
    assert_true(message->take(r.head, &r.head));
    const Frame frame = message->frame(262144);
    assert_int_equal(frame.length, 14 + 20 + 8 + 1);
    assert_int_equal(load32(frame.bytes + 14 + 12), 0);
}

void test_snap(void **)
{
    const auto message = std::make_unique<Message>();
    Record r = make(vma::stats::kCaptureOut, kHere, kThere, "hello");
    assert_true(message->take(r.head, &r.head));
    assert_int_equal(message->frame(56).captured, 56);
    r.head.copied = 2; // the process has shortened it
    assert_true(message->take(r.head, &r.head));
    assert_int_equal(message->frame(262144).captured, 14 + 20 + 20 + 2);
    assert_int_equal(message->frame(262144).length, 14 + 20 + 20 + 5);
}

void test_longest(void **)
{
    const auto message = std::make_unique<Message>();
    std::vector<std::uint8_t> room(sizeof(CaptureRecord) + vma::stats::kMostPayload);
    CaptureRecord head = make(vma::stats::kCaptureOut, kHere, kThere, "").head;
    head.length = head.copied = vma::stats::kMostPayload;
    head.size = vma::stats::capture_record_size(head.copied);
    assert_true(message->take(head, reinterpret_cast<const CaptureRecord *>(room.data())));
    const Frame frame = message->frame(262144);
    assert_int_equal(frame.length, 14 + 20 + 20 + vma::stats::kMostPayload);
    assert_int_equal(load16(frame.bytes + 14 + 2), 40 + vma::stats::kMostPayload);
}

std::uint32_t word(const std::string &bytes, std::size_t at)
{
    std::uint32_t value = 0;
    memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

// Type and length of each block; the length stands at its end, too.
std::vector<std::pair<std::uint32_t, std::uint32_t>> blocks_of(const std::string &bytes)
{
    std::vector<std::pair<std::uint32_t, std::uint32_t>> blocks;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::uint32_t length = word(bytes, at + 4);
        assert_true(length % 4 == 0 && at + length <= bytes.size());
        assert_int_equal(word(bytes, at + length - 4), length);
        blocks.emplace_back(word(bytes, at), length);
        at += length;
    }
    return blocks;
}

void test_blocks(void **)
{
    std::string file;
    const std::uint8_t bytes[5] = {1, 2, 3, 4, 5};
    add_section(file, "vma_dump", "Linux");
    add_interface(file, "local@1", "redis", 262144);
    const std::size_t packet = file.size();
    add_packet(file, 0, 0x123456789abcdef0, {bytes, 5, 9}, {true, 3, "fd 7"});
    add_packet(file, 0, 1, {bytes, 4, 4}, {false});
    add_statistics(file, 0, 1, 2, 3);
    const auto blocks = blocks_of(file);
    assert_int_equal(blocks.size(), 5);
    assert_int_equal(blocks[0].first, 0x0a0d0d0a);
    assert_int_equal(blocks[1].first, 1);
    assert_int_equal(blocks[2].first, 6);
    assert_int_equal(blocks[3].first, 6);
    assert_int_equal(blocks[4].first, 5);
    assert_int_equal(word(file, packet + 12), 0x12345678);
    assert_int_equal(word(file, packet + 16), 0x9abcdef0);
    assert_int_equal(word(file, packet + 20), 5);
    assert_int_equal(word(file, packet + 24), 9);
    assert_memory_equal(file.data() + packet + 28, bytes, 5);
    // Flags (8 bytes), drops (12), comment (8), the end (4): behind 8 bytes of data.
    assert_int_equal(blocks[2].second, 28 + 8 + 8 + 12 + 8 + 4 + 4);
    assert_int_equal(word(file, packet + 36), 4U << 16 | 2);
    assert_int_equal(word(file, packet + 40), 2); // outbound
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp_out),  cmocka_unit_test(test_tcp_in_v6), cmocka_unit_test(test_udp),
        cmocka_unit_test(test_families), cmocka_unit_test(test_snap),      cmocka_unit_test(test_longest),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
