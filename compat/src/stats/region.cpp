// SPDX-License-Identifier: BSD-2-Clause
// One stretch of memory holds header and records. It begins as private memory; the file is mapped over it in one step,
// so that nobody who counts has to look whether that has happened. In a forked child it goes the way back.
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <new>

#include "compat/src/base/fence.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/stats/region_state.hpp"
#include "compat/src/stats/text.hpp"

namespace vma::stats {

[[VMA_TABLE]] constinit Nobodys g_nobodys = {};
constinit Region g_region;

namespace {

constexpr std::size_t kChunk = 64; // private records mapped at a time

// ---- private memory -------------------------------------------------------------------------------------------------

void *map_private(std::size_t size)
{
    void *const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? memory : nullptr;
}

bool open_region() // lock held
{
    if (g_region.size != 0)
        return true;
    const std::uint32_t slots = config::params().stats_fd_num;
    const std::size_t size = (file_size(slots) + 4095) & ~std::size_t{4095};
    void *const memory = map_private(size);
    if (memory == nullptr)
        return false;
    auto *const h = new (memory) Header;
    for (Mux &set : h->epoll)
        set.fd = -1;
    g_region.slots = slots;
    g_region.size = size;
    g_region.header.store(h, std::memory_order_release);
    g_region.pending.file_due.store(wanted_folder() != nullptr, std::memory_order_release);
    return true;
}

// The free records of private memory are linked through their inode.
Slot *next_of(const Slot &slot)
{
    return reinterpret_cast<Slot *>(slot.facts.inode);
}

void put_free(Slot &slot)
{
    slot.facts.inode = reinterpret_cast<std::uintptr_t>(g_region.free_private);
    g_region.free_private = &slot;
}

Slot *take_private()
{
    if (g_region.free_private == nullptr) {
        auto *const chunk = static_cast<Slot *>(map_private(kChunk * sizeof(Slot)));
        if (chunk == nullptr)
            return nullptr;
        for (std::size_t i = kChunk; i-- > 0;)
            put_free(chunk[i]);
    }
    Slot *const slot = g_region.free_private;
    g_region.free_private = next_of(*slot);
    return slot;
}

Slot *take_shared()
{
    Header &h = header();
    for (std::uint32_t word = 0; word * 64 < g_region.slots; ++word) {
        const std::uint64_t free = ~g_region.taken[word];
        if (free == 0)
            continue;
        const std::uint32_t index = word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(free));
        if (index >= g_region.slots)
            break;
        g_region.taken[word] |= std::uint64_t{1} << (index % 64);
        if (index >= h.slots_used)
            set(h.slots_used, index + 1);
        return &slots_of(h)[index];
    }
    return nullptr;
}

bool is_shared(const Slot &slot)
{
    const Slot *const first = slots_of(header());
    return g_region.size != 0 && &slot >= first && &slot < first + g_region.slots;
}

// A call that was late when the socket before was closed may count yet.
void clear(Counters &counters)
{
    using Word [[gnu::may_alias]] = std::uint64_t;
    auto *const words = reinterpret_cast<Word *>(&counters);
    for (std::size_t i = 0; i < sizeof counters / sizeof *words; ++i)
        __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
}

// The facts of who had the record before are void before the new ones are there.
void begin(Slot &slot, int fd, std::uint8_t protocol, std::uint8_t family, bool nonblocking)
{
    const std::uint32_t use = slot.facts.use;
    set(slot.facts.fd, -1);
    sock::fence_between_stores();
    clear(slot.now);
    clear(slot.zero);
    Facts &f = slot.facts;
    memset(&f.inode, 0, offsetof(Facts, groups) - offsetof(Facts, inode));
    f.protocol = protocol;
    f.family = family;
    f.flags = nonblocking ? std::uint32_t{kNonblocking} : 0;
    f.since_ns = read_clock(CLOCK_BOOTTIME);
    set(f.use, use + 1);
    __atomic_store_n(&f.fd, fd, __ATOMIC_RELEASE);
}

} // namespace

std::uint32_t ask_thread()
{
    if (g_region.pending.makes_no_calls.load(std::memory_order_relaxed)) [[unlikely]]
        return libc::t_libc.id = 1; // nobody reads what is counted
    return libc::t_libc.id = static_cast<std::uint32_t>(::gettid());
}

Header &header()
{
    return *g_region.header.load(std::memory_order_acquire);
}

Slot &claim(int fd, std::uint8_t protocol, std::uint8_t family, bool nonblocking)
{
    const LockGuard guard(g_region.lock);
    Slot *slot = open_region() ? take_shared() : nullptr;
    if (slot == nullptr)
        slot = take_private();
    if (slot == nullptr)
        return g_nobodys.sink;
    begin(*slot, fd, protocol, family, nonblocking);
    return *slot;
}

namespace {

Ring *ring_of(const Slot &slot) // lock held
{
    const std::uint32_t ring = get(slot.facts.ring);
    return ring != 0 && ring <= kMostRings ? &header().rings[ring - 1] : nullptr;
}

// While counts move from one place to another: a reader that sees `turn` odd, or another one than before, looks again.
class Moving // lock held
{
public:
    Moving()
    {
        set(closed().turn, closed().turn + 1);
        sock::fence_between_stores();
    }
    ~Moving() { __atomic_store_n(&closed().turn, closed().turn + 1, __ATOMIC_RELEASE); }
    Moving(const Moving &) = delete;
    Moving &operator=(const Moving &) = delete;

    static Closed &closed() { return header().closed; }
};

// Its counts stay with the process when it goes.
void add_to_closed(const Slot &slot) // lock held
{
    const bool udp = slot.facts.protocol == IPPROTO_UDP;
    Closed &closed = Moving::closed();
    Counters &sum = udp ? closed.udp : closed.tcp;
    accumulate(sum, slot.now);
    add(sum.tx.paced_bytes, paced_bytes(slot, slot.now) - get(slot.now.tx.paced_bytes));
    add(udp ? closed.udp_sockets : closed.tcp_sockets);
}

// What a socket has counted by devices.
struct Share {
    std::uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes, retransmits;
};

Share share_of(const Slot &slot)
{
    const Counters &c = slot.now;
    return {get(c.rx.packets), get(c.rx.bytes), get(c.tx.packets), get(c.tx.bytes), get(c.tx.retransmits)};
}

void add_share(Ring &ring, const Share &share) // lock held
{
    add(ring.rx_packets, share.rx_packets);
    add(ring.rx_bytes, share.rx_bytes);
    add(ring.tx_packets, share.tx_packets);
    add(ring.tx_bytes, share.tx_bytes);
    add(ring.retransmits, share.retransmits);
}

} // namespace

namespace {

// One more than its place; 0: there are too many. Lock held.
std::uint32_t find_ring(RingKind kind, const char *device)
{
    for (std::uint32_t i = 0; i < kMostRings; ++i) {
        Ring &ring = header().rings[i];
        if (ring.kind == RingKind::kNone) {
            std::snprintf(ring.name, sizeof ring.name, "%s", device);
            set(ring.kind, kind);
        }
        if (ring.kind == kind && strncmp(ring.name, device, sizeof ring.name - 1) == 0)
            return i + 1;
    }
    return 0;
}

} // namespace

void use_ring(Slot &slot, RingKind kind, const char *device)
{
    const LockGuard guard(g_region.lock);
    if (g_region.size == 0 || &slot == &g_nobodys.sink)
        return;
    const std::uint32_t ring = find_ring(kind, device);
    if (ring == 0 || ring == get(slot.facts.ring))
        return;
    const Moving moving;
    if (Ring *const before = ring_of(slot); before != nullptr) {
        const Share share = share_of(slot);
        add_share(*before, share);
        add_share(header().rings[ring - 1], {-share.rx_packets, -share.rx_bytes, -share.tx_packets, -share.tx_bytes,
                                             -share.retransmits}); // a reader adds all that the socket has
    }
    set(slot.facts.ring, ring);
}

void tell_moderation(RingKind kind, const char *device, std::uint32_t frames, std::uint32_t microseconds)
{
    const LockGuard guard(g_region.lock);
    const std::uint32_t ring = g_region.size != 0 ? find_ring(kind, device) : 0;
    if (ring == 0)
        return;
    set(header().rings[ring - 1].moderation_frames, frames);
    set(header().rings[ring - 1].moderation_usec, microseconds);
}

void tell_interrupts(RingKind kind, const char *device, std::uint64_t asked, std::uint64_t received)
{
    const LockGuard guard(g_region.lock);
    const std::uint32_t ring = g_region.size != 0 && asked != 0 ? find_ring(kind, device) : 0;
    if (ring == 0)
        return;
    set(header().rings[ring - 1].interrupts_asked, asked);
    set(header().rings[ring - 1].interrupts, received);
}

void add_device_memory(const Slot &slot, std::uint64_t allocated, std::uint64_t packets, std::uint64_t bytes,
                       std::uint64_t out_of_buffer)
{
    const LockGuard guard(g_region.lock);
    Ring *const ring = ring_of(slot);
    if (ring == nullptr)
        return;
    set(ring->device_memory, static_cast<std::uint32_t>(allocated));
    add(ring->memory_packets, packets);
    add(ring->memory_bytes, bytes);
    add(ring->memory_oob, out_of_buffer);
}

namespace {

// The new numbers in place of the old ones, word by word: a reader sees one or the other. The name ends in a zero all
// the time.
template <typename Record> void replace(Record &record, const Record &fresh)
{
    using Word [[gnu::may_alias]] = std::uint64_t;
    auto *const words = reinterpret_cast<Word *>(&record);
    const auto *const from = reinterpret_cast<const Word *>(&fresh);
    for (std::size_t i = 0; i < sizeof record / sizeof *words; ++i)
        __atomic_store_n(&words[i], from[i], __ATOMIC_RELAXED);
}

} // namespace

void set_queues(const Queue *queues, std::uint32_t count)
{
    const LockGuard guard(g_region.lock);
    if (g_region.size == 0)
        return;
    Header &h = header();
    Pool rx = {};
    Pool tx = {};
    bool any_port = false;
    for (std::uint32_t i = 0; i < kMostRings; ++i) {
        const bool used = i < count;
        if (!used && h.queues[i].used == 0)
            break;
        replace(h.queues[i], used ? queues[i] : Queue{});
        if (!used || queues[i].frames == 0)
            continue;
        any_port = true;
        rx.size += queues[i].pool;
        rx.no_buffers += queues[i].shortage;
        tx.size += queues[i].send_free;
        tx.no_buffers += queues[i].send_shortage;
    }
    rx.is_rx = tx.is_tx = any_port ? 1 : 0;
    replace(h.pools[0], rx);
    replace(h.pools[1], tx);
}

namespace {

// Free, and what it counted stays with the process and with its ring.
void retire(Slot &slot) // lock held
{
    if (g_region.size == 0) {
        __atomic_store_n(&slot.facts.fd, -1, __ATOMIC_RELEASE);
        return;
    }
    const Moving moving;
    add_to_closed(slot);
    if (Ring *const ring = ring_of(slot); ring != nullptr)
        add_share(*ring, share_of(slot));
    __atomic_store_n(&slot.facts.fd, -1, __ATOMIC_RELEASE);
}

} // namespace

void give_back(Slot &slot)
{
    if (&slot == &g_nobodys.sink)
        return;
    const LockGuard guard(g_region.lock);
    retire(slot);
    if (!is_shared(slot)) {
        put_free(slot);
        return;
    }
    const auto index = static_cast<std::uint32_t>(&slot - slots_of(header()));
    g_region.taken[index / 64] &= ~(std::uint64_t{1} << (index % 64));
}

Mux &claim_set(int epfd)
{
    const LockGuard guard(g_region.lock);
    if (!open_region())
        return g_nobodys.set;
    for (Mux &set : header().epoll) {
        if (set.fd >= 0)
            continue;
        set = {};
        __atomic_store_n(&set.fd, epfd, __ATOMIC_RELEASE);
        return set;
    }
    return g_nobodys.set;
}

void give_back(Mux &set)
{
    if (&set == &g_nobodys.set)
        return;
    const LockGuard guard(g_region.lock);
    const Moving moving;
    accumulate(Moving::closed().epoll, set.now);
    __atomic_store_n(&set.fd, -1, __ATOMIC_RELEASE);
}

void after_fork_in_child()
{
    g_region.lock.reset();
    libc::t_libc.id = 0;
    capture_after_fork_in_child();
    if (g_region.size == 0 || !g_region.published)
        return; // private memory is a copy already
    Header &old = header();
    auto *const fresh = static_cast<Header *>(map_private(g_region.size));
    if (fresh == nullptr)
        return;
    const std::uint32_t used = old.slots_used < g_region.slots ? old.slots_used : g_region.slots;
    fresh->slots_used = used;
    for (std::uint32_t i = 0; i < kEpollSets; ++i)
        fresh->epoll[i].fd = old.epoll[i].fd;
    for (std::uint32_t i = 0; i < used; ++i) {
        slots_of(*fresh)[i].facts = slots_of(old)[i].facts;
        slots_of(*fresh)[i].facts.ring = 0; // devices are its parent's
    }
    if (::mremap(fresh, g_region.size, g_region.size, MREMAP_MAYMOVE | MREMAP_FIXED, &old) == MAP_FAILED) {
        ::munmap(fresh, g_region.size);
        return;
    }
    g_region.published = false;
    g_region.pending.answered.store(0, std::memory_order_relaxed);
    g_region.pending.file_due.store(true, std::memory_order_relaxed);
}

} // namespace vma::stats
