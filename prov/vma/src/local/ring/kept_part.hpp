// SPDX-License-Identifier: BSD-2-Clause
// What the reader of a ring, or of its spill, has lent of it. While little is out, the head waits in front of the
// oldest loan, and neither side pays for more; what stays out longer is marked in the bits that the writer looks at,
// and the head goes on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <sys/mman.h>

namespace vma::local {

// The receiver's: a bit a line of a part. Lines of records that its program has not given back are not written again,
// also where the head is beyond them. Set before the head passes them; cleared at any time.
using KeptWord = std::atomic<std::uint64_t>;
inline constexpr std::size_t kLinesPerWord = 64;
inline constexpr std::size_t kLineBytes = 64;

// One thread at a time lends and publishes, any gives back. Positions and lengths are multiples of a line.
class KeptPart
{
public:
    // `words`: a bit a line; `keeps`: to be 1 once one was set; `users`: one more for each record that is marked.
    void attach(std::size_t bytes, KeptWord *words, std::atomic<std::uint32_t> &keeps,
                std::atomic<std::uint32_t> &users) noexcept
    {
        bytes_ = bytes;
        words_ = words;
        keeps_ = &keeps;
        users_ = &users;
        const std::size_t size = bytes / kLineBytes * sizeof(std::atomic<State>);
        void *const memory = // of which no page is touched before there is a loan
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        states_ = {memory != MAP_FAILED ? static_cast<std::atomic<State> *>(memory) : nullptr, Unmap{size}};
    }

    // False: half of the part is out already, the place is out (a writer that lies), or there is no memory.
    bool may_keep(std::uint64_t position, std::size_t length) const noexcept
    {
        const std::size_t out = waiting_lines_ + marked_.load(std::memory_order_relaxed);
        if (out + length / kLineBytes > bytes_ / kLineBytes / 2 || !states_)
            return false;
        return out == 0 || state_of(position).load(std::memory_order_relaxed) == State::kIn;
    }
    // What stands there stays readable until unkeep().
    void keep(std::uint64_t position, std::size_t length) noexcept
    {
        if (count_ != 0)
            make_room(position);
        state_of(position).store(State::kOut, std::memory_order_relaxed);
        waiting_[(first_ + count_++) % kMostWaiting] = {position, length};
        waiting_lines_ += length / kLineBytes;
    }
    // Any thread, once for each keep(). True: it was marked, so there is one user less to be counted; else nothing of
    // this may be touched any more.
    bool unkeep(std::size_t offset, std::size_t length) noexcept
    {
        if (state_of(offset).exchange(State::kIn, std::memory_order_acq_rel) == State::kOut) [[likely]]
            return false;
        unmark({offset, length});
        return true;
    }
    // How far the head may go when everything up to `next` was taken.
    std::uint64_t free_up_to(std::uint64_t next) noexcept
    {
        if (count_ == 0) [[likely]]
            return next;
        make_room(next);
        return count_ != 0 ? oldest().position : next;
    }
    void mark_all() noexcept // so that the head need not wait
    {
        while (count_ != 0)
            mark_oldest();
    }

private:
    static constexpr std::size_t kMostWaiting = 64; // loans that the head waits for
    static constexpr std::size_t kShare = 8;        // of the part, at most, is not free for it

    enum class State : std::uint8_t {
        kIn,
        kOut,    // the head waits for it
        kMarked, // in the bits
    };
    struct Loan {
        std::uint64_t position;
        std::size_t length;
    };

    struct Unmap {
        std::size_t size;
        void operator()(std::atomic<State> *states) const noexcept { ::munmap(states, size); }
    };

    std::atomic<State> &state_of(std::uint64_t position) const noexcept
    {
        return states_.get()[(position & (bytes_ - 1)) / kLineBytes];
    }
    const Loan &oldest() const noexcept { return waiting_[first_]; }
    void leave_oldest() noexcept
    {
        waiting_lines_ -= oldest().length / kLineBytes;
        first_ = (first_ + 1) % kMostWaiting;
        --count_;
    }
    // For one more loan, and so that all that waits lies within a share before `next`: no place stands in the list
    // twice.
    void make_room(std::uint64_t next) noexcept
    {
        while (count_ != 0) {
            if (state_of(oldest().position).load(std::memory_order_acquire) != State::kOut)
                leave_oldest();
            else if (count_ == kMostWaiting || next - oldest().position > bytes_ / kShare)
                mark_oldest();
            else
                return;
        }
    }
    void mark_oldest() noexcept
    {
        const Loan loan = oldest();
        leave_oldest();
        marked_.fetch_add(static_cast<std::uint32_t>(loan.length / kLineBytes), std::memory_order_relaxed);
        users_->fetch_add(1, std::memory_order_relaxed);
        if (keeps_->load(std::memory_order_relaxed) == 0)
            keeps_->store(1, std::memory_order_relaxed);
        set(loan, true);
        State expected = State::kOut;
        if (state_of(loan.position)
                .compare_exchange_strong(expected, State::kMarked, std::memory_order_acq_rel,
                                         std::memory_order_acquire))
            return;
        unmark(loan); // it came back meanwhile
        users_->fetch_sub(1, std::memory_order_relaxed);
    }
    void unmark(const Loan &loan) noexcept
    {
        set(loan, false);
        marked_.fetch_sub(static_cast<std::uint32_t>(loan.length / kLineBytes), std::memory_order_relaxed);
    }
    void set(const Loan &loan, bool on) noexcept
    {
        std::size_t lines = loan.length / kLineBytes;
        for (std::size_t line = (loan.position & (bytes_ - 1)) / kLineBytes; lines != 0;) {
            const std::size_t bit = line % kLinesPerWord;
            const std::size_t here = std::min(lines, kLinesPerWord - bit);
            const std::uint64_t mask = (here == kLinesPerWord ? ~UINT64_C(0) : (UINT64_C(1) << here) - 1) << bit;
            KeptWord &word = words_[line / kLinesPerWord];
            if (on)
                word.fetch_or(mask, std::memory_order_relaxed);
            else
                word.fetch_and(~mask, std::memory_order_release);
            line += here;
            lines -= here;
        }
    }

    std::size_t bytes_ = 0; // a power of two
    KeptWord *words_ = nullptr;
    std::atomic<std::uint32_t> *keeps_ = nullptr;
    std::atomic<std::uint32_t> *users_ = nullptr;
    std::unique_ptr<std::atomic<State>, Unmap> states_; // of the line where a record begins
    Loan waiting_[kMostWaiting] = {};                   // in the order of the part
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    std::size_t waiting_lines_ = 0;
    std::atomic<std::uint32_t> marked_{0}; // lines: our own count, which the writer can't touch
};

} // namespace vma::local
