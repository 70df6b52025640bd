// SPDX-License-Identifier: BSD-2-Clause
// Which ring a connection is on (VMA_RING_ALLOCATION_LOGIC_RX, SO_VMA_RING_ALLOC_LOGIC, VMA_RING_LIMIT_PER_INTERFACE),
// and when it moves to another one (VMA_RING_MIGRATION_RATIO_RX): back through the kernel, as an endpoint can't change
// its queue.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "compat/src/config/cpu_list.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/once.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ring_table.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/engine/this_thread.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/stream.hpp"
#include <mellanox/vma_extra.h>

namespace vma::sock {

namespace {

bool moves(std::int32_t logic)
{
    return logic == RING_LOGIC_PER_THREAD || logic == RING_LOGIC_PER_CORE ||
           logic == RING_LOGIC_PER_CORE_ATTACH_THREADS;
}

// ---- cores that threads were attached to

// The processor with the fewest threads attached, of those that this thread may run on; -1: they are not to be had.
int least_attached()
{
    config::CpuMask mask;
    auto *const words = reinterpret_cast<cpu_set_t *>(mask.words.data());
    if (::sched_getaffinity(0, sizeof mask.words, words) != 0)
        return -1;
    int best = -1;
    for (std::size_t cpu = 0; cpu < config::kMaxCpus; ++cpu) {
        if (mask.has(cpu) && (best < 0 || g_engine_tables.attached[cpu].load(std::memory_order_relaxed) <
                                              g_engine_tables.attached[best].load(std::memory_order_relaxed)))
            best = static_cast<int>(cpu);
    }
    return best;
}

// Once a thread: it stays on one processor from here on. One that can't be attached runs on.
void attach_thread()
{
    if (t_engine.attached)
        return;
    t_engine.attached = true;
    const int cpu = least_attached();
    if (cpu < 0)
        return;
    config::CpuMask one;
    one.set(static_cast<std::size_t>(cpu));
    const auto *const words = reinterpret_cast<const cpu_set_t *>(one.words.data());
    if (::sched_setaffinity(0, sizeof one.words, words) != 0) {
        VMA_LOG(kDebug, "the thread can't be attached to processor %d: %s (VMA_RING_ALLOCATION_LOGIC_RX=31)", cpu,
                strerror(errno));
        return;
    }
    g_engine_tables.attached[cpu].fetch_add(1, std::memory_order_relaxed);
    VMA_LOG(kDebug, "the thread is attached to processor %d (VMA_RING_ALLOCATION_LOGIC_RX=31)", cpu);
}

// ---- keys

std::uint64_t this_user(std::int32_t logic)
{
    return logic == RING_LOGIC_PER_THREAD ? static_cast<std::uint64_t>(::pthread_self())
                                          : static_cast<std::uint64_t>(::sched_getcpu());
}

constexpr std::int32_t kLogicPerSet = RING_LOGIC_LAST + 1; // ours, where nobody has said one
constexpr std::int32_t kLogicGuests = RING_LOGIC_LAST + 2; // ours: peers of other users (doc/trust.md)

RingKey key_of(Socket &s, std::int32_t logic, std::uint32_t user_id)
{
    RingKey key = {logic, 0, 0};
    switch (logic) {
    case RING_LOGIC_PER_IP:
        memcpy(&key.first, &s.addresses.local.sin6_addr, sizeof key.first);
        memcpy(&key.second, &s.addresses.local.sin6_addr.s6_addr[sizeof key.first], sizeof key.second);
        return key;
    case RING_LOGIC_PER_SOCKET:
        key.first = s.index;
        return key;
    case RING_LOGIC_PER_USER_ID:
        key.first = user_id;
        return key;
    case kLogicPerSet:
        key.first = kMultiplexers.ring_owner(s);
        return key.first != 0 ? key : RingKey{};
    case RING_LOGIC_PER_CORE_ATTACH_THREADS:
        attach_thread();
        [[fallthrough]];
    case RING_LOGIC_PER_THREAD:
    case RING_LOGIC_PER_CORE:
        key.first = this_user(logic);
        return key;
    default:
        return {};
    }
}

// ---- rings

unsigned most_rings()
{
    const std::uint32_t limit = config::params().ring_limit;
    return limit == 0 ? kMostRings : std::min<std::uint32_t>(limit, kMostRings);
}

// One that is in use by this key; 0: none.
unsigned find_ring(const RingKey &key)
{
    for (unsigned i = 1; i < kMostRings; ++i)
        if (g_engine.rings[i].users != 0 && g_engine.rings[i].key == key)
            return i;
    return 0;
}

// One that nobody uses; 0: there may be no more of them.
unsigned unused_ring()
{
    for (unsigned i = 1; i < most_rings(); ++i)
        if (g_engine.rings[i].users == 0)
            return i;
    return 0;
}

unsigned least_used_ring()
{
    unsigned best = 0;
    for (unsigned i = 1; i < most_rings(); ++i)
        if (g_engine.rings[i].cq != nullptr && g_engine.rings[i].users < g_engine.rings[best].users)
            best = i;
    return best;
}

bool is_open(unsigned ring, bool for_guests = false)
{
    if (g_engine.rings[ring].cq != nullptr)
        return true;
    const int result = open_ring(g_engine.rings[ring], for_guests);
    if (result != 0 && config::is_first(config::Once::kNoRing))
        VMA_LOG(kWarn, "cannot open a ring: %s; its connections share another one (VMA_RING_ALLOCATION_LOGIC_RX)",
                strerror(-result));
    return result == 0;
}

// One that guests may come to, which nobody else uses; 0: there is none.
unsigned ring_for_guests(const RingKey &key)
{
    for (unsigned i = 1; i < most_rings(); ++i) {
        Ring &r = g_engine.rings[i];
        if (r.users != 0 || (r.cq != nullptr && !r.takes_guests))
            continue;
        if (!is_open(i, true))
            return 0;
        r.key = key;
        return i;
    }
    return 0;
}

unsigned choose_ring(const RingKey &key)
{
    if (key.logic == RING_LOGIC_PER_INTERFACE)
        return 0;
    if (const unsigned own = find_ring(key); own != 0)
        return own;
    if (key.logic == kLogicGuests)
        return ring_for_guests(key);
    const unsigned fresh = unused_ring();
    if (fresh == 0 || !is_open(fresh))
        return least_used_ring();
    g_engine.rings[fresh].key = key;
    return fresh;
}

} // namespace

namespace {

std::int32_t logic_of(Socket &s, std::uint32_t &user_id)
{
    const config::Params &params = config::params();
    std::int32_t logic = params.ring_per_set ? kLogicPerSet : static_cast<std::int32_t>(params.ring_logic_rx);
    kExtraApi.ask_ring_logic(s, logic, user_id);
    return logic;
}

// One of its own, that is, or there may be no more.
bool has_datagrams(Ring &r)
{
    if (r.datagram_port != 0)
        return true;
    const int result = engine_open_datagrams(*r.cq, r.arrivals, r.datagrams, r.datagram_port);
    if (result == 0)
        return true;
    r.datagram_port = 0;
    if (r.datagrams != nullptr)
        fi_close(&r.datagrams->fid);
    r.datagrams = nullptr;
    VMA_LOG(kDebug, "cannot open an endpoint for the datagrams of a ring: %s; they share the main ring",
            strerror(-result));
    return false;
}

} // namespace

void claim_ring(Socket &s)
{
    std::uint32_t user_id = 0;
    const std::int32_t logic = logic_of(s, user_id);
    RingClaim &c = s.ring_claim;
    c.key = key_of(s, logic, user_id);
    c.logic.store(c.key.logic, std::memory_order_relaxed);
    c.owner.store(c.key.first, std::memory_order_relaxed);
    c.by_stranger.store(0, std::memory_order_relaxed);
    s.counts_access.store(moves(logic) && config::params().ring_migration_rx >= 0, std::memory_order_relaxed);
}

void claim_ring_for_guests(Socket &s)
{
    RingClaim &c = s.ring_claim;
    c.key = {kLogicGuests, 0, 0};
    c.logic.store(kLogicGuests, std::memory_order_relaxed);
    s.counts_access.store(false, std::memory_order_relaxed);
}

unsigned enter_ring(Socket &s)
{
    const unsigned ring = choose_ring(s.ring_claim.key);
    ++g_engine.rings[ring].users;
    s.ring = static_cast<std::uint8_t>(ring);
    s.ring_bit = RingMask{1} << ring;
    return ring;
}

// The logics that a user names are about connections.
void enter_datagram_ring(Socket &s)
{
    std::uint32_t user_id = 0;
    const bool per_set = logic_of(s, user_id) == kLogicPerSet;
    s.ring_claim.key = per_set ? key_of(s, kLogicPerSet, user_id) : RingKey{};
    if (enter_ring(s) == 0 || has_datagrams(g_engine.rings[s.ring]))
        return;
    leave_ring(s);
    s.ring_claim.key = {};
    enter_ring(s);
}

std::uint16_t datagram_port_of(const Socket &s)
{
    return s.ring == 0 ? engine_datagrams().port : g_engine.rings[s.ring].datagram_port;
}

void leave_ring(Socket &s)
{
    --g_engine.rings[s.ring].users;
    s.ring = 0;
    s.ring_bit = kMainRing;
    s.ring_claim.move.store(RingMove::kStays, std::memory_order_relaxed);
}

fid_cq *queue_of_ring(const Objects &objects, unsigned ring)
{
    return ring == 0 ? objects.cq : g_engine.rings[ring].cq;
}

RingMask rings_of(const Socket &s)
{
    return ring_of(s);
}

const char *name_of_ring(unsigned ring)
{
    static constexpr char kNames[][16] = {
        "local",         "local ring 1",  "local ring 2",  "local ring 3",  "local ring 4",  "local ring 5",
        "local ring 6",  "local ring 7",  "local ring 8",  "local ring 9",  "local ring 10", "local ring 11",
        "local ring 12", "local ring 13", "local ring 14", "local ring 15", "local ring 16", "local ring 17",
        "local ring 18", "local ring 19", "local ring 20", "local ring 21", "local ring 22", "local ring 23",
        "local ring 24", "local ring 25", "local ring 26", "local ring 27", "local ring 28", "local ring 29",
        "local ring 30", "local ring 31"};
    static_assert(std::size(kNames) == kMostRings);
    return kNames[ring];
}

const char *name_of_ring(const Socket &s)
{
    return name_of_ring(s.ring);
}

void note_access(Socket &s)
{
    RingClaim &c = s.ring_claim;
    const std::uint64_t here = this_user(c.logic.load(std::memory_order_relaxed));
    if (here == c.owner.load(std::memory_order_relaxed)) {
        if (c.by_stranger.load(std::memory_order_relaxed) != 0)
            c.by_stranger.store(0, std::memory_order_relaxed);
        return;
    }
    const bool again = c.stranger.load(std::memory_order_relaxed) == here;
    const std::uint32_t times = again ? c.by_stranger.load(std::memory_order_relaxed) + 1 : 1;
    c.stranger.store(here, std::memory_order_relaxed);
    c.by_stranger.store(times, std::memory_order_relaxed);
    if (times <= static_cast<std::uint32_t>(config::params().ring_migration_rx))
        return;
    c.by_stranger.store(0, std::memory_order_relaxed);
    RingMove none = RingMove::kStays;
    if (c.move.compare_exchange_strong(none, RingMove::kWanted, std::memory_order_relaxed))
        g_due.add(s.index);
}

namespace {

// The ring of the socket's new user is the one that it is on, or becomes so.
bool may_stay(const Socket &s, const RingKey &wanted)
{
    Ring &here = g_engine.rings[s.ring];
    const unsigned own = find_ring(wanted);
    if (own != 0)
        return own == s.ring;
    if (s.ring != 0 && here.users == 1) {
        here.key = wanted;
        return true;
    }
    return unused_ring() == 0; // rings are few
}

void begin_move(Stream &s)
{
    RingClaim &c = s.ring_claim;
    const RingKey wanted = {c.key.logic, c.stranger.load(std::memory_order_relaxed), 0};
    if (may_stay(s, wanted)) {
        c.key = wanted;
        c.owner.store(wanted.first, std::memory_order_relaxed);
        c.move.store(RingMove::kStays, std::memory_order_relaxed);
        return;
    }
    char name[kNameMax];
    VMA_LOG(kDebug, "%s: leaves ring %u for that of another %s (VMA_RING_MIGRATION_RATIO_RX)", connection_name(s, name),
            unsigned{s.ring}, c.key.logic == RING_LOGIC_PER_THREAD ? "thread" : "core");
    c.move.store(RingMove::kReturning, std::memory_order_relaxed);
    start_leaving(s, Heir::kLibrary);
}

} // namespace

void move_if_due(Stream &s)
{
    switch (s.ring_claim.move.load(std::memory_order_relaxed)) {
    case RingMove::kStays:
        return;
    case RingMove::kWanted:
        if (offloaded(s) && s.endpoint != nullptr && !s.connecting)
            begin_move(s);
        return;
    case RingMove::kReturning:
        if (!is_returning(s) && !discard_left(s))
            begin_move(s);
        return;
    }
}

} // namespace vma::sock
