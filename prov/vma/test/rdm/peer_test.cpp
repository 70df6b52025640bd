// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams as the peer of an owner: who matches is the owner, what ends is told to it, and each of its
// entries comes back once. In all four layouts that libfabric's structures have had.
#include "prov/vma/test/rdm/owner.hpp"

#include <algorithm>
#include <thread>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kTag = 0x1234'0000'5678;
constexpr fi_addr_t kUserId = 0x77'0000'0042;
// One record, several, an offer (or a long stream).
constexpr std::size_t kLengths[] = {0, 1, 24, 4096, 8192, 8193, 65536, 131072, 131073, 1048577};

template <typename Age, template <typename> typename Case> void in_age(void **)
{
    Case<Age>::run();
}

ssize_t send(Rdm &a, fi_addr_t peer, const std::vector<std::byte> &bytes, bool tagged, std::uint64_t data,
             fid_cq *other)
{
    return again(
        [&] {
            return tagged ? fi_tsenddata(a.ep, bytes.data(), bytes.size(), nullptr, data, peer, kTag, &a)
                          : fi_senddata(a.ep, bytes.data(), bytes.size(), nullptr, data, peer, &a);
        },
        {a.cq, other});
}

template <typename Age> struct EveryLength {
    static void one(Rdm &a, PeerRdm<Age> &b, std::size_t length, bool tagged, bool posted_first)
    {
        const fi_addr_t to_b = a.insert(b.name);
        const std::vector<std::byte> bytes = pattern(length, length);
        std::vector<std::byte> got(length + 16, std::byte{0x55});
        const std::size_t half = got.size() / 2;
        const std::vector<iovec> iov{{got.data(), half}, {got.data() + half, got.size() - half}};
        const auto post = [&] { b.owner.receive(tagged, iov, FI_ADDR_UNSPEC, tagged ? kTag : 0, 0, &got); };
        if (posted_first)
            post();
        REQUIRE(send(a, to_b, bytes, tagged, length + 1, b.cq) == 0);
        if (!posted_first) {
            b.wait_for_unexpected(1, {a.cq});
            const auto &entry = b.owner.unexpected.front()->entry;
            REQUIRE(entry.size == length && entry.addr == kUserId && entry.tag == (tagged ? kTag : 0));
            if constexpr (requires { entry.cq_data; })
                REQUIRE(entry.cq_data == length + 1 && (entry.flags & FI_REMOTE_CQ_DATA) != 0);
            post();
        }
        const Entry end = b.next({a.cq});
        REQUIRE(end.error.err == 0 && end.told.op_context == &got && end.told.len == length);
        REQUIRE(end.told.flags == (FI_RECV | FI_REMOTE_CQ_DATA | (tagged ? FI_TAGGED : FI_MSG)));
        REQUIRE(end.told.data == length + 1 && end.told.buf == got.data() && end.source == kUserId);
        REQUIRE(!tagged || end.told.tag == kTag);
        REQUIRE(std::equal(bytes.begin(), bytes.end(), got.begin()) && got[length] == std::byte{0x55});
        REQUIRE(next_of(a.cq, {b.cq}).told.op_context == &a);
        REQUIRE(b.owner.live == 0 && b.owner.started == (posted_first ? 0 : 1));
        b.owner.started = 0;
    }
    static void run_with(const RdmSetup &setup)
    {
        OwnDirectory directory;
        Rdm a(setup);
        PeerRdm<Age> b(setup);
        b.insert(a.name, kUserId);
        for (const std::size_t length : kLengths) {
            for (const bool tagged : {true, false}) {
                for (const bool posted_first : {true, false})
                    one(a, b, length, tagged, posted_first);
            }
        }
    }
    static void run()
    {
        run_with({});
        run_with({.single_copy = false});
    }
};

template <typename Age> struct WhatIsSent {
    static void run()
    {
        OwnDirectory directory;
        PeerRdm<Age> a;
        Rdm b;
        const fi_addr_t to_b = a.insert(b.name, kUserId);
        for (const std::size_t length : kLengths) {
            const std::vector<std::byte> bytes = pattern(length, 3);
            std::vector<std::byte> got(length);
            REQUIRE(fi_trecv(b.ep, got.data(), length, nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr) == 0);
            const auto call = [&] { return fi_tsend(a.ep, bytes.data(), length, nullptr, to_b, kTag, &got); };
            REQUIRE(again(call, {a.cq, b.cq}) == 0);
            const Entry end = a.next({b.cq});
            REQUIRE(end.error.err == 0 && end.told.op_context == &got && end.told.flags == (FI_SEND | FI_TAGGED));
            REQUIRE(next_of(b.cq, {a.cq}).error.err == 0 && got == bytes);
        }
        REQUIRE(fi_tinject(a.ep, "x", 1, to_b, 1) == 0);
        REQUIRE(a.nothing());
        std::uint64_t cell = 4711;
        fid_mr *const mr = b.expose(&cell, sizeof cell, 9);
        std::uint64_t value = 0;
        REQUIRE(again([&] { return fi_read(a.ep, &value, 8, nullptr, to_b, 0, 9, &value); }, {a.cq, b.cq}) == 0);
        const Entry read = a.next({b.cq});
        REQUIRE(read.told.op_context == &value && read.told.flags == (FI_READ | FI_RMA) && value == 4711);
        REQUIRE(again([&] { return fi_read(a.ep, &value, 8, nullptr, to_b, 0, 8, &value); }, {a.cq, b.cq}) == 0);
        const Entry failed = a.next({b.cq});
        REQUIRE(failed.error.err != 0 && failed.error.op_context == &value);
        REQUIRE(fi_close(&mr->fid) == 0);
    }
};

template <typename Age> struct TooLong {
    static void run()
    {
        OwnDirectory directory;
        Rdm a;
        PeerRdm<Age> b;
        const fi_addr_t to_b = a.insert(b.name);
        for (const std::size_t length : {std::size_t{100}, std::size_t{20000}, std::size_t{200000}}) {
            for (const bool posted_first : {true, false}) {
                const std::vector<std::byte> bytes = pattern(length, 1);
                std::vector<std::byte> got(80, std::byte{0x55});
                const auto post = [&] { b.owner.receive(true, {{got.data(), 64}}, FI_ADDR_UNSPEC, kTag, 0, &got); };
                if (posted_first)
                    post();
                REQUIRE(send(a, to_b, bytes, true, 1, b.cq) == 0);
                if (!posted_first) {
                    b.wait_for_unexpected(1, {a.cq});
                    post();
                }
                const Entry end = b.next({a.cq});
                REQUIRE(end.error.err == FI_ETRUNC && end.error.op_context == &got && end.error.tag == kTag);
                REQUIRE(end.error.len == 64 && end.error.olen == length - 64);
                REQUIRE(std::equal(got.begin(), got.begin() + 64, bytes.begin()) && got[64] == std::byte{0x55});
                REQUIRE(next_of(a.cq, {b.cq}).error.err == 0);
                REQUIRE(b.owner.live == 0);
            }
        }
        // More buffers than an endpoint takes.
        char byte = 0;
        b.owner.receive(true, {{&byte, 1}}, FI_ADDR_UNSPEC, kTag, 0, &byte);
        b.owner.posted.front()->entry.count = ofi::kIovLimit + 1;
        REQUIRE(fi_tinject(a.ep, "x", 1, to_b, kTag) == 0);
        const Entry end = b.next();
        REQUIRE(end.error.err != 0 && end.error.op_context == &byte && end.error.tag == kTag);
    }
};

// Also while it is still coming, and of one that its sender waits for.
template <typename Age> struct Discarded {
    static void run()
    {
        run_with({});
        run_with({.single_copy = false});
    }
    static void run_with(const RdmSetup &setup)
    {
        OwnDirectory directory;
        Rdm a(setup);
        PeerRdm<Age> b(setup);
        const fi_addr_t to_b = a.insert(b.name);
        for (const std::size_t length : kLengths) {
            const std::vector<std::byte> bytes = pattern(length, 5);
            REQUIRE(send(a, to_b, bytes, true, 1, b.cq) == 0);
            b.wait_for_unexpected(1, {a.cq});
            b.owner.discard();
            REQUIRE(next_of(a.cq, {b.cq}).error.err == 0);
            REQUIRE(b.nothing());
            char got[4] = {};
            b.owner.receive(true, {{got, 4}}, FI_ADDR_UNSPEC, kTag, 0, got);
            REQUIRE(again([&] { return fi_tinject(a.ep, "next", 4, to_b, kTag); }, {a.cq, b.cq}) == 0);
            REQUIRE(b.next({a.cq}).told.op_context == got && std::memcmp(got, "next", 4) == 0);
        }
        REQUIRE(b.owner.live == 0);
    }
};

// Long messages are announced there, and sent when the owner has a receive.
template <typename Age> struct BetweenHosts {
    static void run()
    {
        EveryLength<Age>::run_with({.network = true});
        Discarded<Age>::run_with({.network = true});
    }
};

// The oldest that fits, from whom was asked for; and what waits with the owner keeps nobody's ring.
template <typename Age> struct InOrder {
    static void run()
    {
        OwnDirectory directory;
        Rdm a;
        Rdm c;
        PeerRdm<Age> b;
        const fi_addr_t a_to_b = a.insert(b.name);
        const fi_addr_t c_to_b = c.insert(b.name);
        b.insert(a.name, 5);
        b.insert(c.name, 6);
        const std::vector<std::byte> bytes = pattern(300000, 3);
        REQUIRE(fi_tinject(a.ep, "1", 1, a_to_b, kTag) == 0);
        REQUIRE(send(a, a_to_b, bytes, true, 1, b.cq) == 0);
        REQUIRE(again([&] { return fi_tinject(a.ep, "3", 1, a_to_b, kTag); }, {a.cq, b.cq}) == 0);
        b.wait_for_unexpected(3);
        REQUIRE(fi_tinject(c.ep, "c", 1, c_to_b, kTag) == 0);
        b.wait_for_unexpected(4);
        char from_c = 0;
        char first = 0;
        char third = 0;
        std::vector<std::byte> second(bytes.size());
        b.owner.receive(true, {{&from_c, 1}}, 6, kTag, 0, &from_c);
        b.owner.receive(true, {{&first, 1}}, 5, kTag, 0, &first);
        b.owner.receive(true, {{second.data(), second.size()}}, FI_ADDR_UNSPEC, 0, ~std::uint64_t{0}, &second);
        b.owner.receive(true, {{&third, 1}}, 5, kTag, 0, &third);
        void *const contexts[] = {&from_c, &first, &second, &third};
        for (void *const context : contexts)
            REQUIRE(b.next({a.cq}).told.op_context == context);
        REQUIRE(from_c == 'c' && first == '1' && third == '3' && second == bytes);
    }
};

// A receive that is posted in the same moment: the owner starts the message before its queue_tag() is back.
template <typename Age> struct FromWithin {
    static void run()
    {
        for (const fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN}) {
            OwnDirectory directory;
            Rdm a;
            PeerRdm<Age> b({.threading = threading});
            const fi_addr_t to_b = a.insert(b.name);
            for (const std::size_t length : kLengths) {
                for (const bool dropped : {false, true}) {
                    const std::vector<std::byte> bytes = pattern(length, 8);
                    std::vector<std::byte> got(length);
                    bool called = false;
                    b.owner.in_a_call = [&] {
                        called = true;
                        if (dropped)
                            b.owner.discard();
                        else
                            b.owner.receive(true, {{got.data(), length}}, FI_ADDR_UNSPEC, kTag, 0, &got);
                    };
                    REQUIRE(send(a, to_b, bytes, true, 1, b.cq) == 0);
                    REQUIRE(dropped || b.next({a.cq}).told.op_context == &got);
                    b.progress_until([&] { return called; });
                    REQUIRE(next_of(a.cq, {b.cq}).error.err == 0);
                    REQUIRE((dropped || got == bytes) && b.owner.live == 0);
                }
            }
            REQUIRE(b.nothing());
        }
    }
};

// What an owner has no memory for comes again; what it never takes is dropped, and nobody is held up.
template <typename Age> struct Refused {
    static void run()
    {
        OwnDirectory directory;
        Rdm a;
        PeerRdm<Age> b;
        const fi_addr_t to_b = a.insert(b.name);
        for (const std::size_t length : {std::size_t{5}, std::size_t{50000}, std::size_t{500000}}) {
            const std::vector<std::byte> bytes = pattern(length, 2);
            std::vector<std::byte> got(length);
            const auto receive_one = [&] {
                b.owner.receive(true, {{got.data(), length}}, FI_ADDR_UNSPEC, kTag, 0, &got);
                REQUIRE(send(a, to_b, bytes, true, 1, b.cq) == 0);
                REQUIRE(b.next({a.cq}).error.err == 0 && got == bytes);
                REQUIRE(next_of(a.cq, {b.cq}).error.err == 0);
            };
            b.owner.get_answer = -FI_ENOMEM;
            b.owner.get_refusals = 5;
            receive_one();
            REQUIRE(b.owner.get_refusals == 0);

            const bool answered = length > rdm::kEager;
            b.owner.get_answer = -FI_ENOSYS;
            b.owner.get_refusals = 1;
            REQUIRE(send(a, to_b, bytes, false, 1, b.cq) == 0);
            REQUIRE(next_of(a.cq, {b.cq}).error.err == (answered ? FI_ENOSYS : 0));
            receive_one();

            b.owner.queue_answer = -FI_EINVAL;
            b.owner.queue_refusals = 1;
            REQUIRE(send(a, to_b, bytes, true, 1, b.cq) == 0);
            REQUIRE(next_of(a.cq, {b.cq}).error.err == (answered ? FI_EINVAL : 0));
            b.progress_until([&] { return b.owner.queue_refusals == 0; });
            receive_one();
            REQUIRE(b.owner.live == 0 && b.nothing());
        }
    }
};

// Who isn't in the vector yet has no name; once it is, the owner hears of it, before the call returns.
template <typename Age> struct NamedLater {
    static void run()
    {
        OwnDirectory directory;
        Rdm a;
        Rdm c;
        PeerRdm<Age> b;
        const fi_addr_t a_to_b = a.insert(b.name);
        const fi_addr_t c_to_b = c.insert(b.name);
        for (int i = 0; i < 3; ++i) {
            REQUIRE(fi_tinject(a.ep, "a", 1, a_to_b, kTag) == 0);
            REQUIRE(fi_tinject(c.ep, "c", 1, c_to_b, kTag) == 0);
        }
        b.wait_for_unexpected(6);
        for (const auto *slot : b.owner.unexpected)
            REQUIRE(slot->entry.addr == FI_ADDR_UNSPEC);
        // One of another peer of the owner's, as lnx asks for those too.
        typename Owner<Age>::Slot other;
        other.entry.addr = FI_ADDR_UNSPEC;
        other.entry.peer_context = &other;
        b.owner.unexpected.push_front(&other);
        b.insert(c.name, kUserId);
        b.owner.unexpected.pop_front();
        REQUIRE(other.entry.addr == FI_ADDR_UNSPEC);
        if constexpr (Age::version >= FI_VERSION(1, 19)) {
            for (int i = 0; i < 3; ++i) {
                char got = 0;
                b.owner.receive(true, {{&got, 1}}, kUserId, kTag, 0, &got);
                const Entry end = b.next();
                REQUIRE(end.told.op_context == &got && end.source == kUserId && got == 'c');
            }
            for (const auto *slot : b.owner.unexpected)
                REQUIRE(slot->entry.addr == FI_ADDR_UNSPEC);
        }
        // What is left is closed with the endpoint.
    }
};

// With a lock of the owner's, as fi_peer(3) wants it: around what makes progress, and around what starts.
template <typename Age> struct ByThreads {
    static void run()
    {
        constexpr std::uint64_t kMessages = 20000;
        OwnDirectory directory;
        PeerRdm<Age> b;
        std::mutex lock;
        std::uint64_t got = 0;
        std::vector<std::uint64_t> cells(kMessages);
        std::thread reader([&] {
            for (std::uint64_t i = 0; got < kMessages; ++i) {
                Entry entry;
                {
                    const std::lock_guard guard(lock);
                    b.progress();
                }
                while (b.owner.queue.take(entry)) {
                    REQUIRE(entry.error.err == 0 && entry.told.op_context == &cells[got]);
                    REQUIRE(cells[got] == got);
                    ++got;
                }
            }
        });
        std::thread poster([&] {
            for (std::uint64_t &cell : cells) {
                const std::lock_guard guard(lock);
                b.owner.receive(true, {{&cell, sizeof cell}}, FI_ADDR_UNSPEC, kTag, 0, &cell);
            }
        });
        Rdm a;
        const fi_addr_t to_b = a.insert(b.name);
        for (std::uint64_t i = 0; i < kMessages; ++i)
            REQUIRE(again([&] { return fi_tinject(a.ep, &i, sizeof i, to_b, kTag); }, {a.cq}) == 0);
        poster.join();
        reader.join();
    }
};

} // namespace

#define IN_EACH_AGE(name)                                                                                              \
    cmocka_unit_test((in_age<Age17, name>)), cmocka_unit_test((in_age<Age19, name>)),                                  \
        cmocka_unit_test((in_age<Age20, name>)), cmocka_unit_test((in_age<Age23, name>))

int main()
{
    const CMUnitTest tests[] = {
        IN_EACH_AGE(EveryLength), IN_EACH_AGE(WhatIsSent),   IN_EACH_AGE(TooLong), IN_EACH_AGE(Discarded),
        IN_EACH_AGE(InOrder),     IN_EACH_AGE(FromWithin),   IN_EACH_AGE(Refused), IN_EACH_AGE(NamedLater),
        IN_EACH_AGE(ByThreads),   IN_EACH_AGE(BetweenHosts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
