// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams where one end is behind or asleep: nothing is lost or out of order, and whoever can go on is
// woken.
#include "prov/vma/test/rdm/pair.hpp"

#include <poll.h>

#include <algorithm>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kTag = 0x1234'0000'5678;
constexpr std::uint64_t kOther = 9; // the tag of what nobody receives
constexpr std::size_t kBlock = 4096;

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

// Receives that all are posted before the first message, as MPI programs do.
void receives_before_the_first_message(void **)
{
    constexpr std::uint64_t kCount = 3000;
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    std::vector<std::uint64_t> got(kCount, kCount);
    for (std::uint64_t i = 0; i < kCount; ++i)
        REQUIRE(fi_trecv(b.ep, &got[i], sizeof got[i], nullptr, FI_ADDR_UNSPEC, i, 0, &got[i]) == 0);
    for (std::uint64_t i = 0; i < kCount; ++i)
        REQUIRE(again([&] { return fi_tinject(a.ep, &i, sizeof i, to_b, i); }, {b.cq}) == 0);
    for (std::uint64_t i = 0; i < kCount; ++i) {
        const Entry entry = next_of(b.cq);
        REQUIRE(entry.error.err == 0 && entry.told.op_context == &got[i] && got[i] == i);
    }
}

// Sends that wait for their receives, likewise: each is longer than what goes without being asked for.
void sends_before_the_first_receive(void **)
{
    constexpr std::uint64_t kCount = 1000;
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    const std::vector<std::byte> block = pattern(16384, 1);
    for (std::uint64_t i = 0; i < kCount; ++i)
        REQUIRE(send_tagged(a, to_b, block, i, nullptr, b) == 0);
    std::vector<std::byte> got(block.size());
    for (std::uint64_t i = 0; i < kCount; ++i) {
        std::fill(got.begin(), got.end(), std::byte{0});
        REQUIRE(fi_trecv(b.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, i, 0, nullptr) == 0);
        REQUIRE(next_of(b.cq, {a.cq}).error.err == 0 && got == block);
    }
}

// Sends what nobody receives, with kOther, until no more of it is taken. How many messages were.
std::uint64_t send_all_that_is_kept(Rdm &a, fi_addr_t to_b, const Rdm &b)
{
    const std::vector<std::byte> block = pattern(kBlock, 1);
    std::uint64_t sent = 0;
    for (int refused = 0; refused < 1000;) {
        const ssize_t result = fi_tinject(a.ep, block.data(), block.size(), to_b, kOther);
        REQUIRE(result == 0 || result == -FI_EAGAIN);
        refused = result == 0 ? 0 : refused + 1;
        sent += result == 0 ? 1 : 0;
        REQUIRE(fi_cq_read(b.cq, nullptr, 0) <= 0);
        REQUIRE(sent < 40000);
    }
    REQUIRE(sent > 10000);
    return sent;
}

// All that was kept is received, in the end.
void receive_others(Rdm &b, std::uint64_t count)
{
    std::vector<std::byte> got(kBlock);
    for (std::uint64_t i = 0; i < count; ++i) {
        REQUIRE(fi_trecv(b.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, kOther, 0, nullptr) == 0);
        REQUIRE(next_of(b.cq).error.err == 0);
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
    const std::uint64_t sent = send_all_that_is_kept(a, a_to_b, b);
    for (const std::size_t length : {std::size_t{16}, std::size_t{50000}, std::size_t{300000}}) {
        const std::vector<std::byte> bytes = pattern(length, 2);
        std::vector<std::byte> got(length);
        REQUIRE(fi_trecv(b.ep, got.data(), length, nullptr, FI_ADDR_UNSPEC, 1, 0, &got) == 0);
        REQUIRE(send_tagged(c, c_to_b, bytes, 1, nullptr, b) == 0);
        assert_ptr_equal(next_of(b.cq, {c.cq}).told.op_context, &got);
        REQUIRE(got == bytes);
    }
    receive_others(b, sent);
    REQUIRE(fi_tinject(a.ep, "x", 1, a_to_b, kOther) == 0); // and it goes on
}

// A receive that is posted gets its message from behind more than the endpoint would hold; so does who only looks.
void what_is_behind_it(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    std::uint64_t sent = send_all_that_is_kept(a, to_b, b);
    const std::vector<std::byte> block = pattern(kBlock, 1);
    const auto send_others = [&](auto &&look) {
        for (int i = 0; i < 1000; ++i, ++sent)
            REQUIRE(again(
                        [&] {
                            look();
                            return fi_tinject(a.ep, block.data(), block.size(), to_b, kOther);
                        },
                        {b.cq}) == 0);
    };
    char got = 0;
    REQUIRE(fi_trecv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, kTag, 0, &got) == 0);
    send_others([] {});
    REQUIRE(again([&] { return fi_tinject(a.ep, "y", 1, to_b, kTag); }, {b.cq}) == 0);
    assert_ptr_equal(next_of(b.cq).told.op_context, &got);
    assert_int_equal(got, 'y');

    const auto looks = [&] {
        fi_msg_tagged wanted{};
        wanted.addr = FI_ADDR_UNSPEC;
        wanted.tag = kTag;
        REQUIRE(fi_trecvmsg(b.ep, &wanted, FI_PEEK) == 0);
        return next_of(b.cq).error.err;
    };
    send_others([&] { assert_int_equal(looks(), FI_ENOMSG); });
    REQUIRE(again(
                [&] {
                    assert_int_equal(looks(), FI_ENOMSG);
                    return fi_tinject(a.ep, "z", 1, to_b, kTag);
                },
                {}) == 0);
    int error = looks();
    for (int i = 0; error != 0; ++i, error = looks())
        REQUIRE(error == FI_ENOMSG && i < 100'000);
    REQUIRE(fi_trecv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, kTag, 0, &got) == 0);
    assert_ptr_equal(next_of(b.cq).told.op_context, &got);
    assert_int_equal(got, 'z');
    receive_others(b, sent);
}

// What it reads from a peer's memory comes by the same ring as what nobody receives.
void an_answer_behind_it(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    const fi_addr_t to_a = to(b, a);
    const std::uint64_t sent = send_all_that_is_kept(a, to_b, b);
    std::uint64_t number = 0x1234567;
    std::uint64_t got = 0;
    fid_mr *const mr = a.expose(&number, sizeof number, 7);
    REQUIRE(again([&] { return fi_read(b.ep, &got, sizeof got, nullptr, to_a, 0, 7, &got); }, {a.cq, b.cq}) == 0);
    assert_ptr_equal(next_of(b.cq, {a.cq}).told.op_context, &got);
    REQUIRE(got == number);
    REQUIRE(fi_close(&mr->fid) == 0);
    receive_others(b, sent);
}

// Whose memory is there for others may wait for what they do with it, receives nothing, and sleeps: then the rings go
// on as soon as there is such memory.
void a_write_behind_it(void **)
{
    for (const bool sleeps : {false, true}) {
        OwnDirectory directory;
        Rdm a;
        Rdm b;
        const fi_addr_t to_b = to(a, b);
        std::uint64_t sent = send_all_that_is_kept(a, to_b, b);
        pollfd waiting{-1, POLLIN, 0};
        REQUIRE(fi_control(&b.cq->fid, FI_GETWAIT, &waiting.fd) == 0);
        fid *waits[] = {&b.cq->fid};
        while (sleeps && (fi_trywait(b.fabric, waits, 1) != 0 || poll(&waiting, 1, 0) != 0))
            REQUIRE(fi_cq_read(b.cq, nullptr, 0) <= 0);
        std::uint64_t number = 0;
        std::uint64_t written = 0x1234567;
        fid_mr *const mr = b.expose(&number, sizeof number, 7);
        REQUIRE(!sleeps || poll(&waiting, 1, kPatience) == 1);
        REQUIRE(again([&] { return fi_write(a.ep, &written, sizeof written, nullptr, to_b, 0, 7, &written); },
                      {a.cq, b.cq}) == 0);
        assert_ptr_equal(next_of(a.cq, {b.cq}).told.op_context, &written);
        REQUIRE(number == written);
        const std::vector<std::byte> block = pattern(kBlock, 1);
        for (int i = 0; i < 1000; ++i, ++sent)
            REQUIRE(again([&] { return fi_tinject(a.ep, block.data(), block.size(), to_b, kOther); }, {b.cq}) == 0);
        REQUIRE(fi_read(a.ep, &written, sizeof written, nullptr, to_b, 0, 7, &written) == 0);
        assert_ptr_equal(next_of(a.cq, {b.cq}).told.op_context, &written);
        REQUIRE(fi_close(&mr->fid) == 0);
        receive_others(b, sent);
    }
}

// Both send all that they have, and receive afterwards: neither may wait for the other.
void each_sends_first(void **)
{
    OwnDirectory directory;
    constexpr std::uint64_t kMessages = 20'000; // 80 MiB
    struct Side {
        Rdm at{};
        fi_addr_t other = FI_ADDR_UNSPEC;
        std::uint64_t sent = 0;
        std::uint64_t received = 0;
        bool posted = false;
        std::vector<std::byte> block = pattern(kBlock, 1);

        bool is_done() const { return received == kMessages; }
        void step()
        {
            if (sent < kMessages) {
                sent += fi_tinject(at.ep, block.data(), block.size(), other, kOther) == 0 ? 1 : 0;
            } else if (!posted && received < kMessages) {
                REQUIRE(fi_trecv(at.ep, block.data(), block.size(), nullptr, FI_ADDR_UNSPEC, kOther, 0, nullptr) == 0);
                posted = true;
            }
            Entry entry;
            if (read_entry(at.cq, entry)) {
                REQUIRE(posted && entry.error.err == 0);
                posted = false;
                ++received;
            }
        }
    };
    Side a;
    Side b;
    a.other = to(a.at, b.at);
    b.other = to(b.at, a.at);
    for (std::uint64_t rounds = 0; !a.is_done() || !b.is_done(); ++rounds) {
        REQUIRE(rounds < 100'000'000);
        a.step();
        b.step();
    }
}

// A queue of received messages that nobody reads holds up no answer that is awaited by another queue.
void an_answer_behind_a_full_queue(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b({.cq_size = 16, .two_queues = true});
    const fi_addr_t to_b = to(a, b);
    const fi_addr_t to_a = to(b, a);
    constexpr std::uint64_t kMessages = 64;
    std::uint64_t received[kMessages] = {};
    for (std::uint64_t &one : received)
        REQUIRE(fi_recv(b.ep, &one, sizeof one, nullptr, FI_ADDR_UNSPEC, &one) == 0);
    for (std::uint64_t i = 1; i <= kMessages; ++i)
        REQUIRE(again([&] { return fi_inject(a.ep, &i, sizeof i, to_b); }, {b.tx_cq}) == 0);
    std::uint64_t number = 0x1234567;
    std::uint64_t got = 0;
    fid_mr *const mr = a.expose(&number, sizeof number, 7);
    REQUIRE(again([&] { return fi_read(b.ep, &got, sizeof got, nullptr, to_a, 0, 7, &got); }, {a.cq, b.tx_cq}) == 0);
    assert_ptr_equal(next_of(b.tx_cq, {a.cq}).told.op_context, &got);
    REQUIRE(got == number);
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        assert_ptr_equal(next_of(b.cq).told.op_context, &received[i]);
        REQUIRE(received[i] == i + 1);
    }
    REQUIRE(fi_close(&mr->fid) == 0);
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
        cmocka_unit_test(receives_before_the_first_message),
        cmocka_unit_test(sends_before_the_first_receive),
        cmocka_unit_test(what_nobody_receives),
        cmocka_unit_test(what_is_behind_it),
        cmocka_unit_test(an_answer_behind_it),
        cmocka_unit_test(a_write_behind_it),
        cmocka_unit_test(each_sends_first),
        cmocka_unit_test(an_answer_behind_a_full_queue),
        cmocka_unit_test(both_at_once),
        cmocka_unit_test(the_descriptor_becomes_readable),
        cmocka_unit_test(sleeps_while_a_ring_is_full),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
