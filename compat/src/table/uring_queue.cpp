// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/table/uring_queue.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace vma::sock {

namespace {

constexpr std::uint32_t kWord = sizeof(std::uint32_t);

bool fits(std::uint64_t offset, std::uint64_t size, std::size_t room)
{
    return offset % kWord == 0 && offset + size <= room;
}

std::uint64_t as_word(const UringHead &head)
{
    return std::bit_cast<std::uint64_t>(head);
}

} // namespace

bool UringQueue::is_sane(const Layout &layout)
{
    return layout.count <= kMostEntries && std::has_single_bit(layout.count) && layout.stride >= sizeof(io_uring_sqe) &&
           layout.stride % sizeof(std::uint64_t) == 0 && fits(layout.head, kWord, layout.words_size) &&
           fits(layout.tail, kWord, layout.words_size) &&
           fits(layout.array, layout.array != 0 ? std::uint64_t{layout.count} * kWord : 0, layout.words_size);
}

void UringQueue::begin(const Layout &layout, Change *changes)
{
    layout_ = layout;
    changes_ = changes;
    changed_count_ = 0;
    claimed_ = head();
    calls_ = 0;
    was_left_ = false;
}

std::uint32_t UringQueue::word(std::size_t offset) const
{
    return std::atomic_ref(*reinterpret_cast<std::uint32_t *>(layout_.words + offset)).load(std::memory_order_acquire);
}

std::uint32_t UringQueue::claim(std::uint32_t wanted, std::uint32_t &first)
{
    const std::uint32_t taken = head();
    if (static_cast<std::int32_t>(taken - claimed_) > 0)
        claimed_ = taken;
    first = claimed_;
    const std::uint32_t outstanding = claimed_ - taken;
    const std::uint32_t there = std::min(word(layout_.tail) - taken, layout_.count);
    const std::uint32_t count = there > outstanding ? std::min(wanted, there - outstanding) : 0;
    claimed_ += count;
    ++calls_;
    return count;
}

std::uint32_t UringQueue::outstanding() const
{
    const auto count = static_cast<std::int32_t>(claimed_ - head());
    return count > 0 ? static_cast<std::uint32_t>(count) : 0;
}

void UringQueue::one_call_less()
{
    if (--calls_ == 0)
        claimed_ -= outstanding();
    if (outstanding() == 0)
        was_left_ = false;
}

void UringQueue::end(std::uint32_t count)
{
    claimed_ -= count;
    one_call_less();
}

void UringQueue::leave()
{
    was_left_ = true;
    one_call_less();
}

bool UringQueue::find(std::uint32_t position, std::uint32_t &index) const
{
    index = position & (layout_.count - 1);
    if (layout_.array != 0)
        index = word(layout_.array + std::size_t{index} * kWord);
    return index < layout_.count;
}

std::uint64_t *UringQueue::beginning(std::uint32_t index) const
{
    return reinterpret_cast<std::uint64_t *>(layout_.entries + std::size_t{index} * layout_.stride);
}

bool UringQueue::read(std::uint32_t position, io_uring_sqe &entry) const
{
    std::uint32_t index = 0;
    if (!find(position, index))
        return false;
    memcpy(static_cast<void *>(&entry), beginning(index), sizeof entry);
    return true;
}

UringQueue::Changed UringQueue::changed(std::uint32_t position) const
{
    std::uint32_t index = 0;
    if (!find(position, index) || changes_[index].changed == changes_[index].original)
        return Changed::kNo;
    return changes_[index].position == position ? Changed::kHere : Changed::kElsewhere;
}

bool UringQueue::change(std::uint32_t position, const UringHead &from, const UringHead &to)
{
    std::uint32_t index = 0;
    std::uint64_t expected = as_word(from);
    if (!find(position, index) || changed(position) != Changed::kNo || as_word(to) == expected ||
        !std::atomic_ref(*beginning(index)).compare_exchange_strong(expected, as_word(to)))
        return false;
    Change &change = changes_[index];
    change.original = as_word(from);
    change.changed = as_word(to);
    change.position = position;
    changes_[changed_count_++].listed = index;
    return true;
}

void UringQueue::restore()
{
    std::uint32_t left = 0;
    const std::uint32_t taken = head();
    for (std::uint32_t i = 0; i < changed_count_; ++i) {
        const std::uint32_t index = changes_[i].listed;
        Change &change = changes_[index];
        if (static_cast<std::int32_t>(taken - change.position) <= 0) {
            changes_[left++].listed = index;
            continue;
        }
        std::uint64_t expected = change.changed;
        std::atomic_ref(*beginning(index)).compare_exchange_strong(expected, change.original);
        change.changed = change.original = 0;
    }
    changed_count_ = left;
}

} // namespace vma::sock
