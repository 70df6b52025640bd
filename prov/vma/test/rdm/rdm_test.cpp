// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams, messages: each arrives once, in order, in the receive that it matches, whichever of both comes
// first and whatever way its length makes it go.
#include "prov/vma/test/rdm/pair.hpp"

#include <algorithm>
#include <poll.h>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kTag = 0x1234'0000'5678;
// One record, several, an offer (or a long stream).
constexpr std::size_t kLengths[] = {0, 1, 8, 24, 25, 4096, 8192, 8193, 65536, 131072, 131073, 1048577};

// Both ends in one process, all forms of sending and receiving.
void arrives_in_one_process(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    const fi_addr_t a_at_b = b.insert(a.name);
    char buffer[64] = {};
    REQUIRE(fi_recv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, &buffer) == 0);
    REQUIRE(fi_send(a.ep, "hello", 5, nullptr, to_b, &a) == 0);
    const Entry got = next_of(b.cq);
    assert_ptr_equal(got.told.op_context, &buffer);
    assert_int_equal(got.told.len, 5);
    assert_int_equal(got.told.flags, FI_MSG | FI_RECV);
    assert_int_equal(got.source, a_at_b);
    assert_memory_equal(buffer, "hello", 5);
    const Entry sent = next_of(a.cq);
    assert_ptr_equal(sent.told.op_context, &a);
    assert_int_equal(sent.told.flags, FI_MSG | FI_SEND);

    REQUIRE(fi_trecv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, kTag, 0xff, &buffer) == 0);
    REQUIRE(fi_tinjectdata(a.ep, "tagged", 6, 4711, to_b, kTag | 0x11) == 0);
    const Entry tagged = next_of(b.cq);
    assert_int_equal(tagged.told.flags, FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA);
    assert_int_equal(tagged.told.data, 4711);
    assert_int_equal(tagged.told.tag, kTag | 0x11);
    assert_true(no_entry(a.cq));

    char left[3];
    char right[8];
    const iovec out[] = {{const_cast<char *>("ab"), 2}, {const_cast<char *>("cdef"), 4}};
    const iovec in[] = {{left, sizeof left}, {right, sizeof right}};
    REQUIRE(fi_trecvv(b.ep, in, nullptr, 2, a_at_b, 1, 0, nullptr) == 0);
    REQUIRE(fi_tsendv(a.ep, out, nullptr, 2, to_b, 1, nullptr) == 0);
    assert_int_equal(next_of(b.cq).told.len, 6);
    assert_memory_equal(left, "abc", 3);
    assert_memory_equal(right, "def", 3);
}

void arrives_at_the_sender(void **)
{
    OwnDirectory directory;
    Rdm a;
    const fi_addr_t self = to(a, a);
    for (const std::size_t length : kLengths) {
        const std::vector<std::byte> bytes = pattern(length, 7);
        std::vector<std::byte> got(length);
        REQUIRE(fi_trecv(a.ep, got.data(), length, nullptr, self, kTag, 0, &got) == 0);
        REQUIRE(send_tagged(a, self, bytes, kTag, nullptr, a) == 0);
        for (int i = 0; i < 2; ++i)
            REQUIRE(next_of(a.cq).error.err == 0);
        REQUIRE(got == bytes);
    }
}

void every_length(const RdmSetup &setup)
{
    OwnDirectory directory;
    Rdm a(setup);
    Rdm b(setup);
    const fi_addr_t to_b = to(a, b);
    for (const std::size_t length : kLengths) {
        for (const bool posted_first : {true, false}) {
            const std::vector<std::byte> bytes = pattern(length, length);
            std::vector<std::byte> got(length + 16, std::byte{0x55});
            const auto post = [&] {
                return fi_trecv(b.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, length, 0, &got);
            };
            if (posted_first)
                REQUIRE(post() == 0);
            REQUIRE(send_tagged(a, to_b, bytes, length, &a, b) == 0);
            if (!posted_first) {
                for (int i = 0; i < 3; ++i)
                    REQUIRE(no_entry(b.cq));
                REQUIRE(post() == 0);
            }
            const Entry received = next_of(b.cq, {a.tx_cq});
            REQUIRE(received.error.err == 0 && received.told.len == length && received.told.op_context == &got);
            REQUIRE(std::equal(bytes.begin(), bytes.end(), got.begin()) && got[length] == std::byte{0x55});
            const Entry sent = next_of(a.tx_cq, {b.cq});
            REQUIRE(sent.error.err == 0 && sent.told.op_context == &a);
        }
    }
}

void every_length_by_single_copy(void **)
{
    every_length({});
}
void every_length_through_the_ring(void **)
{
    every_length({.single_copy = false});
}
void every_length_by_two_queues(void **)
{
    every_length({.two_queues = true});
}
void every_length_without_locks(void **)
{
    every_length({.threading = FI_THREAD_DOMAIN});
}

void every_length_between_hosts(void **)
{
    every_length({.network = true});
}
void every_length_between_hosts_by_two_queues(void **)
{
    every_length({.two_queues = true, .network = true});
}

// What matches is the oldest that fits, on both sides, also where a long message is between short ones.
void order_is_kept(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    const std::vector<std::byte> bytes = pattern(300000, 3);
    REQUIRE(fi_tinject(a.ep, "1", 1, to_b, 5) == 0);
    REQUIRE(send_tagged(a, to_b, bytes, 5, nullptr, b) == 0);
    REQUIRE(again([&] { return fi_tinject(a.ep, "3", 1, to_b, 6); }, {b.cq}) == 0);
    REQUIRE(no_entry(b.cq));
    char one[4] = {};
    std::vector<std::byte> two(bytes.size());
    char three[4] = {};
    REQUIRE(fi_trecv(b.ep, three, sizeof three, nullptr, FI_ADDR_UNSPEC, 6, 0, three) == 0);
    assert_ptr_equal(next_of(b.cq).told.op_context, three);
    REQUIRE(fi_trecv(b.ep, one, sizeof one, nullptr, FI_ADDR_UNSPEC, 4, 3, one) == 0);
    assert_ptr_equal(next_of(b.cq).told.op_context, one);
    REQUIRE(fi_trecv(b.ep, two.data(), two.size(), nullptr, FI_ADDR_UNSPEC, 0, ~std::uint64_t{0}, two.data()) == 0);
    assert_ptr_equal(next_of(b.cq, {a.cq}).told.op_context, two.data());
    assert_memory_equal(one, "1", 1);
    assert_memory_equal(three, "3", 1);
    REQUIRE(two == bytes);
}

void only_from_one(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    Rdm c;
    const fi_addr_t a_to_c = to(a, c);
    const fi_addr_t b_to_c = to(b, c);
    const fi_addr_t a_at_c = c.insert(a.name);
    const fi_addr_t b_at_c = c.insert(b.name);
    char from_a[4] = {};
    char from_b[4] = {};
    REQUIRE(fi_recv(c.ep, from_b, sizeof from_b, nullptr, b_at_c, from_b) == 0);
    REQUIRE(fi_inject(a.ep, "a", 1, a_to_c) == 0);
    REQUIRE(no_entry(c.cq));
    REQUIRE(fi_inject(b.ep, "b", 1, b_to_c) == 0);
    const Entry second = next_of(c.cq);
    assert_ptr_equal(second.told.op_context, from_b);
    assert_int_equal(second.source, b_at_c);
    REQUIRE(fi_recv(c.ep, from_a, sizeof from_a, nullptr, a_at_c, from_a) == 0);
    assert_ptr_equal(next_of(c.cq).told.op_context, from_a);
    assert_memory_equal(from_a, "a", 1);
    assert_memory_equal(from_b, "b", 1);
    assert_int_equal(fi_recv(c.ep, from_a, 1, nullptr, 77, nullptr), -FI_EINVAL);
}

void too_long_for_the_receive(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    for (const std::size_t length : {std::size_t{100}, std::size_t{20000}, std::size_t{200000}}) {
        const std::vector<std::byte> bytes = pattern(length, 1);
        std::vector<std::byte> got(80, std::byte{0x55});
        REQUIRE(fi_trecv(b.ep, got.data(), 64, nullptr, FI_ADDR_UNSPEC, 1, 0, got.data()) == 0);
        REQUIRE(send_tagged(a, to_b, bytes, 1, nullptr, b) == 0);
        const Entry received = next_of(b.cq, {a.cq});
        assert_int_equal(received.error.err, FI_ETRUNC);
        assert_int_equal(received.error.len, 64);
        assert_int_equal(received.error.olen, length - 64);
        REQUIRE(std::equal(got.begin(), got.begin() + 64, bytes.begin()) && got[64] == std::byte{0x55});
        assert_int_equal(next_of(a.cq, {b.cq}).error.err, 0);
    }
}

fi_msg_tagged wanted(std::uint64_t tag, const iovec *iov, std::size_t count, void *context)
{
    fi_msg_tagged message{};
    message.msg_iov = iov;
    message.iov_count = count;
    message.addr = FI_ADDR_UNSPEC;
    message.tag = tag;
    message.context = context;
    return message;
}

void looked_for_and_claimed(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    int context = 0;
    const fi_msg_tagged look = wanted(9, nullptr, 0, &context);
    REQUIRE(fi_trecvmsg(b.ep, &look, FI_PEEK) == 0);
    const Entry nothing = next_of(b.cq);
    assert_int_equal(nothing.error.err, FI_ENOMSG);
    assert_ptr_equal(nothing.error.op_context, &context);

    for (const std::size_t length : {std::size_t{3}, std::size_t{50000}, std::size_t{400000}}) {
        const std::vector<std::byte> bytes = pattern(length, 5);
        for (int i = 0; i < 3; ++i)
            REQUIRE(send_tagged(a, to_b, bytes, 9, nullptr, b) == 0);
        Entry found;
        do {
            static_cast<void>(fi_cq_read(a.cq, nullptr, 0));
            REQUIRE(fi_trecvmsg(b.ep, &look, FI_PEEK) == 0);
            found = next_of(b.cq);
        } while (found.error.err == FI_ENOMSG);
        assert_int_equal(found.told.len, length);
        assert_int_equal(found.told.tag, 9);
        // The first is dropped, the second claimed and then taken, the third claimed and then dropped.
        REQUIRE(fi_trecvmsg(b.ep, &look, FI_PEEK | FI_DISCARD) == 0);
        REQUIRE(next_of(b.cq).error.err == 0);
        for (const bool taken : {true, false}) {
            do {
                static_cast<void>(fi_cq_read(a.cq, nullptr, 0));
                REQUIRE(fi_trecvmsg(b.ep, &look, FI_PEEK | FI_CLAIM) == 0);
                found = next_of(b.cq);
            } while (found.error.err == FI_ENOMSG);
            std::vector<std::byte> got(length);
            const iovec iov{got.data(), got.size()};
            const fi_msg_tagged claim = wanted(9, &iov, 1, &context);
            REQUIRE(fi_trecvmsg(b.ep, &claim, taken ? FI_CLAIM : FI_CLAIM | FI_DISCARD) == 0);
            const Entry end = next_of(b.cq, {a.cq});
            assert_int_equal(end.error.err, 0);
            REQUIRE(!taken || got == bytes);
        }
        for (int i = 0; i < 3; ++i)
            assert_int_equal(next_of(a.cq, {b.cq}).error.err, 0);
    }
    assert_int_equal(fi_trecvmsg(b.ep, &look, FI_CLAIM), -FI_EINVAL);
}

void canceled(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    char first[4] = {};
    char second[4] = {};
    REQUIRE(fi_trecv(b.ep, first, sizeof first, nullptr, FI_ADDR_UNSPEC, 1, 0, first) == 0);
    REQUIRE(fi_trecv(b.ep, second, sizeof second, nullptr, FI_ADDR_UNSPEC, 1, 0, second) == 0);
    REQUIRE(fi_cancel(&b.ep->fid, first) == 0);
    const Entry gone = next_of(b.cq);
    assert_int_equal(gone.error.err, FI_ECANCELED);
    assert_ptr_equal(gone.error.op_context, first);
    assert_int_equal(fi_cancel(&b.ep->fid, first), -FI_ENOENT);
    REQUIRE(fi_tinject(a.ep, "x", 1, to_b, 1) == 0);
    assert_ptr_equal(next_of(b.cq).told.op_context, second);
}

// Many messages into one buffer, that is told once it is used up.
void one_buffer_for_many(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    const std::size_t least = 1000;
    REQUIRE(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least) == 0);
    std::vector<char> buffers[2] = {std::vector<char>(10000), std::vector<char>(10000)};
    REQUIRE(fi_inject(a.ep, "early", 5, to_b) == 0); // one that waits for it
    REQUIRE(no_entry(b.cq));
    for (std::vector<char> &buffer : buffers) {
        const iovec iov{buffer.data(), buffer.size()};
        fi_msg message{};
        message.msg_iov = &iov;
        message.iov_count = 1;
        message.addr = FI_ADDR_UNSPEC;
        message.context = buffer.data();
        REQUIRE(fi_recvmsg(b.ep, &message, FI_MULTI_RECV) == 0);
    }
    const Entry early = next_of(b.cq);
    assert_memory_equal(buffers[0].data(), "early", 5);
    assert_int_equal(early.told.flags, FI_MSG | FI_RECV);
    std::size_t used[2] = {5, 0};
    unsigned at = 0;
    std::uint64_t sent = 0;
    bool ends = false;
    while (!ends || at != 1) {
        const std::string text(500 + sent * 37 % 400, static_cast<char>('a' + sent % 26));
        REQUIRE(again([&] { return fi_inject(a.ep, text.data(), text.size(), to_b); }, {b.cq}) == 0);
        const Entry got = next_of(b.cq);
        REQUIRE(got.error.err == 0 && got.told.len == text.size());
        REQUIRE(got.told.op_context == buffers[at].data() && got.told.buf == buffers[at].data() + used[at]);
        REQUIRE(std::equal(text.begin(), text.end(), buffers[at].begin() + static_cast<std::ptrdiff_t>(used[at])));
        used[at] += text.size();
        ends = (got.told.flags & FI_MULTI_RECV) != 0;
        REQUIRE(ends == (buffers[at].size() - used[at] < least));
        if (ends && at == 0) {
            at = 1;
            ends = false;
        }
        ++sent;
    }
    REQUIRE(fi_inject(a.ep, "late", 4, to_b) == 0);
    REQUIRE(no_entry(b.cq));
}

// A completion that means more than "it is on its way".
void delivered(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    for (const std::uint64_t level : {FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE}) {
        for (const std::size_t length : kLengths) {
            const std::vector<std::byte> bytes = pattern(length, 11);
            const iovec iov{const_cast<std::byte *>(bytes.data()), length};
            fi_msg_tagged message = wanted(4, &iov, 1, &a);
            message.addr = to_b;
            REQUIRE(again([&] { return fi_tsendmsg(a.ep, &message, level); }, {a.cq, b.cq}) == 0);
            for (int i = 0; i < 100; ++i)
                REQUIRE(no_entry(b.cq));
            REQUIRE(no_entry(a.cq));
            std::vector<std::byte> got(length);
            REQUIRE(fi_trecv(b.ep, got.data(), length, nullptr, FI_ADDR_UNSPEC, 4, 0, nullptr) == 0);
            assert_int_equal(next_of(b.cq, {a.cq}).error.err, 0);
            assert_ptr_equal(next_of(a.cq, {b.cq}).told.op_context, &a);
            REQUIRE(got == bytes);
        }
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(arrives_in_one_process),
        cmocka_unit_test(arrives_at_the_sender),
        cmocka_unit_test(every_length_by_single_copy),
        cmocka_unit_test(every_length_through_the_ring),
        cmocka_unit_test(every_length_by_two_queues),
        cmocka_unit_test(every_length_without_locks),
        cmocka_unit_test(every_length_between_hosts),
        cmocka_unit_test(every_length_between_hosts_by_two_queues),
        cmocka_unit_test(order_is_kept),
        cmocka_unit_test(only_from_one),
        cmocka_unit_test(too_long_for_the_receive),
        cmocka_unit_test(looked_for_and_claimed),
        cmocka_unit_test(canceled),
        cmocka_unit_test(one_buffer_for_many),
        cmocka_unit_test(delivered),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
