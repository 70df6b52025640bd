// SPDX-License-Identifier: BSD-2-Clause
// Messages of the agent protocol as they are read, the segments that peers are sent, and what is taken for their
// answers.
#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "util/vmad/agent_message.hpp"
#include "util/vmad/prober.hpp"

namespace {

using namespace vma::guard;

const Pair4 kPair = {htonl(0x0a000001), htonl(0x0a000002), htons(1000), htons(7000)};

AgentState established()
{
    AgentState state{};
    state.header = {static_cast<std::uint8_t>(AgentCode::kState), kAgentVersion, 0, 0, 42};
    state.local_address = kPair.local;
    state.remote_address = kPair.remote;
    state.local_port = kPair.local_port;
    state.remote_port = kPair.remote_port;
    state.type = SOCK_STREAM;
    state.state = kTcpEstablished;
    return state;
}

template <typename Message> bool is_good(const Message &message, std::size_t length = sizeof(Message))
{
    AgentMessage read;
    const std::span bytes = std::as_bytes(std::span(&message, 1));
    return parse_agent(bytes.first(std::min(length, bytes.size())), length, read) == nullptr;
}

void messages(void **)
{
    const AgentState good = established();
    assert_true(is_good(good));
    for (std::size_t length = 0; length < sizeof good; ++length)
        assert_false(is_good(good, length));
    assert_false(is_good(good, sizeof good + 1)); // the rest was cut off when it was received
    AgentState other = good;
    other.state = kTcpLast;
    assert_true(is_good(other));
    other.state = kTcpLast + 1;
    assert_false(is_good(other));
    other = good;
    other.local_port = 0;
    assert_false(is_good(other));
    other.state = kTcpClosed; // then nobody looks
    assert_true(is_good(other));
    other = good;
    other.remote_address = htonl(0xffffffff);
    assert_false(is_good(other));
    other = good;
    other.type = SOCK_RAW;
    assert_false(is_good(other));
    for (int code = 0; code < 256; ++code) {
        const AgentHeader header{static_cast<std::uint8_t>(code), kAgentVersion, 0, 0, 42};
        assert_int_equal(is_good(header), code == 3);
    }
    AgentHeader header{3, kAgentVersion, 0, 0, 0};
    assert_false(is_good(header)); // whose
    header = {3, 0, 0, 0, 42};
    assert_false(is_good(header));
}

std::uint16_t plain_sum(const std::uint8_t *bytes, std::size_t length, std::uint32_t total) // RFC 1071, 4.1
{
    for (std::size_t i = 0; i < length; ++i)
        total += i % 2 == 0 ? std::uint32_t{bytes[i]} << 8 : bytes[i];
    while (total >> 16 != 0)
        total = (total & 0xffff) + (total >> 16);
    return static_cast<std::uint16_t>(total);
}

void segments(void **)
{
    Segment4 syn;
    write_syn(kPair, syn);
    const std::uint8_t tcp[] = {0x03, 0xe8, 0x1b, 0x58, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0, 0};
    assert_memory_equal(&syn[20], tcp, sizeof tcp);
    Segment4 reset;
    write_reset(kPair, 0x12345678, reset);
    assert_int_equal(reset[33], 0x04);
    const std::uint8_t number[] = {0x12, 0x34, 0x56, 0x78};
    assert_memory_equal(&reset[24], number, sizeof number);
    for (const Segment4 &segment : {syn, reset}) {
        assert_int_equal(plain_sum(segment.data(), 20, 0), 0xffff);
        const std::uint32_t pseudo = 0x0a00 + 1 + 0x0a00 + 2 + IPPROTO_TCP + 20;
        assert_int_equal(plain_sum(&segment[20], 20, pseudo), 0xffff);
        assert_memory_equal(&segment[12], &kPair.local, 4);
        assert_memory_equal(&segment[16], &kPair.remote, 4);
    }
}

void answers(void **)
{
    const Pair4 theirs = {kPair.remote, kPair.local, kPair.remote_port, kPair.local_port};
    Segment4 packet;
    write_reset(theirs, 5, packet);
    Answer answer;
    assert_true(parse_answer(packet, answer));
    assert_true(answer.reset && answer.pair == kPair);
    packet[33] = 0x10;
    packet[31] = 9;
    assert_true(parse_answer(packet, answer));
    assert_true(!answer.reset && answer.pair == kPair && answer.ack == 9);
    packet[33] = 0x12; // a new connection's
    assert_false(parse_answer(packet, answer));
    packet[33] = 0x10;
    for (std::size_t length = 0; length < packet.size(); ++length)
        assert_false(parse_answer(std::span(packet).first(length), answer));
    packet[0] = 0x4f; // options, which are not there
    assert_false(parse_answer(packet, answer));
    packet[0] = 0x44;
    assert_false(parse_answer(packet, answer));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(segments),
        cmocka_unit_test(answers),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
