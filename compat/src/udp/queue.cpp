// SPDX-License-Identifier: BSD-2-Clause
// The ring starts again at its beginning whenever it was read empty, so that little traffic stays in little memory.
#include "compat/src/udp/queue.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace vma::sock::udp {

namespace {

constexpr std::size_t kLeastRing = std::size_t{256} << 10; // has room for the longest datagram wherever it begins
constexpr std::size_t kMostRing = std::size_t{1} << 30;
constexpr std::size_t kRestartAfter = std::size_t{1} << 10; // so that many queues fit into a cache together
constexpr std::size_t kAlign = sizeof(Queued); // what is left of the ring always has room for one that says so

constexpr std::size_t record_size(std::size_t length)
{
    return (sizeof(Queued) + length + kAlign - 1) & ~(kAlign - 1);
}

} // namespace

Queued *Queue::front()
{
    if (empty())
        return nullptr;
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    Queued *const first = at(head);
    if (first->size != kSkip) [[likely]]
        return first;
    head_.store((head | (capacity_ - 1)) + 1, std::memory_order_release);
    return empty() ? nullptr : at(head_.load(std::memory_order_relaxed));
}

void Queue::pop()
{
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    Queued *const first = at(head);
    if (first->is_lent()) [[unlikely]]
        first->loan().end();
    head_.store(head + (first->size & ~Queued::kLent), std::memory_order_release);
}

void Queue::own_loans()
{
    each([](Queued &record) {
        if (!record.is_lent())
            return;
        const Loan copy = lend_copy(record.bytes(), record.length);
        record.loan().end();
        record.loan() = copy;
        record.length = static_cast<std::uint32_t>(copy.length());
    });
}

bool Queue::make_ring()
{
    const std::size_t wanted = std::bit_ceil(std::clamp(2 * limit_, kLeastRing, kMostRing));
    void *const memory =
        ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    ring_ = static_cast<std::uint8_t *>(memory);
    capacity_ = wanted;
    return true;
}

// A record is never split: what is left of the ring is skipped. nullptr: no room.
Queued *Queue::claim(std::size_t length)
{
    if (ring_ == nullptr && !make_ring()) [[unlikely]]
        return nullptr;
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::size_t size = record_size(length);
    const std::size_t left = capacity_ - (tail & (capacity_ - 1));
    const bool none = head == tail;
    const std::uint64_t held = tail - head - (head < skip_end_ ? skipped_ : 0);
    if (held > limit_ || size > capacity_) // as in the kernel, the last one may be beyond the limit
        return nullptr;
    if (left < size || (none && capacity_ - left > kRestartAfter)) {
        if (!none && tail + left + size - head > capacity_)
            return nullptr;
        new (at(tail)) Queued{0, kSkip, {}};
        skip_end_ = tail + left; // from here on it is pushed: else the next one would count what was not skipped
        skipped_ = left;
        if (none) // a reader that still sees the old place finds the way from there
            head_.store(skip_end_, std::memory_order_relaxed);
        tail = skip_end_; // told with the record: a reader that sees it looks there
    } else if (tail + size - head > capacity_) {
        return nullptr;
    }
    claimed_ = tail;
    return at(tail);
}

bool Queue::push(const About &about, const iovec *parts, std::size_t count, std::size_t length)
{
    Queued *const place = claim(length);
    if (place == nullptr)
        return false;
    const auto size = static_cast<std::uint32_t>(record_size(length));
    gather((new (place) Queued{static_cast<std::uint32_t>(length), size, about})->memory(), parts, count);
    publish(size);
    return true;
}

bool Queue::push(const About &about, const Loan &loan)
{
    Queued *const place = claim(sizeof loan);
    if (place == nullptr)
        return false;
    constexpr auto kSize = static_cast<std::uint32_t>(record_size(sizeof loan));
    loan.begin(); // the reader may have read it, and its program given it back, before this returns
    new (place) Queued{static_cast<std::uint32_t>(loan.length()), kSize | Queued::kLent, about};
    new (place->memory()) Loan(loan);
    publish(kSize);
    return true;
}

bool Queue::reserve()
{
    return ring_ != nullptr || make_ring();
}

void Queue::set_limit(std::size_t bytes)
{
    const bool is_larger = bytes > std::exchange(limit_, bytes);
    std::uint8_t *const before = ring_;
    const std::size_t its_size = capacity_;
    if (!is_larger || before == nullptr || !empty() || !make_ring()) // what there is will do
        return;
    ::munmap(before, its_size);
    begin();
}

void Queue::release()
{
    while (front() != nullptr)
        pop();
    if (ring_ != nullptr)
        ::munmap(ring_, capacity_);
    ring_ = nullptr;
    capacity_ = 0;
    begin();
}

void Queue::begin()
{
    head_.store(0, std::memory_order_relaxed);
    tail_.store(0, std::memory_order_relaxed);
    skip_end_ = skipped_ = mark_ = 0;
}

} // namespace vma::sock::udp
