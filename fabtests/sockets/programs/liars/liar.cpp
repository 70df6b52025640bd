// SPDX-License-Identifier: BSD-2-Clause
// Preloaded behind libvma.so into a program that has connections with another user's: a guest that has all that the
// library has, and lies. Of the provider's system calls it sees those by which links send and receive. What lies where
// in the segments it knows from the provider's own header.
#include "fabtests/sockets/programs/liars/liar.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "fabtests/ether/programs/kernel_wrapper.hpp"
#include "local/layout.hpp"

namespace liar {

namespace {

using vma::local::Control;
using vma::local::DoorbellPage;
using vma::local::kSlotCount;
using vma::local::kSlotsSize;
using vma::local::Slot;
using vma::local::SlotOp;

struct Shared {
    ino_t number = 0;
    std::byte *bytes = nullptr;
    std::size_t size = 0;
    bool is_others = false; // they read its slots
};

// The newest first. What is older is of connections that are over.
constexpr std::size_t kKept = 4; // two of a connection, two of its process
std::array<Shared, kKept> g_pages;
std::array<Shared, 2> g_segments;
unsigned long g_shared = 0;         // segments of others that have come
std::recursive_mutex g_lock;        // the library's thread brings what the program's spoils
constexpr std::size_t kBytes = 512; // of the bytes of a segment, those that are written to

template <std::size_t Count> void keep(std::array<Shared, Count> &list, const Shared &fresh)
{
    if (list.back().bytes != nullptr)
        ::munmap(list.back().bytes, list.back().size);
    for (std::size_t i = Count - 1; i > 0; --i)
        list[i] = list[i - 1];
    list[0] = fresh;
}

bool is_kept(ino_t number)
{
    for (const Shared &one : g_pages)
        if (one.number == number)
            return true;
    for (const Shared &one : g_segments)
        if (one.number == number)
            return true;
    return false;
}

void keep_one(int fd, bool is_others)
{
    struct stat status = {};
    if (real_syscall(SYS_fcntl, fd, F_GET_SEALS) <= 0 || ::fstat(fd, &status) != 0 || is_kept(status.st_ino))
        return;
    const auto size = static_cast<std::size_t>(status.st_size);
    void *const base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return;
    const Shared fresh = {status.st_ino, static_cast<std::byte *>(base), size, is_others};
    if (size == sizeof(DoorbellPage)) {
        keep(g_pages, fresh);
    } else {
        keep(g_segments, fresh);
        g_shared += is_others ? 1 : 0;
    }
}

// ---- words ---------------------------------------------------------------------------------------------------------

// Words that are each other's likeness.
struct Kind {
    std::size_t at;
    std::size_t size;
    std::size_t step = 0;
    std::size_t count = 1;
};

constexpr std::size_t kHalf = sizeof(std::uint32_t);
constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kSlots = sizeof(Control); // where they begin
constexpr std::size_t kWhole = sizeof(Slot);
constexpr std::size_t kWholeSlots = 2; // of a round

constexpr Kind kOfSegments[] = {
    {offsetof(Control, rx_state), kHalf},
    {offsetof(Control, mr_generation), kHalf},
    {offsetof(Control, rma_notify), kHalf},
    {offsetof(Control, stamps), kHalf},
    {offsetof(Control, head), kHalf},
    {offsetof(Control, want_space), kHalf},
    {offsetof(Control, rma_inside), kHalf},
    {offsetof(Control, revoked), kHalf},
    {offsetof(Control, cut), kWord},
    {kSlots + offsetof(Slot, word), kWord, sizeof(Slot), kSlotCount},
    {kSlots + offsetof(Slot, data), kWord, sizeof(Slot), kSlotCount},
    {kSlots + offsetof(Slot, addr), kWord, sizeof(Slot), kSlotCount},
    {kSlots + offsetof(Slot, stamp), kWord, sizeof(Slot), kSlotCount},
    {kSlots + offsetof(Slot, payload), kWord, sizeof(Slot), kSlotCount},
    {kSlots + offsetof(Slot, payload) + kWord, kWord, sizeof(Slot), kSlotCount},
    {kSlots + offsetof(Slot, payload) + 2 * kWord, kWord, sizeof(Slot), kSlotCount},
    {kSlotsSize, kWord, kWord, kBytes / kWord},
};

constexpr Kind kOfPages[] = {
    {offsetof(DoorbellPage, sleeping), kWord},
    {offsetof(DoorbellPage, wakes), kWord},
    {offsetof(DoorbellPage, summary), kWord, kWord, vma::local::kDoorbellSummary},
    {offsetof(DoorbellPage, places), kWord, sizeof(vma::local::Place), vma::local::kPlaces},
    {offsetof(DoorbellPage, places) + offsetof(vma::local::Place, turn), kHalf, sizeof(vma::local::Place),
     vma::local::kPlaces},
    {offsetof(DoorbellPage, words), kWord, kWord, vma::local::kDoorbellWords},
};

struct Place {
    Shared *in;
    std::size_t at;
    std::size_t size;
};

std::vector<Place> g_order; // of a round
std::size_t g_next = 0;
unsigned long g_rounds = 0;
unsigned long g_written = 0;

// Half of the slots are those that come next: who reads looks at no others.
std::size_t chosen_of(const Shared &in, const Kind &kind)
{
    const bool is_slot = kind.step == sizeof(Slot) && kind.count == kSlotCount;
    if (!is_slot || in.bytes == nullptr || source().below(2) == 0)
        return source().below(kind.count);
    const auto *const head = reinterpret_cast<std::uint32_t *>(in.bytes + offsetof(Control, head));
    return (std::size_t{__atomic_load_n(head, __ATOMIC_RELAXED)} + source().below(3)) % kSlotCount;
}

// One of each kind, or each word (LIAR_EACH=1), in an order by chance.
void add(Shared &in, const Kind &kind, bool each)
{
    for (std::size_t i = 0; i < (each ? kind.count : 1); ++i)
        g_order.push_back({&in, kind.at + (each ? i : chosen_of(in, kind)) * kind.step, kind.size});
}

void begin_round()
{
    static const bool each = ::getenv("LIAR_EACH") != nullptr;
    g_order.clear();
    for (Shared &segment : g_segments) {
        for (std::size_t i = 0; segment.is_others && i < kWholeSlots; ++i)
            g_order.push_back({&segment, kSlots, kWhole});
        for (const Kind &kind : kOfSegments)
            add(segment, kind, each);
        for (std::size_t at = offsetof(Slot, payload) + 3 * kWord; each && at < sizeof(Slot); at += kWord)
            add(segment, {kSlots + at, kWord, sizeof(Slot), kSlotCount}, each);
    }
    for (const Kind &kind : kOfPages)
        add(g_pages[source().below(kKept)], kind, each);
    for (std::size_t i = g_order.size(); i > 1; --i)
        std::swap(g_order[i - 1], g_order[source().below(i)]);
    g_next = 0;
}

// The word of a slot that may be the next: a sequence number that fits, and anything else.
std::uint64_t likely_slot(std::size_t at, std::uint64_t now)
{
    const std::size_t index = (at - sizeof(Control)) / sizeof(Slot);
    const std::uint64_t sequence = now == 0 ? index + 1 : (now >> 32) + source().below(2) * kSlotCount;
    const std::uint64_t length = source().below(4) != 0 ? source().below(200) : source().below(0x10000);
    return sequence << 32 | length << 16 | source().below(9) << 8 |
           source().below(static_cast<std::size_t>(SlotOp::count) + 1);
}

bool is_slot_word(const Place &place)
{
    return place.in->size != sizeof(DoorbellPage) && place.at >= sizeof(Control) && place.at < kSlotsSize &&
           (place.at - sizeof(Control)) % sizeof(Slot) == offsetof(Slot, word);
}

// A slot behind the newest one, as if that side had sent it, which is wrong in a word, or in all. What is written to
// one by itself mostly comes too early or too late: the sender writes all of it anew, and the receiver looks once.
void publish(const Shared &segment)
{
    const auto &control = *reinterpret_cast<const Control *>(segment.bytes);
    auto *const slots = reinterpret_cast<Slot *>(segment.bytes + kSlots);
    std::uint32_t newest = control.head.load(std::memory_order_relaxed);
    while (slots[newest % kSlotCount].word.load(std::memory_order_acquire) >> 32 == newest + 1)
        ++newest;
    newest += static_cast<std::uint32_t>(source().below(2)); // the sender fills the gap
    const Slot &before = slots[(newest + kSlotCount - 1) % kSlotCount];
    Slot &slot = slots[newest % kSlotCount];
    const std::size_t wrong = source().below(5);
    const auto value = [wrong](std::size_t part, std::uint64_t old) {
        return wrong == part || wrong == 4 ? other_value(old) : old;
    };
    slot.data = value(0, before.data);
    slot.addr = value(1, before.addr);
    slot.stamp = before.stamp;
    std::memcpy(slot.payload, before.payload, sizeof slot.payload);
    const std::uint64_t first = value(2, 16);
    std::memcpy(slot.payload, &first, sizeof first);
    const std::uint64_t kept = before.word.load(std::memory_order_relaxed) & 0xffffffff;
    const std::uint64_t low = wrong == 3 ? likely_slot(kSlots, 0) & 0xffffffff : kept;
    slot.word.store((std::uint64_t{newest} + 1) << 32 | low, std::memory_order_release);
}

void spoil(const Place &place)
{
    if (place.size == kWhole && place.in->size >= kSlotsSize) {
        publish(*place.in);
        ++g_written;
        return;
    }
    if (place.in->bytes == nullptr || place.at + place.size > place.in->size)
        return;
    std::byte *const at = place.in->bytes + place.at;
    if (place.size == kHalf) {
        auto &half = *reinterpret_cast<std::uint32_t *>(at);
        const std::uint64_t now = __atomic_load_n(&half, __ATOMIC_RELAXED);
        __atomic_store_n(&half, static_cast<std::uint32_t>(other_value(now)), __ATOMIC_RELEASE);
    } else {
        auto &word = *reinterpret_cast<std::uint64_t *>(at);
        const std::uint64_t now = __atomic_load_n(&word, __ATOMIC_RELAXED);
        const bool likely = is_slot_word(place) && source().below(2) == 0;
        __atomic_store_n(&word, likely ? likely_slot(place.at, now) : other_value(now), __ATOMIC_RELEASE);
    }
    ++g_written;
}

} // namespace

Random &source()
{
    static Random random([] {
        const char *const seed = ::getenv("FUZZ_SEED");
        return seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
    }());
    return random;
}

std::uint64_t other_value(std::uint64_t now)
{
    const std::uint64_t values[] = {0,
                                    1,
                                    ~std::uint64_t{0},
                                    0x7fffffff,
                                    0x80000000,
                                    now + 1,
                                    now - 1,
                                    std::uint64_t{1} << 63,
                                    0xffffffff,
                                    now + 0x100000000,
                                    ~now,
                                    now << 1,
                                    source().below(0x20000),
                                    now ^ std::uint64_t{1} << source().below(64),
                                    std::uint64_t{1} << 32};
    const std::size_t chosen = source().below(2 * std::size(values));
    return chosen < std::size(values) ? values[chosen] : source().bits();
}

void keep_shared(const msghdr &header, bool are_others)
{
    const std::lock_guard guard(g_lock);
    auto &message = const_cast<msghdr &>(header);
    for (cmsghdr *part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
            int fd = -1;
            std::memcpy(&fd, reinterpret_cast<std::byte *>(part) + at, sizeof fd);
            keep_one(fd, are_others);
        }
    }
}

long real_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    using Call = long (*)(long, ...);
    static const auto real = reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "syscall"));
    return real(number, a, b, c, d, e, f);
}

} // namespace liar

#define LIAR_EXPORT extern "C" [[gnu::visibility("default")]]

// How many segments others have shared with this process.
LIAR_EXPORT unsigned long liar_segments()
{
    const std::lock_guard guard(liar::g_lock);
    return liar::g_shared;
}

// Writes to the next `count` words of the newest connection. Returns how often one of each kind has been written to.
LIAR_EXPORT unsigned long liar_spoil(unsigned count)
{
    const std::lock_guard guard(liar::g_lock);
    for (; count > 0; --count) {
        if (liar::g_next >= liar::g_order.size()) {
            liar::g_rounds += liar::g_order.empty() ? 0 : 1;
            liar::begin_round();
        }
        liar::spoil(liar::g_order[liar::g_next++]);
    }
    return liar::g_rounds;
}

LIAR_EXPORT unsigned long liar_written()
{
    return liar::g_written;
}

static bool answers(long number, long (&a)[6], long &result)
{
    if (number == SYS_sendmsg) {
        const auto &header = *reinterpret_cast<const msghdr *>(a[1]);
        liar::keep_shared(header, false);
        result = liar::send_lie(static_cast<int>(a[0]), header, static_cast<int>(a[2]));
        return true;
    }
    if (number != SYS_recvmsg)
        return false;
    result = liar::real_syscall(number, a[0], a[1], a[2]);
    if (result >= 0) {
        const int saved = errno;
        liar::keep_shared(*reinterpret_cast<const msghdr *>(a[1]), true);
        errno = saved;
    }
    return true;
}
