// SPDX-License-Identifier: BSD-2-Clause
// Who is in a completion queue, and how one sleeps on it. Reading is in progress.cpp.
#include "local/queue.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <pthread.h>
#include <sys/epoll.h>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "local/msg/endpoint.hpp"

namespace vma::local {

namespace {

const void *this_thread() noexcept
{
    return reinterpret_cast<const void *>(pthread_self());
}

} // namespace

int Queue::open() noexcept
{
    clock = stamp_clock();
    return doorbell.open();
}

// A sender that is new to us knows no doorbell of ours yet: it is connection management that hears of it, by sockets
// that are in the gate of its endpoint, too. (Its own set can't be in that of each queue: the kernel lets a descriptor
// wake 500 sets by way of another one.)
int Queue::open_wait_set() noexcept
{
    if (wait_set)
        return 0;
    core::UniqueFd set = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    if (!set || !core::watch_fd(set.get(), doorbell.wake_fd()))
        return -errno;
    for (const int gate : gates) {
        if (!core::watch_fd(set.get(), gate))
            return -errno;
    }
    wait_set = std::move(set);
    return 0;
}

int Queue::add_gate(int fd) noexcept
{
    if (fd < 0)
        return 0;
    if (wait_set && !core::watch_fd(wait_set.get(), fd))
        return -errno;
    gates.push_back(fd);
    return 0;
}

void Queue::remove_gate(int fd) noexcept
{
    if (std::erase(gates, fd) != 0 && wait_set)
        unwatch_fd(fd);
}

// Without descriptors the doorbell's wakes, and who has to hear of new senders does so late.
int Queue::sleep_fd() noexcept
{
    const core::SpinGuard guard(lock);
    if (domain.datagrams)
        static_cast<void>(open_wait_set());
    return wait_fd();
}

int Queue::watch_fd(int fd) noexcept
{
    if (const int error = open_wait_set())
        return error;
    return core::watch_fd(wait_set.get(), fd) ? 0 : -errno;
}

int Queue::watch_guest(int fd) noexcept
{
    if (bare_wait_fd)
        return -FI_EOPNOTSUPP;
    return watch_fd(fd);
}

// A timer may join the set at any time, but not a bare eventfd that the program has already.
int Queue::give_wait_fd(int &fd) noexcept
{
    const core::SpinGuard guard(lock);
    const bool bare = untimed && !domain.datagrams;
    if (const int error = bare ? 0 : open_wait_set())
        return error;
    bare_wait_fd = bare;
    fd = bare ? doorbell.wake_fd() : wait_set.get();
    return 0;
}

int Queue::count_by(const std::uint32_t *counter) noexcept
{
    if (counter == nullptr)
        return -FI_EINVAL;
    const core::SpinGuard guard(lock);
    sleepers = counter;
    return 0;
}

bool Queue::grow(std::uint32_t bit) noexcept
{
    if (bit < by_bit_size)
        return true;
    const std::uint32_t wanted = std::max({64U, by_bit_size * 2, bit + 1}); // datagram endpoints have bits too
    std::unique_ptr<Endpoint *[]> bigger(new (std::nothrow) Endpoint *[wanted]());
    std::unique_ptr<Rung[]> more_rung(new (std::nothrow) Rung[wanted]());
    if (!bigger || !more_rung)
        return false;
    std::copy_n(by_bit.get(), by_bit_size, bigger.get());
    std::copy_n(rung.get(), rung_count, more_rung.get());
    by_bit = std::move(bigger);
    rung = std::move(more_rung);
    by_bit_size = wanted;
    return true;
}

int Queue::add(Endpoint &endpoint) noexcept
{
    const int bit = doorbell.allocate_bit();
    if (bit < 0)
        return -FI_ENOSPC;
    endpoint.bit = static_cast<std::uint32_t>(bit);
    if (!grow(endpoint.bit)) {
        doorbell.free_bit(endpoint.bit);
        return -FI_ENOMEM;
    }
    by_bit[endpoint.bit] = &endpoint;
    if (++receivers == 2)
        order(true);
    else if (receivers > 2)
        endpoint.receiver.slots.ask_for_stamps(clock);
    return 0;
}

void Queue::remove(Endpoint &endpoint) noexcept
{
    for (unsigned i = 0; i < active_count; ++i) {
        if (active[i] == &endpoint) {
            std::copy(active + i + 1, active + active_count, active + i);
            --active_count;
            break;
        }
    }
    for (Endpoint **at = &failed; *at; at = &(*at)->failed_next) {
        if (*at == &endpoint) {
            *at = endpoint.failed_next;
            break;
        }
    }
    // A peer that still sets the bit makes us look at whoever has it next, for nothing.
    take_out(endpoint);
    by_bit[endpoint.bit] = nullptr;
    leave_guest(endpoint);
    if (--receivers == 1)
        order(false);
    doorbell.free_bit(endpoint.bit);
    forget(&endpoint);
    while (reporting == &endpoint) {
        lock.unlock();
        core::cpu_relax();
        lock.lock();
    }
}

void Queue::leave_guest(Endpoint &endpoint) noexcept
{
    if (endpoint.guest == nullptr)
        return;
    endpoint.guest->free_bit(endpoint.guest_bit);
    guests.release(*std::exchange(endpoint.guest, nullptr));
}

void Queue::enlist(Sender &sender) noexcept
{
    if (!sender.waiting) {
        sender.waiting = true;
        sender.waiting_next = waiting;
        waiting = &sender;
    }
}

void Queue::watch(Sender &sender) noexcept
{
    enlist(sender);
    // What it waits for may have come already.
    wake_sleepers();
}

void Queue::follow(Sender &sender) noexcept
{
    if (sender.due())
        wait_until(sender.timer(), sender.due());
    if (!sender.only_paced())
        watch(sender);
}

void Queue::unwatch(Sender &sender) noexcept
{
    paced.wheel.remove(sender.timer());
    for (Sender **at = &waiting; *at; at = &(*at)->waiting_next) {
        if (*at == &sender) {
            *at = sender.waiting_next;
            sender.waiting = false;
            return;
        }
    }
}

void Queue::activate(Endpoint &endpoint) noexcept
{
    if (active_count == kActive)
        deactivate(kActive - 1);
    std::copy_backward(active, active + active_count, active + active_count + 1);
    active[0] = &endpoint;
    ++active_count;
    endpoint.is_active = true;
    endpoint.receiver.slots.watch();
}

// From now on the peer rings. What it published before it knew is rung for here.
void Queue::deactivate(unsigned index) noexcept
{
    Endpoint &endpoint = *active[index];
    std::copy(active + index + 1, active + active_count, active + index);
    --active_count;
    endpoint.is_active = false;
    SlotReader &slots = endpoint.receiver.slots;
    slots.ask_for_ring();
    if (slots.ready() && !endpoint.stalled.load(std::memory_order_relaxed))
        doorbell.ring_self(endpoint.bit);
    if (slots.unchecked() && slots.writer_wants_space())
        endpoint.wake_writer();
}

// Moves an active endpoint one place forward: who is silent ends up last.
void Queue::touch(unsigned index) noexcept
{
    if (index)
        std::swap(active[index], active[index - 1]);
}

bool Queue::rings_often(std::uint32_t bit) noexcept
{
    const bool seen = std::find(std::begin(recent), std::end(recent), bit + 1) != std::end(recent);
    recent[recent_at++ % std::size(recent)] = bit + 1;
    return seen;
}

void Queue::wake_sleepers() noexcept
{
    if (armed)
        doorbell.wake_self();
}

// Beside the thread that reads. Who is counted has still to take the lock and arm, or has, and sees what is decided
// here.
bool Queue::others_sleep() noexcept
{
    if (sleepers != nullptr)
        return __atomic_load_n(sleepers, __ATOMIC_SEQ_CST) != 0;
    many_sleepers |= armed_by != this_thread();
    return many_sleepers;
}

// Who doesn't count them sleeps on it.
bool Queue::sleeps_by_descriptor() const noexcept
{
    return sleepers == nullptr || __atomic_load_n(sleepers, __ATOMIC_SEQ_CST) != 0;
}

// With several threads that may sleep on the descriptor, it is unreadable only while the queue is armed: then none of
// them is forgotten when another has read the queue.
void Queue::disarm(bool readable) noexcept
{
    armed = false;
    const bool was_rung = !doorbell.disarm();
    const bool has_guest_rung = guests.disarm();
    wakes += was_rung || has_guest_rung ? 1 : 0;
    if (others_sleep() || (readable && !doorbell.readable()))
        doorbell.wake_self();
    else if (!readable && doorbell.readable())
        doorbell.drain();
}

void Queue::ring_all() noexcept
{
    for (std::uint32_t bit = 0; bit < by_bit_size; ++bit) {
        if (by_bit[bit] && by_bit[bit]->receiver.slots.ready() && !by_bit[bit]->stalled.load(std::memory_order_relaxed))
            doorbell.ring_self(bit);
    }
    inlets.ring_all();
}

bool Queue::anything(Entries which) noexcept
{
    const bool unread = which == Entries::count && !entries.empty();
    return unread || rung_count || failed || signalled || rung_for();
}

bool Queue::arm(Entries which, Tell tell, bool *due) noexcept
{
    if (armed && armed_by != this_thread())
        many_sleepers = true;
    if (!armed) {
        while (active_count)
            deactivate(active_count - 1);
        inlets.deactivate_all();
    }
    if (!armed && sleeps_by_descriptor()) {
        if (doorbell.readable())
            doorbell.drain();
        guests.arm();
        doorbell.arm(); // and a fence
        armed = true;
        armed_by = this_thread();
        ++armings;
    }
    News news;
    if (!paced.wheel.empty())
        collect_due();
    advance_senders(&news, tell);
    news.due |= paced.refused_is_due;
    if (tell == Tell::caller)
        paced.refused_is_due = false;
    if (!news.some && !news.due && !anything(which) && inlets.may_sleep()) {
        set_timer();
        return true;
    }
    if (armed)
        disarm();
    if (due)
        *due = news.due;
    return false;
}

// libfabric's own waits ask fi_trywait(), read once more, and then sleep, whatever that read found: it may not have
// been what they wait for. So after one that found something the descriptor is readable until the queue is armed again;
// one that found nothing leaves it armed. It is armed anew where something has rung, as who has rung for a sleep does
// it once. Who counts its sleepers has asked for the opposite (suspend()).
void Queue::end_armed_read(bool found) noexcept
{
    const void *const by = armed_by;
    armed = true;
    if (found) {
        disarm(true);
        return;
    }
    if (active_count == 0 && !inlets.any_active() && !doorbell.readable())
        return;
    disarm();
    if (!arm(Entries::count, Tell::nobody))
        doorbell.wake_self(); // for who sleeps
    else
        armed_by = by;
}

bool Queue::arm_all(Entries which, bool *due) noexcept
{
    bool some = false;
    {
        const core::SpinGuard guard(lock);
        if (!arm(which, Tell::caller, due))
            return false;
        some = companions.any();
    }
    const auto arm_one = [](Queue &other) {
        const core::SpinGuard guard(other.lock);
        return other.arm(Entries::pass, Tell::nobody);
    };
    if (!some || companions.each(arm_one))
        return true;
    const core::SpinGuard guard(lock);
    if (armed)
        disarm();
    return false;
}

// The senders that wait for their peers.
void Queue::advance_senders(News *news, Tell tell) noexcept
{
    for (Sender **at = &waiting; *at;) {
        Sender &sender = **at;
        if (!sender.try_lock()) {
            if (news)
                news->some = true;
            at = &sender.waiting_next;
            continue;
        }
        sender.advance(true);
        if (news && sender.may_try_again()) {
            (sender.refused() ? news->due : news->some) = true;
            if (tell == Tell::caller)
                sender.told_to_try_again();
        }
        const bool rests = sender.idle() || sender.only_paced();
        if (sender.due() && !sender.idle())
            wait_until(sender.timer(), sender.due());
        sender.unlock();
        if (rests) {
            *at = sender.waiting_next;
            sender.waiting = false;
        } else {
            at = &sender.waiting_next;
        }
    }
}

// What rings for an endpoint beside its slots.
void Queue::attend(Endpoint &endpoint) noexcept
{
    endpoint.attention.store(false, std::memory_order_relaxed);
    core::full_fence();
    if (const int error = endpoint.ending.exchange(0, std::memory_order_acq_rel))
        endpoint.end(error);
    if (!endpoint.failing.load(std::memory_order_acquire))
        return;
    endpoint.receiver.open.store(false, std::memory_order_relaxed);
    if (endpoint.reported)
        return;
    endpoint.reported = true;
    endpoint.failed_next = failed;
    failed = &endpoint;
}

// Without memory for a completion there is no good way on; the program should at least not wonder.
void Queue::note_loss() noexcept
{
    VMA_WARN(cq, "no memory: a completion is lost");
}

void Queue::report_failures() noexcept
{
    lock.lock();
    while (failed && !reporting) {
        Endpoint &endpoint = *failed;
        failed = endpoint.failed_next;
        reporting = &endpoint; // fi_close() of it waits
        lock.unlock();
        endpoint.report(endpoint, endpoint.failure);
        lock.lock();
        reporting = nullptr;
    }
    lock.unlock();
}

ofi::ProgressSource Queue::source() noexcept
{
    return {
        .object = this,
        .progress = [](void *object) noexcept { static_cast<Queue *>(object)->progress(); },
        .arm =
            [](void *object) noexcept {
                Queue &queue = *static_cast<Queue *>(object);
                return queue.arm_all(Entries::pass) ? queue.sleep_fd() : -1;
            },
    };
}

} // namespace vma::local
