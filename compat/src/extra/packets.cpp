// SPDX-License-Identifier: BSD-2-Clause
// One array, mapped at the first packet and used from its beginning, so that few packets lie in few pages.
#include "compat/src/extra/packets.hpp"
#include "compat/src/sharing/holders.hpp"

#include <sys/mman.h>

#include <new>

#include "compat/src/base/spin_lock.hpp"
#include "compat/src/extra/shared.hpp"
#include "compat/src/extra/state.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::extra {

namespace {

constexpr std::uint32_t kSlack = 4096; // for what threads borrow between has_room_for_packets() and hold()

bool map_packets()
{
    const SpinGuard guard(g_tables.packets_lock);
    if (g_tables.packets.load(std::memory_order_relaxed) != nullptr)
        return true;
    void *const memory = ::mmap(nullptr, (kMostPackets + kSlack) * sizeof(Packet), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    g_tables.packets.store(static_cast<Packet *>(memory), std::memory_order_release);
    return true;
}

Packet &new_packet()
{
    g_tables.held_packets.store(g_tables.held_packets.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (g_tables.free_packets != nullptr) [[likely]] {
        Packet *const packet = g_tables.free_packets;
        g_tables.free_packets = packet->next;
        return *packet;
    }
    const std::uint32_t used = g_tables.used_packets.load(std::memory_order_relaxed);
    auto *const packet = new (g_tables.packets.load(std::memory_order_relaxed) + used) Packet;
    g_tables.used_packets.store(used + 1, std::memory_order_release);
    return *packet;
}

void link(State &state, Packet &packet)
{
    packet.prev = nullptr;
    packet.next = state.packets;
    if (packet.next != nullptr)
        packet.next->prev = &packet;
    state.packets = &packet;
}

void unlink(Packet &packet)
{
    State *const state = find_state(*packet.socket);
    if (packet.next != nullptr)
        packet.next->prev = packet.prev;
    if (packet.prev != nullptr)
        packet.prev->next = packet.next;
    else if (state != nullptr && state->packets == &packet)
        state->packets = packet.next;
}

void set_free(Packet &packet)
{
    packet.next = g_tables.free_packets;
    g_tables.free_packets = &packet;
    g_tables.held_packets.store(g_tables.held_packets.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

// Whoever takes from this list takes all of it: none comes back to its top meanwhile.
void give_back_own(Packet &packet)
{
    packet.next = g_tables.returned_packets.load(std::memory_order_relaxed);
    while (!g_tables.returned_packets.compare_exchange_weak(packet.next, &packet, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
    }
}

void collect_locked()
{
    Packet *next = nullptr;
    for (Packet *at = g_tables.returned_packets.exchange(nullptr, std::memory_order_acquire); at != nullptr;
         at = next) {
        next = at->next;
        set_free(*at);
    }
}

bool holds_too_many()
{
    return g_tables.held_packets.load(std::memory_order_relaxed) >= kMostPackets;
}

} // namespace

bool is_full()
{
    if (g_tables.packets.load(std::memory_order_acquire) == nullptr && !map_packets()) [[unlikely]]
        return true;
    if (!holds_too_many()) [[likely]]
        return false;
    const SpinGuard guard(g_tables.packets_lock);
    collect_locked();
    return holds_too_many();
}

State *room_for_packets(sock::Socket &s)
{
    return is_full() ? nullptr : state_of(s);
}

bool has_room_for_packets(sock::Socket &s)
{
    return room_for_packets(s) != nullptr;
}

namespace {

Packet &begin(sock::Socket &s, State &state, Packet &packet)
{
    packet.buffer = {nullptr, packet.bytes(), static_cast<std::uint16_t>(packet.size())};
    packet.socket = &s;
    packet.generation = state.generation;
    packet.refs.store(1, std::memory_order_release);
    link(state, packet);
    return packet;
}

} // namespace

Packet &hold(sock::Socket &s, State &state, sock::Loan &loan)
{
    const SpinGuard guard(g_tables.packets_lock);
    Packet &packet = new_packet();
    packet.loan = loan;
    loan.lender = nullptr;
    return begin(s, state, packet);
}

Packet &hold(sock::Socket &s, sock::Loan &loan)
{
    return hold(s, *state_of(s), loan);
}

Packet *reserve_packets(std::uint32_t count)
{
    if (is_full())
        return nullptr;
    const SpinGuard guard(g_tables.packets_lock);
    collect_locked();
    Packet *first = nullptr;
    for (; count != 0; --count) {
        Packet &packet = new_packet();
        packet.next = first;
        first = &packet;
    }
    return first;
}

Packet *find_packet(const void *id)
{
    const auto address = reinterpret_cast<std::uintptr_t>(id);
    Packet *const all = g_tables.packets.load(std::memory_order_acquire);
    const auto first = reinterpret_cast<std::uintptr_t>(all);
    if (all == nullptr || address < first || (address - first) % sizeof(Packet) != 0)
        return nullptr;
    const std::uintptr_t place = (address - first) / sizeof(Packet);
    if (place >= g_tables.used_packets.load(std::memory_order_acquire) ||
        all[place].refs.load(std::memory_order_acquire) == 0)
        return nullptr;
    return all + place;
}

bool is_of(const Packet &packet, const sock::Socket &s)
{
    return packet.socket == &s && packet.generation == s.generation.load(std::memory_order_acquire);
}

namespace {

// Those that are left, or -1: nobody holds it, or it is none of those that need no lock.
int drop_own(Packet &packet)
{
    std::uint32_t refs = packet.refs.load(std::memory_order_relaxed);
    do {
        if ((refs & Packet::kOwn) == 0)
            return -1;
    } while (!packet.refs.compare_exchange_weak(refs, refs == (Packet::kOwn | 1) ? 0 : refs - 1,
                                                std::memory_order_acq_rel, std::memory_order_relaxed));
    if (refs != (Packet::kOwn | 1))
        return static_cast<int>((refs & ~Packet::kOwn) - 1);
    give_back_own(packet);
    return 0;
}

int add_own(Packet &packet)
{
    std::uint32_t refs = packet.refs.load(std::memory_order_relaxed);
    do {
        if ((refs & Packet::kOwn) == 0)
            return -1;
    } while (!packet.refs.compare_exchange_weak(refs, refs + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    return static_cast<int>((refs & ~Packet::kOwn) + 1);
}

// g_tables.packets_lock held. The references that are left, or -1; with the last one `loan` is the packet's, to be
// ended without the lock.
int leave(Packet &packet, sock::Loan &loan)
{
    const std::uint32_t refs = packet.refs.load(std::memory_order_relaxed);
    if (refs == 0 || (refs & Packet::kOwn) != 0)
        return -1;
    packet.refs.store(refs - 1, std::memory_order_release);
    if (refs != 1)
        return static_cast<int>(refs - 1);
    unlink(packet);
    loan = packet.loan;
    packet.loan.lender = nullptr;
    set_free(packet);
    return 0;
}

} // namespace

int drop(Packet &packet)
{
    if ((packet.refs.load(std::memory_order_relaxed) & Packet::kOwn) != 0) [[likely]]
        return drop_own(packet);
    sock::Loan loan;
    int left = 0;
    {
        const SpinGuard guard(g_tables.packets_lock);
        left = leave(packet, loan);
    }
    loan.end();
    return left;
}

bool drop(const void *id, const sock::Socket &s)
{
    Packet *const packet = find_packet(id);
    if (packet == nullptr || !is_of(*packet, s))
        return false;
    static_cast<void>(drop(*packet));
    return true;
}

int add(Packet &packet)
{
    if ((packet.refs.load(std::memory_order_relaxed) & Packet::kOwn) != 0)
        return add_own(packet);
    const SpinGuard guard(g_tables.packets_lock);
    const std::uint32_t refs = packet.refs.load(std::memory_order_relaxed);
    if (refs == 0 || (refs & Packet::kOwn) != 0)
        return -1;
    packet.refs.store(refs + 1, std::memory_order_release);
    return static_cast<int>(refs + 1);
}

void drop_all(sock::Socket &s)
{
    for (;;) {
        sock::Loan loan;
        {
            const SpinGuard guard(g_tables.packets_lock);
            State *const state = find_state(s);
            Packet *const packet = state != nullptr ? state->packets : nullptr;
            if (packet == nullptr)
                return;
            state->packets = packet->next;
            if (packet->next != nullptr)
                packet->next->prev = nullptr;
            packet->refs.store(0, std::memory_order_release);
            loan = std::exchange(packet->loan, {});
            set_free(*packet);
        }
        loan.end();
    }
}

void packets_after_fork_in_child()
{
    g_tables.packets_lock.reset();
    Packet *const all = g_tables.packets.load(std::memory_order_relaxed);
    g_tables.free_packets = nullptr;
    g_tables.returned_packets.store(nullptr, std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < g_tables.used_packets.load(std::memory_order_relaxed); ++i) {
        if (all[i].refs.exchange(0, std::memory_order_relaxed) != 0)
            if (State *const state = find_state(*all[i].socket))
                state->packets = state->first_ready = state->last_ready = nullptr;
        all[i].loan = {};
        set_free(all[i]);
    }
    g_tables.held_packets.store(0, std::memory_order_relaxed);
}

} // namespace vma::extra
