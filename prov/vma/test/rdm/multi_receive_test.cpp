// SPDX-License-Identifier: BSD-2-Clause
// One buffer for many messages (FI_MULTI_RECV): whatever gives it back to the program says so, as nothing else tells
// when it may be used again.
#include "prov/vma/test/rdm/pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::size_t kLong = 1 << 20; // more than a ring has room for

struct Buffer {
    std::vector<std::byte> bytes;
    iovec iov;

    explicit Buffer(std::size_t size) : bytes(size), iov{bytes.data(), size} {}
};

void post(Rdm &at, Buffer &buffer, std::uint64_t flags = 0)
{
    fi_msg message{};
    message.msg_iov = &buffer.iov;
    message.iov_count = 1;
    message.addr = FI_ADDR_UNSPEC;
    message.context = &buffer;
    REQUIRE(fi_recvmsg(at.ep, &message, FI_MULTI_RECV | flags) == 0);
}

void post_tagged(Rdm &at, Buffer &buffer, void *context, std::uint64_t flags = 0)
{
    fi_msg_tagged message{};
    message.msg_iov = &buffer.iov;
    message.iov_count = 1;
    message.addr = FI_ADDR_UNSPEC;
    message.tag = 7;
    message.context = context;
    REQUIRE(fi_trecvmsg(at.ep, &message, flags) == 0);
}

void cancelled_before_anything(void **)
{
    OwnDirectory directory;
    Rdm a;
    Buffer buffer(4096);
    post(a, buffer);
    REQUIRE(fi_cancel(&a.ep->fid, &buffer) == 0);
    const Entry untagged = next_of(a.cq);
    assert_ptr_equal(untagged.error.op_context, &buffer);
    assert_int_equal(untagged.error.err, FI_ECANCELED);
    assert_int_equal(untagged.error.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
    post_tagged(a, buffer, &buffer, FI_MULTI_RECV);
    REQUIRE(fi_cancel(&a.ep->fid, &buffer) == 0);
    assert_int_equal(next_of(a.cq).error.flags, FI_TAGGED | FI_RECV | FI_MULTI_RECV);
    post_tagged(a, buffer, &buffer);
    REQUIRE(fi_cancel(&a.ep->fid, &buffer) == 0);
    assert_int_equal(next_of(a.cq).error.flags, FI_TAGGED | FI_RECV); // one for a single message
}

void cancelled_behind_a_message(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    Buffer buffer(kLong);
    post(b, buffer);
    REQUIRE(again([&] { return fi_inject(a.ep, "one", 3, to_b); }, {b.cq}) == 0);
    const Entry one = next_of(b.cq);
    assert_int_equal(one.told.flags, FI_MSG | FI_RECV);
    REQUIRE(fi_cancel(&b.ep->fid, &buffer) == 0);
    const Entry gone = next_of(b.cq);
    assert_int_equal(gone.error.err, FI_ECANCELED);
    assert_int_equal(gone.error.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
}

// A buffer that a message is on its way into.
void begin_long(Rdm &a, Rdm &b, Buffer &buffer, const std::vector<std::byte> &bytes)
{
    const fi_addr_t to_b = to(a, b);
    post(b, buffer);
    REQUIRE(again([&] { return fi_send(a.ep, bytes.data(), bytes.size(), nullptr, to_b, nullptr); }, {a.cq, b.cq}) ==
            0);
    REQUIRE(no_entry(b.cq));
}

// It is told with the message, also where messages aren't.
void cancelled_under_a_message(void **)
{
    const std::vector<std::byte> bytes = pattern(kLong, 3);
    for (const std::uint64_t bind_flags : {0ULL, FI_SELECTIVE_COMPLETION}) {
        OwnDirectory directory;
        Rdm a({.single_copy = false});
        Rdm b({.bind_flags = bind_flags, .single_copy = false});
        Buffer buffer(2 * kLong);
        begin_long(a, b, buffer, bytes);
        REQUIRE(fi_cancel(&b.ep->fid, &buffer) == 0);
        assert_int_equal(fi_cancel(&b.ep->fid, &buffer), -FI_ENOENT);
        const Entry told = next_of(b.cq, {a.cq});
        assert_int_equal(told.error.err, 0);
        assert_ptr_equal(told.told.op_context, &buffer);
        assert_int_equal(told.told.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
        assert_memory_equal(buffer.bytes.data(), bytes.data(), kLong);
        REQUIRE(no_entry(b.cq));
    }
}

void its_sender_is_lost(void **)
{
    OwnDirectory directory;
    Rdm b({.single_copy = false});
    Buffer buffer(2 * kLong);
    const std::vector<std::byte> bytes = pattern(kLong, 5);
    {
        Rdm a({.single_copy = false});
        begin_long(a, b, buffer, bytes);
    }
    // What is left of the buffer goes on being posted.
    const Entry lost = next_of(b.cq);
    assert_int_equal(lost.error.err, FI_ECONNRESET);
    assert_int_equal(lost.error.flags, FI_MSG | FI_RECV);
    REQUIRE(fi_cancel(&b.ep->fid, &buffer) == 0);
    assert_int_equal(next_of(b.cq).error.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);

    {
        Rdm a({.single_copy = false});
        begin_long(a, b, buffer, bytes);
        REQUIRE(fi_cancel(&b.ep->fid, &buffer) == 0);
    }
    const Entry last = next_of(b.cq);
    assert_int_equal(last.error.err, FI_ECONNRESET);
    assert_int_equal(last.error.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
}

// FI_CLAIM takes one message, and with it the buffer is the program's again.
void for_a_claimed_message(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = to(a, b);
    Buffer buffer(4096);
    REQUIRE(again([&] { return fi_tinject(a.ep, "claimed", 7, to_b, 7); }, {b.cq}) == 0);
    Entry found;
    do {
        post_tagged(b, buffer, &found, FI_PEEK | FI_CLAIM);
        found = next_of(b.cq);
    } while (found.error.err == FI_ENOMSG);
    assert_int_equal(found.error.err, 0);
    post_tagged(b, buffer, &found, FI_CLAIM | FI_MULTI_RECV);
    const Entry told = next_of(b.cq);
    assert_int_equal(told.told.flags, FI_TAGGED | FI_RECV | FI_MULTI_RECV);
    assert_memory_equal(buffer.bytes.data(), "claimed", 7);
    assert_int_equal(fi_cancel(&b.ep->fid, &found), -FI_ENOENT);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(cancelled_before_anything), cmocka_unit_test(cancelled_behind_a_message),
        cmocka_unit_test(cancelled_under_a_message), cmocka_unit_test(its_sender_is_lost),
        cmocka_unit_test(for_a_claimed_message),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
