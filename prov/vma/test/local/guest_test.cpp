// SPDX-License-Identifier: BSD-2-Clause
// Guests, peers that may be other users', on the data path: the same bytes as of anybody, doorbells of their own, no
// memory but their segment's, and a sleep that no guest can spoil for another.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>

#include "local/queue.hpp"
#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;
using namespace vma::local;

Setup as_guests()
{
    Setup setup;
    setup.region = 65536;
    setup.guests = true;
    return setup;
}

// To an endpoint of the same queue as that of `side`, which the caller closes.
fid_ep *connect_guest(Side &side, Side &evil)
{
    fid_ep *const victim = side.open_endpoint(&side);
    assert_int_equal(fi_enable(victim), 0);
    assert_int_equal(fi_enable(evil.ep), 0);
    join(Endpoint::from(victim), evil.endpoint(), false, true);
    return victim;
}

Queue &queue(const Side &side)
{
    return queue_of(side.cq);
}

DoorbellPage &page_for_peer(const Side &side)
{
    static Mapping mapped;
    assert_int_equal(map_shared(side.endpoint().guest->memory_fd(), sizeof(DoorbellPage), mapped), 0);
    return *reinterpret_cast<DoorbellPage *>(mapped.data());
}

void send_tag(const Side &side, const void *bytes, std::size_t length, std::uint64_t data)
{
    assert_int_equal(fi_inject_writedata(side.ep, bytes, length, data, 0, 0, FI_VMA_REGION_KEY), 0);
}

void every_way_is_open_but_single_copy(void **)
{
    Pair pair(as_guests());
    Random random;
    std::vector<unsigned char> out(200'000);
    std::vector<unsigned char> in(out.size());
    random.fill(out.data(), out.size());
    for (const std::size_t length : {0UL, 1UL, 96UL, 97UL, 8192UL, 8193UL, 65536UL, out.size()}) {
        std::fill(in.begin(), in.end(), 0);
        assert_int_equal(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, nullptr), 0);
        assert_int_equal(fi_send(pair.a.ep, out.data(), length, nullptr, 0, nullptr), 0);
        // Both read in turn: a long message goes in pieces, as its sender sees room.
        fi_cq_data_entry got{};
        fi_cq_data_entry sent{};
        for (int both = 0; both != 3;) {
            both |= (both & 1) == 0 && fi_cq_read(pair.b.cq, &got, 1) == 1 ? 1 : 0;
            both |= (both & 2) == 0 && fi_cq_read(pair.a.cq, &sent, 1) == 1 ? 2 : 0;
        }
        assert_int_equal(got.len, length);
        assert_memory_equal(in.data(), out.data(), length);
    }
    for (const std::size_t length : {0UL, 1UL, 96UL, 4096UL, 65536UL}) {
        send_tag(pair.a, out.data(), length, length);
        assert_int_equal(next_entry(pair.b.cq).data, length);
        assert_memory_equal(pair.b.region(), out.data(), length);
    }
}

// With more endpoints than a queue looks at by itself, all of them ring.
void many_endpoints_ring_by_their_links_page(void **)
{
    Side a(as_guests());
    Side b(as_guests());
    assert_int_equal(fi_enable(a.ep), 0);
    assert_int_equal(fi_enable(b.ep), 0);
    std::vector<fid_ep *> from;
    std::vector<fid_ep *> to;
    constexpr std::uintptr_t kPairs = 200;
    for (std::uintptr_t i = 0; i < kPairs; ++i) {
        from.push_back(a.open_endpoint(nullptr));
        to.push_back(b.open_endpoint(reinterpret_cast<void *>(i)));
        assert_int_equal(fi_enable(from.back()), 0);
        assert_int_equal(fi_enable(to.back()), 0);
        const LinkPeer link{getpid(), false, 1000 + i % 3};
        join_one(Endpoint::from(from.back()), Endpoint::from(to.back()), link);
        join_one(Endpoint::from(to.back()), Endpoint::from(from.back()), link);
    }
    for (int round = 0; round < 5; ++round) {
        for (std::uintptr_t i = 0; i < kPairs; ++i)
            assert_int_equal(fi_inject_writedata(from[i], &i, sizeof i, i, 0, 0, FI_VMA_REGION_KEY), 0);
        std::vector<bool> seen(kPairs);
        for (std::uintptr_t i = 0; i < kPairs; ++i) {
            const fi_cq_data_entry entry = next_entry(b.cq);
            assert_int_equal(entry.data, reinterpret_cast<std::uintptr_t>(entry.op_context));
            assert_false(seen[entry.data]);
            seen[entry.data] = true;
        }
    }
    for (fid_ep *ep : from)
        assert_int_equal(fi_close(&ep->fid), 0);
    for (fid_ep *ep : to)
        assert_int_equal(fi_close(&ep->fid), 0);
    assert_false(queue(b).guests.any());
}

void no_page_is_the_queues_own(void **)
{
    Pair one(as_guests());
    EndpointOffer offer;
    int fds[kOfferFdCount];
    assert_int_equal(one.a.endpoint().make_offer(offer, fds, 77), 0);
    struct stat given {
    };
    struct stat own {
    };
    assert_int_equal(fstat(fds[kFdDoorbell], &given), 0);
    assert_int_equal(fstat(queue(one.a).doorbell.memory_fd(), &own), 0);
    assert_int_not_equal(given.st_ino, own.st_ino);
    assert_int_equal(fds[kFdDoorbell], fds[kFdTxDoorbell]);
    assert_int_equal(fds[kFdWake], fds[kFdTxWake]);
    assert_int_not_equal(fds[kFdWake], queue(one.a).doorbell.wake_fd());
}

// A thread of its own sleeps on the queue's descriptor for each of so many messages.
void sleep_through(Side &side, int messages)
{
    int fd = -1;
    assert_int_equal(fi_control(&side.cq->fid, FI_GETWAIT, &fd), 0);
    for (int i = 0; i < messages;) {
        fi_cq_data_entry entry{};
        if (fi_cq_read(side.cq, &entry, 1) == 1) {
            assert_int_equal(entry.data, i);
            ++i;
            continue;
        }
        if (!queue(side).arm_all())
            continue;
        pollfd wait{fd, POLLIN, 0};
        assert_int_equal(poll(&wait, 1, kPatience), 1);
    }
}

// With pauses, in which who waits for them may fall asleep.
void send_numbers(Side &side, int count)
{
    for (int i = 0; i < count; ++i) {
        while (fi_inject_writedata(side.ep, &i, sizeof i, static_cast<std::uint64_t>(i), 0, 0, FI_VMA_REGION_KEY) ==
               -FI_EAGAIN) {
            fi_cq_data_entry entry{};
            static_cast<void>(fi_cq_read(side.cq, &entry, 1));
        }
        if (i % 3 == 0)
            std::this_thread::yield();
    }
}

void a_sleeper_is_woken(void **)
{
    Pair pair(as_guests());
    constexpr int kMessages = 2000;
    std::thread sleeper([&pair] { sleep_through(pair.b, kMessages); });
    send_numbers(pair.a, kMessages);
    sleeper.join();
}

// Another guest of the same queue rings all the time, sets all bits, says what it likes in all the words of its page,
// and leaves its bell full.
void a_guest_spoils_nobodys_sleep(void **)
{
    Pair pair(as_guests());
    Side evil(as_guests());
    fid_ep *const victim = connect_guest(pair.b, evil);
    Mapping mapping;
    assert_int_equal(map_shared(Endpoint::from(victim).guest->memory_fd(), sizeof(DoorbellPage), mapping), 0);
    auto &page = *reinterpret_cast<DoorbellPage *>(mapping.data());
    const int bell = Endpoint::from(victim).guest->bell_fd();
    std::atomic<bool> over{false};
    std::thread spoiler([&] {
        Random random;
        while (!over) {
            for (auto &word : page.words)
                word = random();
            for (auto &word : page.summary)
                word = random();
            page.sleeping = random();
            page.wakes = random();
            char bytes[4096] = {};
            static_cast<void>(send(bell, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL));
            fcntl(bell, F_SETFL, 0); // its own end blocks: ours does not
        }
    });
    constexpr int kMessages = 500;
    std::thread sleeper([&pair] { sleep_through(pair.b, kMessages); });
    send_numbers(pair.a, kMessages);
    sleeper.join();
    over = true;
    spoiler.join();
    assert_int_equal(fi_close(&victim->fid), 0);
}

// Who rings for a guest never waits: its bell may be full, blocking, closed, or no socket of ours at all.
void no_bell_makes_us_wait(void **)
{
    Pair pair(as_guests());
    DoorbellPage &page = page_for_peer(pair.b);
    const int bell = pair.b.endpoint().guest->bell_fd();
    assert_int_equal(fcntl(bell, F_SETFL, 0), 0);
    char bytes[4096] = {};
    while (send(bell, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    for (std::uint64_t sleep = 1; sleep < 100; ++sleep) {
        page.sleeping = sleep; // "wake me, each time"
        std::uint64_t value = sleep;
        send_tag(pair.a, &value, sizeof value, sleep);
        assert_int_equal(next_entry(pair.b.cq).data, sleep);
    }
}

constexpr SlotOp kForbidden[] = {SlotOp::send_pull,   SlotOp::write_inline, SlotOp::write_bounce, SlotOp::write_note,
                                 SlotOp::read_bounce, SlotOp::read_note,    SlotOp::key_query};

// Not even well-formed ones, of a key that there is.
void a_guest_names_no_memory(void **)
{
    for (const SlotOp op : kForbidden) {
        Setup setup = as_guests();
        Pair pair(setup);
        char memory[64] = {};
        fid_mr *mr = nullptr;
        assert_int_equal(
            fi_mr_reg(pair.b.domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr, nullptr),
            0);
        auto &slots = pair.b.endpoint().receiver.slots;
        auto *const first = reinterpret_cast<Slot *>(reinterpret_cast<std::byte *>(&slots.control()) + kControlSize);
        const std::uint64_t words[] = {7, 1, std::uint64_t{1} << 32};
        std::memcpy(first->payload, words, sizeof words);
        first->addr = 0;
        first->word.store(std::uint64_t{1} << 32 | 9U << 16 | unsigned{kSlotWantAck} << 8 | static_cast<unsigned>(op));
        pair.b.endpoint().ring_self();
        fi_cq_data_entry entry{};
        for (int i = 0; i < 100 && !pair.b.endpoint().failing.load(); ++i)
            static_cast<void>(fi_cq_read(pair.b.cq, &entry, 1));
        assert_true(pair.b.endpoint().failing.load());
        assert_int_equal(memory[0], 0);
        assert_int_equal(fi_close(&mr->fid), 0);
    }
}

// Whatever it writes into the segment that we made, and into its own, at any time: it ends its connection at most, and
// another one of the same queue goes on.
void any_word_of_a_segment_may_change(void **)
{
    constexpr int kMutations = 200;
    Random random;
    for (int round = 0; round < 20; ++round) {
        Pair pair(as_guests());
        Side evil(as_guests());
        fid_ep *const victim = connect_guest(pair.b, evil);
        const Mapping &ours = Endpoint::from(victim).receiver.segment.mapping;
        const Mapping &its = evil.endpoint().receiver.segment.mapping;
        char in[100];
        static_cast<void>(fi_recv(victim, in, sizeof in, nullptr, 0, nullptr));
        for (int i = 0; i < kMutations; ++i) {
            const Mapping &where = random.below(2) == 0 ? ours : its;
            const std::size_t at = random.below(kSlotsSize / sizeof(std::uint64_t));
            std::uint64_t value = random();
            if (random.below(2) == 0) // what looks like something
                value = random.below(64) | random.below(200) << 16 | random.below(14) | random.below(70) << 32;
            reinterpret_cast<std::atomic<std::uint64_t> *>(where.data())[at] = value;
            static_cast<void>(
                fi_inject_writedata(evil.ep, &value, sizeof value, value, 0, random.below(65536), FI_VMA_REGION_KEY));
            static_cast<void>(fi_inject_writedata(victim, &value, sizeof value, value, 0, 0, FI_VMA_REGION_KEY));
            Endpoint::from(victim).ring_self();
            const auto tag = static_cast<std::uint64_t>(i);
            assert_int_equal(fi_inject_writedata(pair.a.ep, &i, sizeof i, tag, 0, 0, FI_VMA_REGION_KEY), 0);
            for (bool came = false; !came;) {
                fi_cq_data_entry entry{};
                fi_cq_err_entry error{};
                const ssize_t got = fi_cq_read(pair.b.cq, &entry, 1);
                if (got == -FI_EAVAIL)
                    assert_int_equal(fi_cq_readerr(pair.b.cq, &error, 0), 1);
                came = got == 1 && entry.data == tag && *reinterpret_cast<int *>(pair.b.region()) == i;
                static_cast<void>(fi_cq_read(evil.cq, &entry, 1));
            }
        }
        assert_int_equal(fi_close(&victim->fid), 0);
    }
}

void an_offer_brings_a_unix_socket(void **)
{
    Side a(as_guests());
    Side b(as_guests());
    assert_int_equal(fi_enable(a.ep), 0);
    assert_int_equal(fi_enable(b.ep), 0);
    const LinkPeer peer{getpid(), false, 5};
    EndpointOffer offer;
    int fds[kOfferFdCount];
    assert_int_equal(b.endpoint().make_offer(offer, fds, peer.guest_link), 0);
    const auto attempt = [&](int wake) {
        vma::core::UniqueFd copies[kOfferFdCount];
        for (unsigned i = 0; i < kOfferFdCount; ++i)
            copies[i] = vma::core::duplicate_fd(i == kFdWake || i == kFdTxWake ? wake : fds[i]);
        return attach(a.endpoint(), offer, copies, peer);
    };
    const vma::core::UniqueFd inet(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    assert_int_equal(attempt(queue(b).doorbell.wake_fd()), -FI_EINVAL); // an eventfd
    assert_int_equal(attempt(inet.get()), -FI_EINVAL);
    assert_int_equal(attempt(fds[kFdWake]), 0);
}

// Pages of others may be missing when they are touched, sealed or not.
void only_memory_of_tmpfs_is_mapped(void **)
{
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    const vma::core::UniqueFd huge(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (!huge) // a kernel without them
        return;
    assert_int_equal(ftruncate(huge.get(), kHuge), 0);
    assert_int_equal(fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    Mapping mapping;
    assert_int_equal(map_shared(huge.get(), kHuge, mapping), -FI_EINVAL);
}

// Two queues would need two pages, and who sleeps on a bare eventfd hears no bell.
void where_no_bell_is_heard_no_guest_comes(void **)
{
    Setup two = as_guests();
    two.two_queues = true;
    Side side(two);
    assert_int_equal(fi_enable(side.ep), 0);
    EndpointOffer offer;
    int fds[kOfferFdCount];
    assert_int_equal(side.endpoint().make_offer(offer, fds, 1), -FI_EOPNOTSUPP);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_way_is_open_but_single_copy),
        cmocka_unit_test(many_endpoints_ring_by_their_links_page),
        cmocka_unit_test(no_page_is_the_queues_own),
        cmocka_unit_test(a_sleeper_is_woken),
        cmocka_unit_test(a_guest_spoils_nobodys_sleep),
        cmocka_unit_test(no_bell_makes_us_wait),
        cmocka_unit_test(a_guest_names_no_memory),
        cmocka_unit_test(any_word_of_a_segment_may_change),
        cmocka_unit_test(an_offer_brings_a_unix_socket),
        cmocka_unit_test(only_memory_of_tmpfs_is_mapped),
        cmocka_unit_test(where_no_bell_is_heard_no_guest_comes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
