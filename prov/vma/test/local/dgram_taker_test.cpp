// SPDX-License-Identifier: BSD-2-Clause
// FI_OPT_VMA_TAKER: datagrams go to the program's own function, which takes them or leaves them where they are.
#include "prov/vma/test/local/dgram_pair.hpp"

#include <poll.h>

using namespace vma;
using namespace vma::test;

namespace {

// Copies what it is given, as long as it wants any.
struct Taker {
    struct Taken {
        std::string payload;
        std::uint64_t data;
    };
    std::vector<Taken> taken;
    std::size_t room = SIZE_MAX;
    unsigned refused = 0;
    fi_vma_taker option{take, this, nullptr};

    static int take(void *context, const void *payload, std::size_t length, std::uint64_t data)
    {
        Taker &self = *static_cast<Taker *>(context);
        if (self.room == 0) {
            ++self.refused;
            return 0;
        }
        --self.room;
        self.taken.push_back({std::string(static_cast<const char *>(payload), length), data});
        return 1;
    }
};

struct Taking : Dgram {
    explicit Taking(Taker &taker, std::size_t cq_size = 1024)
        : Dgram({.cq_size = cq_size, .taker = &taker.option}), own(taker)
    {
    }
    void read_until(std::size_t count)
    {
        for (const patience::Deadline deadline; own.taken.size() < count;) {
            REQUIRE(fi_cq_read(cq, nullptr, 0) == -FI_EAGAIN);
            REQUIRE(!deadline.over());
        }
    }
    bool may_sleep() const
    {
        fid *waits[] = {&cq->fid};
        const int result = fi_trywait(fabric, waits, 1);
        REQUIRE(result == 0 || result == -FI_EAGAIN);
        return result == 0;
    }
    Taker &own;
};

void is_set_before_enabling(void **)
{
    OwnDirectory directory;
    Taker taker;
    Taking a(taker);
    assert_int_equal(a.set_taker(&taker.option, sizeof taker.option), -FI_EOPBADSTATE);
    fid_ep *other = nullptr;
    a.info->src_addrlen = 0; // a port of its own
    std::free(a.info->src_addr);
    a.info->src_addr = nullptr;
    assert_int_equal(fi_endpoint(a.domain, a.info.get(), &other, nullptr), 0);
    const auto set = [&](const fi_vma_taker *option, std::size_t length) {
        return fi_setopt(&other->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TAKER), option, length);
    };
    const fi_vma_taker nothing{nullptr, &a, nullptr};
    assert_int_equal(set(&taker.option, sizeof taker.option - 1), -FI_EINVAL);
    assert_int_equal(set(&nothing, sizeof nothing), -FI_EINVAL);
    assert_int_equal(set(nullptr, sizeof nothing), -FI_EINVAL);
    assert_int_equal(set(&taker.option, sizeof taker.option), 0);
    assert_int_equal(fi_setopt(&other->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &a, sizeof a), -FI_ENOPROTOOPT);
    assert_int_equal(fi_close(&other->fid), 0);
    char buffer;
    assert_int_equal(fi_recv(a.ep, &buffer, 1, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EOPNOTSUPP);
    assert_int_equal(fi_cancel(&a.ep->fid, nullptr), -FI_ENOENT);
}

// Everything, in order, with its data, past one burst; no completion comes of it, and a full queue doesn't matter.
void takes_what_arrives(void **)
{
    OwnDirectory directory;
    Taker taker;
    Taking b(taker, 1);
    Dgram a;
    const fi_addr_t to = a.insert(b.name);
    REQUIRE(fi_send(b.ep, "", 0, nullptr, b.insert(std::uint16_t{1}), nullptr) == 0); // fills the queue of b
    std::vector<char> large(65507, 'x');
    REQUIRE(fi_injectdata(a.ep, "first", 5, 0x123456789abcdef0, to) == 0);
    REQUIRE(fi_inject(a.ep, large.data(), large.size(), to) == 0);
    REQUIRE(fi_inject(a.ep, nullptr, 0, to) == 0);
    constexpr std::uint32_t kMany = 1000;
    for (std::uint32_t i = 0; i < kMany; ++i)
        REQUIRE(fi_inject(a.ep, &i, sizeof i, to) == 0);
    for (const patience::Deadline deadline; taker.taken.size() < kMany + 3;)
        REQUIRE(fi_cq_read(b.cq, nullptr, 0) == 0 && !deadline.over());
    assert_string_equal(taker.taken[0].payload.c_str(), "first");
    assert_true(taker.taken[0].data == 0x123456789abcdef0);
    assert_true(taker.taken[1].payload == std::string(large.data(), large.size()) && taker.taken[1].data == 0);
    assert_true(taker.taken[2].payload.empty());
    for (std::uint32_t i = 0; i < kMany; ++i)
        REQUIRE(std::memcmp(taker.taken[3 + i].payload.data(), &i, sizeof i) == 0);
    assert_int_equal(next_entry(b.cq).flags, FI_MSG | FI_SEND);
    assert_true(no_entry(b.cq));
}

// What is refused stays in front, others' datagrams pass it, and nobody may sleep meanwhile.
void refused_ones_stay(void **)
{
    OwnDirectory directory;
    Taker taker;
    Taking b(taker);
    Dgram one;
    Dgram two;
    const fi_addr_t from_one = one.insert(b.name);
    const fi_addr_t from_two = two.insert(b.name);
    for (int round = 0; round < 2; ++round) { // before and after the queue looks at the ring itself
        taker.room = 0;
        REQUIRE(fi_inject(one.ep, "1a", 2, from_one) == 0);
        REQUIRE(fi_inject(one.ep, "1b", 2, from_one) == 0);
        for (const patience::Deadline deadline; taker.refused == 0;)
            REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN && !deadline.over());
        for (int i = 0; i < 3; ++i)
            assert_false(b.may_sleep());
        fi_cq_data_entry entry{};
        assert_int_equal(fi_cq_sread(b.cq, &entry, 1, nullptr, 1), -FI_EAGAIN);
        const unsigned before = taker.refused;
        assert_int_equal(fi_cq_read(b.cq, nullptr, 0), -FI_EAGAIN);
        assert_true(taker.refused > before); // offered again
        assert_true(taker.taken.empty());
        taker.room = 1;
        b.read_until(1);
        assert_false(b.may_sleep());
        taker.room = SIZE_MAX;
        REQUIRE(fi_inject(two.ep, "2a", 2, from_two) == 0);
        b.read_until(3);
        assert_true(taker.taken[0].payload == "1a");
        const bool first = taker.taken[1].payload == "1b";
        assert_true(taker.taken[first ? 1 : 2].payload == "1b" && taker.taken[first ? 2 : 1].payload == "2a");
        while (!b.may_sleep())
            REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
        taker.taken.clear();
        taker.refused = 0;
    }
}

// A sleeper is woken for a datagram, also when it refuses it, and then for those of a ring that was full.
void wakes_who_sleeps(void **)
{
    OwnDirectory directory;
    Taker taker;
    Taking b(taker);
    Dgram a;
    const fi_addr_t to = a.insert(b.name);
    int fd = -1;
    REQUIRE(fi_control(&b.cq->fid, FI_GETWAIT, &fd) == 0);
    for (std::size_t i = 1; i <= 4; ++i) {
        while (!b.may_sleep())
            REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
        taker.room = 0;
        taker.refused = 0;
        REQUIRE(fi_inject(a.ep, "x", 1, to) == 0);
        pollfd waiting{fd, POLLIN, 0};
        while (taker.refused == 0) { // what wakes may be connection management only
            REQUIRE(!b.may_sleep() || poll(&waiting, 1, kPatience) == 1);
            REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
        }
        taker.room = SIZE_MAX;
        assert_int_equal(fi_cq_read(b.cq, nullptr, 0), -FI_EAGAIN);
        assert_int_equal(taker.taken.size(), i);
    }
}

// Refused until the room is full: what found room comes, the rest is counted.
void a_full_room_loses(void **)
{
    OwnDirectory directory;
    Taker taker;
    Taking b(taker);
    Dgram a;
    const fi_addr_t to = a.insert(b.name);
    taker.room = 0;
    constexpr std::uint64_t kSent = 150000; // more than ring and spill have room for
    for (std::uint64_t i = 0; i < kSent; ++i) {
        REQUIRE(fi_inject(a.ep, &i, sizeof i, to) == 0);
        if (i % 1000 == 0)
            b.look();
    }
    const std::uint64_t lost = a.drops(FI_OPT_VMA_TX_DROPS);
    assert_true(lost > 0 && lost < kSent);
    taker.room = SIZE_MAX;
    b.read_until(kSent - lost);
    for (std::uint64_t i = 0; i < kSent - lost; ++i)
        REQUIRE(std::memcmp(taker.taken[i].payload.data(), &i, sizeof i) == 0);
    assert_true(no_entry(b.cq));
    assert_int_equal(taker.taken.size(), kSent - lost);
    assert_int_equal(b.drops(FI_OPT_VMA_RX_DROPS), lost);
}

// A sender that has gone with its last one refused: it is still there for the taker.
void outlives_its_sender(void **)
{
    OwnDirectory directory;
    Taker taker;
    Taking b(taker);
    taker.room = 0;
    {
        Dgram a;
        REQUIRE(fi_inject(a.ep, "last", 4, a.insert(b.name)) == 0);
        while (taker.refused == 0)
            REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
    }
    assert_false(b.may_sleep());
    taker.room = 1;
    b.read_until(1);
    assert_true(taker.taken[0].payload == "last");
    while (!b.may_sleep())
        REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
}

// A counter counts what was taken, and reading it is enough to take it.
void is_counted(void **)
{
    OwnDirectory directory;
    Taker taker;
    Dgram b({.taker = &taker.option, .queue = false});
    Dgram a;
    const fi_addr_t to = a.insert(b.name);
    taker.room = 2;
    for (int i = 0; i < 3; ++i)
        REQUIRE(fi_inject(a.ep, "x", 1, to) == 0);
    assert_int_equal(fi_cntr_wait(b.receives, 2, kPatience), 0);
    assert_int_equal(fi_cntr_read(b.receives), 2);
    taker.room = 1;
    assert_int_equal(fi_cntr_wait(b.receives, 3, kPatience), 0);
    assert_int_equal(taker.taken.size(), 3);
    assert_int_equal(fi_cntr_readerr(b.receives), 0);
}

// Keeps what it is given: gives back each second one before the call is over, as another thread may that knows of it,
// the others later.
struct Keeper {
    struct Loan {
        fi_vma_lender *lender;
        const void *payload;
        std::size_t length;
    };
    std::vector<Loan> held;
    std::uint32_t count = 0;
    unsigned refused = 0;
    fi_vma_taker option{nullptr, this, keep};

    static int keep(void *context, const void *payload, std::size_t length, std::uint64_t data, fi_vma_lender *lender)
    {
        Keeper &self = *static_cast<Keeper *>(context);
        REQUIRE(data == self.count++);
        if (lender == nullptr) {
            ++self.refused;
            return 1;
        }
        if (data % 2 == 0) {
            lender->lend(lender, payload, length);
            lender->give_back(lender, payload, length);
        } else {
            self.held.push_back({lender, payload, length});
        }
        return FI_VMA_KEPT;
    }
    void give_back()
    {
        for (const Loan &loan : held)
            loan.lender->give_back(loan.lender, loan.payload, loan.length);
        held.clear();
    }
};

void may_be_given_back_at_once(void **)
{
    OwnDirectory directory;
    Keeper keeper;
    const std::string bytes(1400, 'x');
    std::uint32_t sent = 0;
    {
        Dgram b({.taker = &keeper.option});
        Dgram a;
        const fi_addr_t to = a.insert(b.name);
        for (int round = 0; round < 300; ++round) {
            for (int i = 0; i < 20; ++i)
                REQUIRE(fi_injectdata(a.ep, bytes.data(), bytes.size(), sent++, to) == 0);
            for (const patience::Deadline deadline; keeper.count < sent;)
                REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN && !deadline.over());
            if (round % 3 == 0)
                keeper.give_back();
        }
        assert_true(!keeper.held.empty());
        assert_int_equal(keeper.refused, 0);
    }
    for (const Keeper::Loan &loan : keeper.held) // the endpoint is gone
        assert_memory_equal(loan.payload, bytes.data(), loan.length);
    keeper.give_back();
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(is_set_before_enabling),
        cmocka_unit_test(takes_what_arrives),
        cmocka_unit_test(refused_ones_stay),
        cmocka_unit_test(wakes_who_sleeps),
        cmocka_unit_test(a_full_room_loses),
        cmocka_unit_test(outlives_its_sender),
        cmocka_unit_test(is_counted),
        cmocka_unit_test(may_be_given_back_at_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
