// SPDX-License-Identifier: BSD-2-Clause
// Each change is made in an order that leaves every frame in at least one place (a list, a ring, a holder's mark), so
// that a process may be killed between any two stores; recover() sees to it that it is in no more than one.
#include "ether/xdp/frame_pool.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <vector>

#include "core/clock.hpp"
#include "core/kernel.hpp"
#include "core/spinlock.hpp"

namespace vma::ether {
namespace {

constexpr int kSpins = 2000;                         // looks at the lock, each of some 40 cycles
constexpr std::uint64_t kPatience = 100'000'000;     // nanoseconds for who holds the lock and was descheduled
constexpr auto kRelaxed = std::memory_order_relaxed; // the lock orders; a process that was killed has done its stores

std::size_t rounded(std::size_t bytes) noexcept
{
    return (bytes + 63) / 64 * 64;
}

} // namespace

std::size_t FramePool::bytes(const FramePoolSize &size) noexcept
{
    const std::size_t buffers = size.receive + std::size_t{size.send} * size.send_buffers;
    return rounded(sizeof(Shared)) + rounded((std::size_t{size.receive} + size.send) * sizeof(std::uint32_t)) +
           rounded(2 * buffers);
}

FramePool::FramePool(void *memory, const FramePoolSize &size, unsigned place) noexcept
    : size_(size), place_(place), mine_(static_cast<Holder>(place + 1))
{
    auto *at = static_cast<std::byte *>(memory);
    shared_ = reinterpret_cast<Shared *>(at);
    at += rounded(sizeof(Shared));
    receive_stack_ = reinterpret_cast<std::atomic<std::uint32_t> *>(at);
    send_stack_ = receive_stack_ + size.receive;
    at += rounded((std::size_t{size.receive} + size.send) * sizeof(std::uint32_t));
    holders_ = reinterpret_cast<std::atomic<Holder> *>(at);
    unsent_ = reinterpret_cast<std::atomic<std::uint8_t> *>(holders_ + buffers());
}

void FramePool::use(const XdpRing<std::uint64_t> &fill, const XdpRing<std::uint64_t> &completed) noexcept
{
    fill_ = fill;
    completed_ = completed;
}

void FramePool::begin() noexcept
{
    for (FrameIndex i = size_.send; i-- > 0;) // the lowest is taken first
        push(size_.receive + i * size_.send_buffers);
    for (FrameIndex i = size_.receive; i-- > 0;)
        push(i);
    top_up();
}

// ---- the lock -------------------------------------------------------------------------------------------------------

bool FramePool::try_lock() noexcept
{
    for (int i = 0; i < kSpins; ++i) {
        std::uint32_t free = 0;
        if (shared_->lock.load(kRelaxed) == 0 &&
            shared_->lock.compare_exchange_strong(free, place_ + 1, std::memory_order_acquire, kRelaxed))
            return true;
        core::cpu_relax();
    }
    return false;
}

// Also where a process has it that is dead: what that was doing is ended.
bool FramePool::lock(std::uint32_t dead) noexcept
{
    const std::uint64_t end = core::monotonic_ns() + kPatience;
    do {
        std::uint32_t holder = shared_->lock.load(std::memory_order_acquire);
        if (holder == 0 && try_lock())
            return true;
        if (holder != 0 && holder <= kMostPlaces && (dead >> (holder - 1) & 1) != 0 &&
            shared_->lock.compare_exchange_strong(holder, place_ + 1, std::memory_order_acquire, kRelaxed)) {
            finish_for_the_dead();
            return true;
        }
        const timespec pause{0, 100'000};
        core::kernel::nanosleep(&pause, nullptr);
    } while (core::monotonic_ns() < end);
    return false;
}

// ---- lists and rings, under the lock --------------------------------------------------------------------------------

void FramePool::push(FrameIndex frame) noexcept
{
    const bool received = is_receive_frame(frame);
    std::atomic<std::uint32_t> &count = received ? shared_->receive_free : shared_->send_free;
    const std::uint32_t at = count.load(kRelaxed);
    if (at >= (received ? size_.receive : size_.send)) [[unlikely]]
        return; // the memory was spoilt
    (received ? receive_stack_ : send_stack_)[at].store(frame, kRelaxed);
    count.store(at + 1, std::memory_order_release);
    holders_[frame].store(0, std::memory_order_release);
}

// It is ours before it is off the list. kNoFrame: there is none.
FrameIndex FramePool::pop(std::atomic<std::uint32_t> &count, const std::atomic<std::uint32_t> *stack) noexcept
{
    const std::uint32_t left = count.load(kRelaxed);
    if (left == 0 || left > (stack == receive_stack_ ? size_.receive : size_.send))
        return kNoFrame;
    const FrameIndex frame = stack[left - 1].load(kRelaxed);
    if (frame >= buffers()) [[unlikely]]
        return kNoFrame;
    holders_[frame].store(mine_, std::memory_order_release);
    count.store(left - 1, std::memory_order_release);
    return frame;
}

// Frames that we hold, as many as the fill ring has room for and the rest to the list. They are nobody's before the
// kernel sees them: whoever gets one holds it at once, without the lock.
void FramePool::publish(std::span<const FrameIndex> frames) noexcept
{
    fill_.resume_producing();
    const std::size_t fitting = std::min<std::size_t>(frames.size(), fill_.space());
    if (fitting != 0) {
        shared_->publishing_from.store(fill_.position(), std::memory_order_release);
        for (const FrameIndex frame : frames.first(fitting))
            fill_.put(address(frame));
        shared_->publishing.store(static_cast<std::uint32_t>(fitting) << 8 | mine_, std::memory_order_release);
        for (const FrameIndex frame : frames.first(fitting))
            holders_[frame].store(0, std::memory_order_release);
        fill_.publish();
        shared_->publishing.store(0, std::memory_order_release);
    }
    for (const FrameIndex frame : frames.subspan(fitting))
        push(frame);
}

bool FramePool::put_back(std::span<const FrameIndex> frames) noexcept
{
    if (frames.empty())
        return true;
    if (!try_lock())
        return false;
    publish(frames);
    unlock();
    if (is_short()) [[unlikely]]
        top_up();
    return true;
}

void FramePool::top_up() noexcept
{
    if (!try_lock())
        return;
    fill_.resume_producing();
    std::array<FrameIndex, kMostReaped> batch;
    for (std::uint32_t room = fill_.size() - fill_.level(); room != 0;) {
        std::size_t count = 0;
        while (count < std::min<std::size_t>(room, batch.size()) &&
               (batch[count] = pop(shared_->receive_free, receive_stack_)) != kNoFrame)
            ++count;
        if (count == 0)
            break;
        publish(std::span(batch).first(count));
        room -= static_cast<std::uint32_t>(count);
    }
    unlock();
}

FrameIndex FramePool::first_buffer(std::uint64_t address) const noexcept
{
    const std::uint64_t buffer = address / size_.frame_size;
    if (buffer >= buffers())
        return kNoFrame;
    const auto index = static_cast<FrameIndex>(buffer);
    return is_receive_frame(index) ? index : index - (index - size_.receive) % size_.send_buffers;
}

// The kernel tells of each buffer, in any order: a frame is free with the last of its own. It is then, or kNoFrame.
// Whoever ends this for a process that has died knows how far that was.
FrameIndex FramePool::settle(std::uint32_t number) noexcept
{
    const FrameIndex frame = first_buffer(address(shared_->reaped[number].load(kRelaxed)));
    if (frame == kNoFrame) [[unlikely]]
        return kNoFrame;
    std::uint32_t noted = shared_->reaping_further.load(kRelaxed);
    if (noted >> 16 != number + 1) {
        noted = (number + 1) << 16 | unsent_[frame].load(kRelaxed);
        shared_->reaping_further.store(noted, std::memory_order_release);
    }
    const std::uint32_t further = noted & 0xffff;
    if (further == 0)
        return frame;
    unsent_[frame].store(static_cast<std::uint8_t>(further - 1), std::memory_order_release);
    return kNoFrame;
}

void FramePool::note_queued(FrameIndex frame, std::uint32_t position, std::uint32_t further) noexcept
{
    unsent_[frame].store(static_cast<std::uint8_t>(further), kRelaxed);
    shared_->places[place_].written.store(position, std::memory_order_release);
    holders_[frame].store(mine_ | kQueued, std::memory_order_release);
}

// What was sent is noted before it is taken out of the ring, and struck out as soon as it is ours, before another
// process can have it.
std::size_t FramePool::reap_locked(std::span<FrameIndex> frames, std::size_t held) noexcept
{
    completed_.resume_consuming();
    while (const std::uint32_t count = std::min(completed_.ready(), kMostReaped)) {
        shared_->reaping_from.store(completed_.position(), kRelaxed);
        for (std::uint32_t i = 0; i < count; ++i)
            shared_->reaped[i].store(static_cast<std::uint32_t>(completed_.get() / size_.frame_size), kRelaxed);
        shared_->reaped_count.store(count, kRelaxed);
        shared_->reaped_done.store(0, kRelaxed);
        shared_->reaping_further.store(0, kRelaxed);
        shared_->reaping.store(1, std::memory_order_release);
        completed_.give_back();
        for (std::uint32_t i = 0; i < count; ++i) {
            const FrameIndex frame = settle(i);
            if (frame != kNoFrame)
                hold(frame);
            shared_->reaped_done.store(i + 1, std::memory_order_release);
            if (frame == kNoFrame)
                continue;
            if (is_receive_frame(frame))
                publish({&frame, 1});
            else if (held < frames.size())
                frames[held++] = frame;
            else
                push(frame);
        }
        shared_->reaping.store(0, std::memory_order_release);
    }
    return held;
}

std::size_t FramePool::reap(std::span<FrameIndex> frames, std::size_t held) noexcept
{
    if (!try_lock())
        return held;
    held = reap_locked(frames, held);
    unlock();
    return held;
}

std::size_t FramePool::take(std::span<FrameIndex> frames, std::size_t held) noexcept
{
    if (!try_lock())
        return held;
    held = reap_locked(frames, held);
    while (held == 0 || (held < frames.size() / 2)) {
        const FrameIndex frame = pop(shared_->send_free, send_stack_);
        if (frame == kNoFrame)
            break;
        frames[held++] = frame;
    }
    unlock();
    return held;
}

bool FramePool::give_back(std::span<const FrameIndex> frames) noexcept
{
    if (!try_lock())
        return false;
    for (const FrameIndex frame : frames)
        push(frame);
    unlock();
    return true;
}

std::uint32_t FramePool::note_lent(std::uint32_t count) noexcept
{
    std::atomic<std::uint32_t> &ours = shared_->places[place_].lent;
    const std::uint32_t before = ours.load(kRelaxed);
    if (before != count) [[unlikely]] {
        ours.store(count, kRelaxed);
        shared_->lent.fetch_add(count - before, kRelaxed);
    }
    const std::uint32_t all = shared_->lent.load(kRelaxed);
    return all > count ? all - count : 0;
}

std::uint32_t FramePool::free_to_receive() const noexcept
{
    return std::min(shared_->receive_free.load(kRelaxed) + fill_.level(), size_.receive);
}

std::uint32_t FramePool::free_to_send() const noexcept
{
    return std::min(shared_->send_free.load(kRelaxed), size_.send);
}

// ---- what the dead have left ----------------------------------------------------------------------------------------

class FramePool::Marks
{
public:
    explicit Marks(std::uint32_t buffers) : bits_(buffers) {}
    bool has(FrameIndex frame) const noexcept { return frame >= bits_.size() || bits_[frame]; }
    void set(FrameIndex frame) noexcept
    {
        if (frame < bits_.size())
            bits_[frame] = true;
    }

private:
    std::vector<bool> bits_;
};

// The lock is ours, and was another's that has died: what it has told the kernel is done, what it hasn't is not.
void FramePool::finish_for_the_dead() noexcept
{
    fill_.resume_producing();
    const std::uint32_t publishing = shared_->publishing.load(kRelaxed);
    const std::uint32_t from = shared_->publishing_from.load(kRelaxed);
    if (publishing != 0 && fill_.position() == from) { // the kernel has seen none of them
        const std::uint32_t unseen = std::min(publishing >> 8, fill_.size());
        for (std::uint32_t i = 0; i < unseen; ++i) {
            const FrameIndex frame = first_buffer(fill_.at(from + i));
            if (frame != kNoFrame)
                holders_[frame].store(static_cast<Holder>(publishing), kRelaxed);
        }
    }
    shared_->publishing.store(0, std::memory_order_release);
    completed_.resume_consuming();
    const bool taken =
        shared_->reaping.load(kRelaxed) != 0 && completed_.position() != shared_->reaping_from.load(kRelaxed);
    const std::uint32_t count = taken ? std::min(shared_->reaped_count.load(kRelaxed), kMostReaped) : 0;
    Marks free(buffers());
    mark_free(free);
    for (std::uint32_t i = shared_->reaped_done.load(kRelaxed); i < count; ++i) {
        const FrameIndex whose = first_buffer(address(shared_->reaped[i].load(kRelaxed)));
        const bool there = whose == kNoFrame || holders_[whose].load(kRelaxed) == 0 || free.has(whose);
        if (!there && settle(i) == whose)
            push(whose);
        shared_->reaped_done.store(i + 1, std::memory_order_release);
    }
    shared_->reaping.store(0, std::memory_order_release);
}

void FramePool::mark_free(Marks &marks) const noexcept
{
    const std::uint32_t received = std::min(shared_->receive_free.load(kRelaxed), size_.receive);
    for (std::uint32_t i = 0; i < received; ++i)
        marks.set(receive_stack_[i].load(kRelaxed));
    const std::uint32_t sent = std::min(shared_->send_free.load(kRelaxed), size_.send);
    for (std::uint32_t i = 0; i < sent; ++i)
        marks.set(send_stack_[i].load(kRelaxed));
}

// What it had received and not looked at, and what it had written and not told the kernel to send, is marked as its
// own before it leaves the ring: whoever does this may be killed too.
void FramePool::hold_estate(const Estate &estate, Holder theirs) noexcept
{
    estate.received->resume_consuming();
    for (std::uint32_t left = estate.received->ready(); left != 0; --left) {
        const FrameIndex frame = first_buffer(estate.received->get().addr);
        if (frame != kNoFrame)
            holders_[frame].store(theirs, std::memory_order_release);
    }
    estate.received->give_back();
    estate.queued->resume_producing();
    const std::uint32_t written = shared_->places[estate.place].written.load(std::memory_order_acquire);
    if (written - estate.queued->position() > estate.queued->size())
        return; // nothing was written since the kernel was told
    for (std::uint32_t at = estate.queued->position(); at != written; ++at) {
        const FrameIndex frame = first_buffer(estate.queued->at(at).addr);
        if (frame != kNoFrame)
            holders_[frame].store(theirs, std::memory_order_release);
    }
    shared_->places[estate.place].written.store(estate.queued->position(), std::memory_order_release);
}

bool FramePool::recover(const Estate &estate, std::uint32_t dead) noexcept
{
    if (!lock(dead))
        return false;
    const auto theirs = static_cast<Holder>(estate.place + 1);
    Marks free(buffers());
    mark_free(free);
    hold_estate(estate, theirs);
    for (FrameIndex frame = 0; frame < buffers(); frame += is_receive_frame(frame) ? 1 : size_.send_buffers) {
        if (holders_[frame].load(kRelaxed) != theirs)
            continue;
        unsent_[frame].store(0, kRelaxed);
        if (free.has(frame))
            holders_[frame].store(0, kRelaxed);
        else
            push(frame);
    }
    shared_->places[estate.place].lent.store(0, kRelaxed);
    std::uint32_t lent = 0;
    for (const Shared::Place &place : shared_->places)
        lent += place.lent.load(kRelaxed);
    shared_->lent.store(lent, kRelaxed);
    unlock();
    top_up();
    return true;
}

} // namespace vma::ether
