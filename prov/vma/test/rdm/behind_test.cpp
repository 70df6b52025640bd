// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams where one end is behind or asleep: nothing is lost or out of order, and whoever can go on is
// woken.
#include "prov/vma/test/rdm/pair.hpp"

#include <poll.h>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kTag = 0x1234'0000'5678;

// Without receives: the ring fills, the sender is told to come again, and nothing is lost or out of order.
void more_than_fits(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    std::uint64_t sent = 0;
    std::vector<std::byte> block = pattern(4096, 1);
    while (fi_inject(a.ep, block.data(), block.size(), to_b) == 0) // b reads nothing
        ++sent;
    REQUIRE(sent > 20);
    REQUIRE(fi_inject(a.ep, block.data(), block.size(), to_b) == -FI_EAGAIN);
    for (std::uint64_t i = 0; i < 2000; ++i, ++sent) {
        std::memcpy(block.data(), &i, sizeof i);
        REQUIRE(again([&] { return fi_inject(a.ep, block.data(), block.size(), to_b); }, {b.cq}) == 0);
    }
    const std::uint64_t before = sent - 2000;
    for (std::uint64_t i = 0; i < sent; ++i) {
        std::uint64_t got[512] = {};
        REQUIRE(fi_recv(b.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(next_of(b.cq).error.err == 0);
        REQUIRE(i < before || got[0] == i - before);
    }
}

// One endpoint holds as many messages without receives as it may: their sender waits, and only it does.
void what_nobody_receives(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    Rdm c;
    const fi_addr_t a_to_b = to(a, b);
    const fi_addr_t c_to_b = to(c, b);
    const std::vector<std::byte> block = pattern(4096, 1);
    std::uint64_t sent = 0;
    for (int refused = 0; refused < 1000;) {
        const ssize_t result = fi_tinject(a.ep, block.data(), block.size(), a_to_b, 9);
        REQUIRE(result == 0 || result == -FI_EAGAIN);
        refused = result == 0 ? 0 : refused + 1;
        sent += result == 0 ? 1 : 0;
        REQUIRE(fi_cq_read(b.cq, nullptr, 0) <= 0);
        REQUIRE(sent < 40000);
    }
    REQUIRE(sent > 10000);
    for (const std::size_t length : {std::size_t{16}, std::size_t{50000}, std::size_t{300000}}) {
        const std::vector<std::byte> bytes = pattern(length, 2);
        std::vector<std::byte> got(length);
        REQUIRE(fi_trecv(b.ep, got.data(), length, nullptr, FI_ADDR_UNSPEC, 1, 0, &got) == 0);
        REQUIRE(send_tagged(c, c_to_b, bytes, 1, nullptr, b) == 0);
        assert_ptr_equal(next_of(b.cq, {c.cq}).told.op_context, &got);
        REQUIRE(got == bytes);
    }
    std::vector<std::byte> got(block.size());
    for (std::uint64_t i = 0; i < sent; ++i) {
        REQUIRE(fi_trecv(b.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 9, 0, nullptr) == 0);
        REQUIRE(next_of(b.cq).error.err == 0);
    }
    REQUIRE(fi_tinject(a.ep, block.data(), block.size(), a_to_b, 9) == 0); // and it goes on
}

// Two processes that throw all they can at each other and wait for the other's answer to each: two full rings must not
// wait for each other.
void both_at_once(void **)
{
    OwnDirectory directory;
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    constexpr std::uint64_t kMessages = 3000;
    const auto play = [&](int socket, std::uint64_t seed) {
        Rdm me;
        sockaddr_in other{};
        REQUIRE(write(socket, &me.name, sizeof me.name) == sizeof me.name);
        REQUIRE(read(socket, &other, sizeof other) == sizeof other);
        const fi_addr_t peer = me.insert(other);
        const std::size_t lengths[] = {8, 3000, 8192, 40000, 200000};
        std::vector<std::byte> out = pattern(200000, 1);
        std::vector<std::byte> in(200000);
        std::uint64_t sent = 0;
        std::uint64_t ended = 0;
        std::uint64_t received = 0;
        bool posted = false;
        for (std::uint64_t rounds = 0; ended < kMessages || received < kMessages; ++rounds) {
            REQUIRE(rounds < 500'000'000);
            if (!posted && received < kMessages) {
                REQUIRE(fi_recv(me.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in) == 0);
                posted = true;
            }
            const iovec iov{out.data(), lengths[(sent + seed) % std::size(lengths)]};
            fi_msg message{};
            message.msg_iov = &iov;
            message.iov_count = 1;
            message.addr = peer;
            message.data = sent;
            message.context = &out;
            if (sent < kMessages && fi_sendmsg(me.ep, &message, FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA) == 0)
                ++sent;
            Entry entry;
            if (!read_entry(me.cq, entry))
                continue;
            REQUIRE(entry.error.err == 0);
            if (entry.told.op_context == &out) {
                ++ended;
                continue;
            }
            REQUIRE(entry.told.data == received);
            REQUIRE(entry.told.len == lengths[(received + 1 - seed) % std::size(lengths)]);
            REQUIRE(std::equal(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(entry.told.len), out.begin()));
            ++received;
            posted = false;
        }
        leave_together(socket, me.cq);
    };
    const pid_t pid = child([&] { play(pair[1], 1); });
    play(pair[0], 0);
    ends_well(pid);
    close(pair[0]);
    close(pair[1]);
}

// Who sleeps on the queue's descriptor is woken by the first message of somebody unknown, and by each after it.
void the_descriptor_becomes_readable(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    int fd = -1;
    REQUIRE(fi_control(&b.cq->fid, FI_GETWAIT, &fd) == 0);
    char got[4];
    for (char &byte : got)
        REQUIRE(fi_recv(b.ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    fid *waits[] = {&b.cq->fid};
    for (int i = 0; i < 4; ++i) {
        Entry entry;
        while (fi_trywait(b.fabric, waits, 1) != 0)
            REQUIRE(!read_entry(b.cq, entry));
        REQUIRE(fi_inject(a.ep, "x", 1, to_b) == 0);
        pollfd waiting{fd, POLLIN, 0};
        REQUIRE(poll(&waiting, 1, kPatience) == 1);
        while (!read_entry(b.cq, entry)) {
            if (fi_trywait(b.fabric, waits, 1) == 0)
                REQUIRE(poll(&waiting, 1, kPatience) == 1);
        }
        REQUIRE(entry.error.err == 0);
    }
}

// Who has more to write than the ring holds may sleep until the peer has made room, and then goes on.
void sleeps_while_a_ring_is_full(void **)
{
    OwnDirectory directory;
    const RdmSetup setup{.single_copy = false};
    Rdm a(setup);
    Rdm b(setup);
    const fi_addr_t to_b = to(a, b);
    const std::vector<std::byte> bytes = pattern(std::size_t{4} << 20, 9);
    std::vector<std::byte> got(bytes.size());
    REQUIRE(fi_trecv(b.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0, &got) == 0);
    REQUIRE(send_tagged(a, to_b, bytes, kTag, &a, b) == 0);
    int fd = -1;
    REQUIRE(fi_control(&a.cq->fid, FI_GETWAIT, &fd) == 0);
    fid *waits[] = {&a.cq->fid};
    int sleeps = 0;
    for (bool received = false, sent = false; !received || !sent;) {
        Entry entry;
        // Its ring is full, or on the way: nobody reads it meanwhile.
        for (int i = 0; !sent && fi_trywait(a.fabric, waits, 1) != 0; ++i) {
            REQUIRE(i < 1000);
            sent = read_entry(a.cq, entry);
        }
        pollfd waiting{fd, POLLIN, 0};
        sleeps += !sent && poll(&waiting, 1, 0) == 0;
        received |= read_entry(b.cq, entry); // makes room
        if (!sent && !received)
            REQUIRE(poll(&waiting, 1, kPatience) == 1);
        if (!sent)
            sent = read_entry(a.cq, entry);
    }
    assert_true(sleeps > 8);
    REQUIRE(got == bytes);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(more_than_fits),
        cmocka_unit_test(what_nobody_receives),
        cmocka_unit_test(both_at_once),
        cmocka_unit_test(the_descriptor_becomes_readable),
        cmocka_unit_test(sleeps_while_a_ring_is_full),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
