// SPDX-License-Identifier: BSD-2-Clause
// Peers that lie, stop in the middle, or die: nothing of ours is read or written outside of its bounds, nothing hangs,
// and what was published before is still delivered. A liar writes its slots straight into the shared memory.
#include "fabtests/unit.hpp"

#include <csignal>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;
using namespace vma::local;

Setup usual()
{
    Setup setup;
    setup.region = 8192;
    return setup;
}

// What the peer of `side` can write to.
Control &control_of(Side &side)
{
    return side.endpoint().receiver.slots.control();
}
Slot *slots_of(Side &side)
{
    return reinterpret_cast<Slot *>(reinterpret_cast<std::byte *>(&control_of(side)) + kControlSize);
}

// Publishes slot number `position` of a fresh connection.
void forge(Side &target, std::uint32_t position, unsigned op, unsigned flags, unsigned length, std::uint64_t addr,
           const void *payload, std::size_t payload_length)
{
    Slot &slot = slots_of(target)[position % kSlotCount];
    if (payload_length)
        std::memcpy(slot.payload, payload, payload_length);
    slot.addr = addr;
    slot.data = 0x1234;
    slot.word.store(static_cast<std::uint64_t>(position + 1) << 32 | static_cast<std::uint64_t>(length) << 16 |
                    flags << 8 | op);
    target.endpoint().ring_self();
}

// After a lie the connection is over: receives are flushed, calls fail, nothing is consumed any more.
void expect_end(Pair &pair, const char *what)
{
    bool flushed = false;
    for (int i = 0; i < 100 && !flushed; ++i) {
        fi_cq_data_entry entry{};
        const ssize_t got = fi_cq_read(pair.b.cq, &entry, 1);
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            REQUIRE(fi_cq_readerr(pair.b.cq, &error, 0) == 1);
            flushed = true;
        }
    }
    if (!flushed)
        print_error("accepted: %s\n", what);
    assert_true(flushed);
    assert_true(pair.b.endpoint().failing.load());
    assert_int_equal(fi_inject(pair.b.ep, "x", 1, 0), -FI_ENOTCONN);
}

struct Lie {
    const char *what;
    SlotOp op;
    unsigned flags;
    unsigned length;
    std::uint64_t addr;
    std::uint64_t words[6]; // of the payload
};

constexpr std::uint64_t pack(std::uint32_t low, std::uint32_t high)
{
    return low | static_cast<std::uint64_t>(high) << 32;
}

constexpr Lie kLies[] = {
    {"no operation", SlotOp::none, 0, 0, 0, {}},
    {"unknown operation", SlotOp::count, 0, 0, 0, {}},
    {"operation 255", static_cast<SlotOp>(255), 0, 0, 0, {}},
    {"unknown flag", SlotOp::send_inline, 8, 1, 0, {}},
    {"inline message too long", SlotOp::send_inline, 0, 105, 0, {}},
    {"inline message far too long", SlotOp::send_inline, 0, 65535, 0, {}},
    {"region write too long", SlotOp::region_inline, kSlotData, 105, 0, {}},
    {"region write at the end", SlotOp::region_inline, kSlotData, 1, 8192, {}},
    {"region write over the end", SlotOp::region_inline, kSlotData, 100, 8100, {}},
    {"region write behind", SlotOp::region_inline, kSlotData, 1, UINT64_MAX, {}},
    {"region write without data behind", SlotOp::region_inline, 0, 1, UINT64_MAX - 50, {}},
    {"direct write too long", SlotOp::region_direct, kSlotData, 0, 0, {8193}},
    {"direct write of everything", SlotOp::region_direct, kSlotData, 0, 1, {UINT64_MAX}},
    {"bounce too long", SlotOp::send_bounce, 0, 0, 0, {pack(0, kBounceChunk + 1)}},
    {"bounce over the end", SlotOp::send_bounce, 0, 0, 0, {pack(kBounceSize - 10, 11)}},
    {"bounce offset behind", SlotOp::send_bounce, 0, 0, 0, {pack(0xffffffff, 1)}},
    {"segment too long", SlotOp::send_segment, 0, 0, 0, {100000, 0, pack(0, kBounceChunk + 1)}},
    {"segment over the end", SlotOp::send_segment, 0, 0, 0, {100000, 0, pack(kBounceSize, 1)}},
    {"segment from the middle", SlotOp::send_segment, 0, 0, 0, {100000, 5000, pack(0, 10)}},
    {"segment longer than its message", SlotOp::send_segment, kSlotLast, 0, 0, {10, 0, pack(0, 20)}},
    {"last segment too early", SlotOp::send_segment, kSlotLast, 0, 0, {100, 0, pack(0, 20)}},
    {"last segment not marked", SlotOp::send_segment, 0, 0, 0, {20, 0, pack(0, 20)}},
    {"pull without acknowledgement", SlotOp::send_pull, 0, 0, 0, {0, 0}},
    {"pull of too many", SlotOp::send_pull, kSlotWantAck, 0, 0, {0, 5}},
    {"pull with a wrong sum", SlotOp::send_pull, kSlotWantAck, 0, 0, {10, 1, 4096, 11}},
    {"pull that overflows", SlotOp::send_pull, kSlotWantAck, 0, 0, {10, 2, 4096, UINT64_MAX, 4096, 11}},
    {"inline write too long", SlotOp::write_inline, 0, 97, 0, {1}},
    {"inline write without a key", SlotOp::write_inline, 0, 8, 0, {77}},
    {"bounce write too long", SlotOp::write_bounce, 0, 0, 0, {1, 1, pack(0, kBounceChunk + 1)}},
    {"bounce write over the end", SlotOp::write_bounce, 0, 0, 0, {1, 1, pack(kBounceSize - 1, 2)}},
    {"bounce read over the end", SlotOp::read_bounce, kSlotWantAck, 0, 0, {1, 1, pack(kBounceSize - 1, 2)}},
    {"bounce read without acknowledgement", SlotOp::read_bounce, 0, 0, 0, {1, 1, pack(0, 2)}},
    {"key query without acknowledgement", SlotOp::key_query, 0, 0, 0, {1}},
};

void every_lie_ends_the_connection(void **)
{
    for (const Lie &lie : kLies) {
        Pair pair(usual());
        char in[100];
        assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr), 0);
        forge(pair.b, 0, static_cast<unsigned>(lie.op), lie.flags, lie.length, lie.addr, lie.words, sizeof lie.words);
        expect_end(pair, lie.what);
    }
}

// Random slots: whatever they say, we live, and our guarded buffer is as it was but for what was received into it.
void random_slots(void **)
{
    Random random;
    for (int round = 0; round < 400; ++round) {
        Setup setup = usual();
        setup.cma = random.below(2) != 0;
        Pair pair(setup);
        char in[64] = {};
        for (int i = 0; i < 20; ++i)
            assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr), 0);
        bool alive = true;
        for (std::uint32_t position = 0; position < 200 && alive; ++position) {
            std::uint64_t words[13];
            for (std::uint64_t &word : words) {
                word = random();
                if (random.below(2))
                    word = random.below(100);
                else if (random.below(3))
                    word &= 0x00003fff00003fff;
            }
            const std::uint64_t addr = random.below(2) ? random() : random.below(9000);
            forge(pair.b, position, static_cast<unsigned>(1 + random.below(static_cast<std::size_t>(SlotOp::count))),
                  static_cast<unsigned>(random.below(8)), static_cast<unsigned>(random.below(110)), addr, words,
                  sizeof words);
            for (int i = 0; i < 3; ++i) {
                fi_cq_data_entry entries[4];
                if (fi_cq_read(pair.b.cq, entries, 4) == -FI_EAVAIL) {
                    fi_cq_err_entry error{};
                    (void)fi_cq_readerr(pair.b.cq, &error, 0);
                }
            }
            alive = !pair.b.endpoint().failing.load();
            if (alive && control_of(pair.b).head.load() != position + 1)
                break; // waits for a receive
        }
    }
}

void a_reader_with_a_false_index(void **)
{
    for (const std::uint32_t lie : {11U, 1000U, 0xffffffffU}) {
        Pair pair(usual());
        char in[8];
        assert_int_equal(fi_recv(pair.a.ep, in, 8, nullptr, 0, nullptr), 0);
        for (int i = 0; i < 10; ++i)
            assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
        control_of(pair.b).head.store(lie);
        (void)pair.a.ep->ops->tx_size_left(pair.a.ep);
        assert_int_equal(next_error(pair.a.cq).err, FI_ECANCELED);
        assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), -FI_ENOTCONN);
    }
}

void false_answers(void **)
{
    // A key reply with more pieces than there can be.
    Pair pair(usual());
    char buffer[8] = {};
    assert_int_equal(fi_write(pair.a.ep, buffer, 8, nullptr, 0, 0, 1, buffer), 0);
    KeyReply reply{};
    reply.count = 1000;
    std::memcpy(slots_of(pair.b)[0].payload, &reply, sizeof reply);
    control_of(pair.b).head.store(1);
    assert_int_equal(next_error(pair.a.cq).err, FI_EIO);
    // An error number out of range.
    Pair other(usual());
    std::vector<char> out(100'000);
    assert_int_equal(fi_send(other.a.ep, out.data(), out.size(), nullptr, 0, nullptr), 0);
    const Result result{-12345};
    std::memcpy(slots_of(other.b)[0].payload, &result, sizeof result);
    control_of(other.b).head.store(1);
    assert_int_equal(next_error(other.a.cq).err, FI_EIO);
}

void false_offers(void **)
{
    Side a(usual());
    Side b(usual());
    assert_int_equal(fi_enable(a.ep), 0);
    assert_int_equal(fi_enable(b.ep), 0);
    const auto attempt = [&](auto &&change) {
        EndpointOffer offer;
        int fds[kOfferFdCount];
        vma::core::UniqueFd copies[kOfferFdCount];
        REQUIRE(b.endpoint().make_offer(offer, fds, 0) == 0);
        for (unsigned i = 0; i < kOfferFdCount; ++i)
            copies[i] = vma::core::duplicate_fd(fds[i]);
        change(offer, copies);
        return attach(a.endpoint(), offer, copies, {getpid(), true, 0});
    };
    using Fds = vma::core::UniqueFd *;
    const auto unsealed = [](std::size_t bytes) {
        const int fd = memfd_create("unsealed", MFD_CLOEXEC);
        REQUIRE(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
        return vma::core::UniqueFd(fd);
    };
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { ++offer.version; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { ++offer.slot_count; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.slot_count = 0; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.segment_size += 4096; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.segment_size = 100; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.segment_size = UINT64_MAX; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.bounce_offset = 0; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.bounce_len *= 2; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.region_offset += 8; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.region_len = 8193; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.region_len = UINT64_MAX; }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &offer, Fds) { offer.doorbell_bit = kDoorbellBits; }), -FI_EINVAL);
    assert_int_equal(attempt([&](EndpointOffer &offer, Fds fds) { fds[kFdSegment] = unsealed(offer.segment_size); }),
                     -FI_EINVAL);
    assert_int_equal(attempt([&](EndpointOffer &, Fds fds) { fds[kFdDoorbell] = unsealed(sizeof(DoorbellPage)); }),
                     -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &, Fds fds) {
                         int ends[2];
                         REQUIRE(pipe(ends) == 0);
                         close(ends[0]); // writing to the other end would kill us
                         fds[kFdWake] = vma::core::UniqueFd(ends[1]);
                     }),
                     -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &, Fds fds) { fds[kFdTxWake] = vma::core::UniqueFd(); }), -FI_EINVAL);
    assert_int_equal(attempt([](EndpointOffer &, Fds) {}), 0);
    assert_int_equal(attempt([](EndpointOffer &, Fds) {}), -FI_EOPBADSTATE);
}

// A memfd above RLIMIT_FSIZE would end the program with SIGXFSZ.
void a_file_size_limit_is_an_error(void **)
{
    const pid_t child = fork();
    if (child == 0) {
        Side side(usual());
        const rlimit limit{65536, 65536};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        REQUIRE(fi_enable(side.ep) == -FI_ENOSPC);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

void what_was_published_survives_the_end(void **)
{
    Pair pair(usual());
    int in[5] = {};
    for (int i = 0; i < 5; ++i)
        assert_int_equal(fi_recv(pair.b.ep, &in[i], sizeof in[i], nullptr, 0, &in[i]), 0);
    for (int i = 1; i <= 3; ++i)
        assert_int_equal(fi_inject(pair.a.ep, &i, sizeof i, 0), 0);
    pair.b.endpoint().on_peer_shutdown();
    pair.b.endpoint().on_peer_shutdown(); // twice does no harm
    for (int i = 0; i < 3; ++i) {
        assert_ptr_equal(next_entry(pair.b.cq).op_context, &in[i]);
        assert_int_equal(in[i], i + 1);
    }
    for (int i = 3; i < 5; ++i) {
        const fi_cq_err_entry error = next_error(pair.b.cq);
        assert_int_equal(error.err, FI_ECANCELED);
        assert_ptr_equal(error.op_context, &in[i]);
    }
    assert_true(no_entry(pair.b.cq));
}

void unexpected_messages_survive_the_end(void **)
{
    Pair pair(usual());
    for (int i = 1; i <= 3; ++i)
        assert_int_equal(fi_inject(pair.a.ep, &i, sizeof i, 0), 0);
    assert_true(no_entry(pair.b.cq));
    pair.b.endpoint().on_peer_shutdown();
    for (int i = 1; i <= 3; ++i) {
        int in = 0;
        assert_int_equal(fi_recv(pair.b.ep, &in, sizeof in, nullptr, 0, nullptr), 0);
        (void)next_entry(pair.b.cq);
        assert_int_equal(in, i);
    }
}

void operations_under_way_end_with_errors(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup = usual();
        setup.cma = cma;
        Pair pair(setup);
        std::vector<char> out(500'000);
        int contexts[3];
        for (int &context : contexts)
            assert_int_equal(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &context), 0);
        pair.a.endpoint().on_peer_shutdown();
        for (int &context : contexts) {
            const fi_cq_err_entry error = next_error(pair.a.cq);
            assert_int_equal(error.err, FI_ECONNRESET);
            assert_ptr_equal(error.op_context, &context);
        }
        assert_true(no_entry(pair.a.cq));
        assert_int_equal(fi_send(pair.a.ep, out.data(), 1, nullptr, 0, nullptr), -FI_ENOTCONN);
    }
}

// An entry of an injected one has no context, which a program that has not asked for silence need not expect.
void injected_ones_under_way_end_in_silence(void **)
{
    for (const bool silent : {false, true}) {
        Setup setup = usual();
        setup.bind_flags = silent ? FI_SELECTIVE_COMPLETION : 0;
        Pair pair(setup);
        std::vector<char> out(500'000);
        assert_int_equal(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &out), 0);
        assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
        pair.a.endpoint().on_peer_shutdown();
        if (silent) {
            assert_int_equal(next_error(pair.a.cq).err, FI_ECONNRESET);
            assert_int_equal(next_error(pair.a.cq).err, FI_ECONNRESET);
        } else {
            assert_ptr_equal(next_error(pair.a.cq).op_context, &out);
        }
        assert_true(no_entry(pair.a.cq));
    }
}

// FI_THREAD_DOMAIN switches the locks off, but the event queue, which is no object of the domain, is read by a thread
// of its own: what it learns must reach the endpoint without a race.
void the_end_in_a_domain_without_locks(void **)
{
    for (int round = 0; round < 200; ++round) {
        Setup setup = usual();
        setup.threading = FI_THREAD_DOMAIN;
        Pair pair(setup);
        char in[8];
        assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, &in[0]), 0);
        assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, &in[1]), 0);
        assert_int_equal(fi_inject(pair.a.ep, "x", 1, 0), 0);
        static char large[50'000];
        assert_int_equal(fi_send(pair.b.ep, large, sizeof large, nullptr, 0, large), 0);
        std::thread events([&pair] { pair.b.endpoint().on_peer_shutdown(); });
        assert_ptr_equal(next_entry(pair.b.cq).op_context, &in[0]);
        bool ended[2] = {};
        for (int i = 0; i < 2; ++i) {
            const fi_cq_err_entry error = next_error(pair.b.cq);
            ended[error.op_context == large] = true;
            assert_int_equal(error.err, error.op_context == large ? FI_ECONNRESET : FI_ECANCELED);
        }
        assert_true(ended[0] && ended[1]);
        assert_int_equal(fi_inject(pair.b.ep, "x", 1, 0), -FI_ENOTCONN);
        events.join();
    }
}

// The sender closes while its message waits to be pulled: its buffer may hold anything now.
void a_message_of_a_closed_sender_is_an_error(void **)
{
    auto a = std::make_unique<Side>(usual());
    Side b(usual());
    assert_int_equal(fi_enable(a->ep), 0);
    assert_int_equal(fi_enable(b.ep), 0);
    join(a->endpoint(), b.endpoint(), true);
    std::vector<char> out(100'000);
    std::vector<char> in(100'000);
    assert_int_equal(fi_send(a->ep, out.data(), out.size(), nullptr, 0, nullptr), 0);
    a.reset();
    assert_int_equal(fi_recv(b.ep, in.data(), in.size(), nullptr, 0, nullptr), 0);
    assert_int_equal(next_error(b.cq).err, FI_ECONNRESET);
}

// Message i is of words that all are i.
[[noreturn]] void send_for_ever(int socket, pid_t peer, bool cma)
{
    Side side(usual());
    REQUIRE(fi_enable(side.ep) == 0);
    join_over(socket, side, peer, cma);
    std::vector<std::uint64_t> out(10'000);
    for (std::uint64_t i = 1;; ++i) {
        const std::size_t words = i % 3 ? 1 + i % 12 : 9'000;
        std::fill_n(out.begin(), words, i);
        while (fi_send(side.ep, out.data(), words * 8, nullptr, 0, nullptr))
            ;
        (void)next_entry(side.cq);
    }
}

// A child sends numbered messages of both kinds until it is killed; what arrives is whole and in order.
void killed_in_mid_message(void **)
{
    for (int round = 0; round < 10; ++round) {
        for (const bool cma : {true, false}) {
            int sockets[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
            const pid_t parent = getpid();
            const pid_t child = fork();
            if (child == 0)
                send_for_ever(sockets[1], parent, cma);
            Side side(usual());
            assert_int_equal(fi_enable(side.ep), 0);
            join_over(sockets[0], side, child, cma);
            std::vector<std::uint64_t> in(10'000);
            std::uint64_t expected = 1;
            const std::uint64_t enough = 200 + static_cast<std::uint64_t>(round) * 37;
            bool killed = false;
            bool ended = false;
            while (!ended) {
                assert_int_equal(fi_recv(side.ep, in.data(), in.size() * 8, nullptr, 0, nullptr), 0);
                for (;;) {
                    fi_cq_data_entry entry{};
                    const ssize_t got = fi_cq_read(side.cq, &entry, 1);
                    if (got == 1) {
                        for (std::size_t i = 0; i < entry.len / 8; ++i)
                            assert_true(in[i] == expected);
                        ++expected;
                        break;
                    }
                    if (got == -FI_EAVAIL) {
                        fi_cq_err_entry error{};
                        assert_int_equal(fi_cq_readerr(side.cq, &error, 0), 1);
                        assert_true(error.err == FI_ECONNRESET || error.err == FI_ECANCELED);
                        ended = true;
                        break;
                    }
                    if (killed)
                        side.endpoint().on_peer_shutdown(); // as connection management does
                    else
                        sched_yield(); // the child may want this processor
                }
                if (!killed && expected >= enough) {
                    kill(child, SIGKILL);
                    assert_int_equal(waitpid(child, nullptr, 0), child);
                    killed = true;
                }
            }
            close(sockets[0]);
            close(sockets[1]);
        }
    }
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_lie_ends_the_connection),
        cmocka_unit_test(random_slots),
        cmocka_unit_test(a_reader_with_a_false_index),
        cmocka_unit_test(false_answers),
        cmocka_unit_test(false_offers),
        cmocka_unit_test(a_file_size_limit_is_an_error),
        cmocka_unit_test(what_was_published_survives_the_end),
        cmocka_unit_test(unexpected_messages_survive_the_end),
        cmocka_unit_test(operations_under_way_end_with_errors),
        cmocka_unit_test(injected_ones_under_way_end_in_silence),
        cmocka_unit_test(the_end_in_a_domain_without_locks),
        cmocka_unit_test(a_message_of_a_closed_sender_is_an_error),
        cmocka_unit_test(killed_in_mid_message),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
