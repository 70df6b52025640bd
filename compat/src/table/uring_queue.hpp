// SPDX-License-Identifier: BSD-2-Clause
// The submission queue of one io_uring(7), in memory that the kernel and the program share: what the program asks for
// is read here before the kernel reads it. The memory may hold anything: an index is masked or compared where it is
// read, and a word that is not what it should be leads to nothing worse than an entry that is not seen.
//
// Each call of io_uring_enter() claims as many entries as it hands over, and the kernel takes no more than all calls
// have claimed, so none that has not been looked at, whichever threads call (doc/multiplexing.md). A position is what
// the kernel counts: the entries before it, modulo 2^32.
//
// A call that a signal handler jumps out of doesn't say how many of its entries the kernel has taken. That is known
// again when the kernel has taken all that were claimed, or no call is left that hands over any.
//
// Not locked: its owner's lock is held.
#pragma once

#include <linux/io_uring.h>

#include <cstddef>
#include <cstdint>

namespace vma::sock {

// What is written to most of all of an entry: one word, which changes at once.
struct UringHead {
    std::uint8_t operation;
    std::uint8_t flags;
    std::uint16_t priority;
    std::int32_t fd;
};
static_assert(sizeof(UringHead) == sizeof(std::uint64_t) && offsetof(io_uring_sqe, fd) == offsetof(UringHead, fd));

class UringQueue
{
public:
    static constexpr std::uint32_t kMostEntries = 32768; // the kernel's limit

    // Where things are. `words` holds the two counters, and an array of indices unless that is at 0.
    struct Layout {
        char *words;
        char *entries;
        std::size_t words_size;
        std::uint32_t head; // offsets
        std::uint32_t tail;
        std::uint32_t array;
        std::uint32_t count;  // of entries, a power of two
        std::uint32_t stride; // from one to the next
    };
    // What is said of entries that were changed, by index. Zeroed.
    struct Change {
        std::uint64_t original;
        std::uint64_t changed;
        std::uint32_t position;
        std::uint32_t listed; // not by index: which ones are changed
    };

    static bool is_sane(const Layout &layout);

    void begin(const Layout &layout, Change *changes); // of as many as there are entries

    // More were taken than anybody has claimed.
    bool was_passed_by() const { return static_cast<std::int32_t>(head() - claimed_) > 0; }

    // A call that was jumped out of has perhaps left some of its claim, and another one, which has not ended, keeps us
    // from knowing how many: nobody may hand them over.
    bool is_lost() const { return was_left_ && outstanding() != 0; }

    // How many of `wanted` entries there are; the first is at `first`. They are the caller's to look at, until it ends
    // or is left: one of these is due, also if there are none.
    std::uint32_t claim(std::uint32_t wanted, std::uint32_t &first);
    void give_back(std::uint32_t count) { claimed_ -= count; } // that are not handed over
    void end(std::uint32_t count);                             // that the kernel did not take
    void leave();                                              // it is not known how many it took

    // False: the kernel will not find it either.
    bool read(std::uint32_t position, io_uring_sqe &entry) const;

    enum class Changed : std::uint8_t { kNo, kHere, kElsewhere }; // elsewhere: the same entry is handed over twice
    Changed changed(std::uint32_t position) const;

    // The kernel finds another beginning there than the program wrote. False: it has no longer the one that was read.
    bool change(std::uint32_t position, const UringHead &from, const UringHead &to);

    // The program may hand over an entry once more without writing it again: those that the kernel has taken are as
    // they were, unless the program has begun to write another one there.
    void restore();

    std::uint32_t head() const { return word(layout_.head); }

private:
    std::uint32_t outstanding() const; // that were claimed, and not taken
    void one_call_less();
    std::uint32_t word(std::size_t offset) const;
    bool find(std::uint32_t position, std::uint32_t &index) const;
    std::uint64_t *beginning(std::uint32_t index) const;

    Layout layout_ = {};
    Change *changes_ = nullptr;
    std::uint32_t changed_count_ = 0;
    std::uint32_t claimed_ = 0; // positions before it were claimed
    std::uint32_t calls_ = 0;   // between their claim and their end
    bool was_left_ = false;     // by one of them, since there were none
};

} // namespace vma::sock
