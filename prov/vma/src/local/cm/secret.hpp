// SPDX-License-Identifier: BSD-2-Clause
// Proof that a peer may read this process's memory: process_vm_readv(2) asks for the right to trace, and who may trace
// this process could do all that it does, so its word on a connection is enough (doc/rendezvous.md). What it has to
// read is a secret, which never leaves either process: what goes over the link is a hash that has the secret as its
// key, and says who speaks of what.
#pragma once

#include <cstdint>

#include "core/siphash.hpp"
#include "local/cma.hpp"

namespace vma::local {

// "At this end of a link is who has this TCP socket." Anybody may see a word: on another link, of another connection or
// in the other direction it says nothing.
struct Statement {
    std::uint64_t tcp_socket; // whose inode number is said, by who has it
    std::uint64_t link_end;   // the inode number of the speaker's end of the link
    std::uint32_t connection; // its number on the link
    std::uint32_t message;    // the type of the message: a request's is not an answer's
};

enum class Said : std::uint8_t {
    yes,
    not_now, // the peer's secret is old, or was being changed
    never,   // the kernel doesn't let us read there, or there is no secret
};

// Reads the peer's secret, and says that by it. A process that is not the one meant (its number is another one's now),
// or a place that is no secret, but which the peer would like to have hashed: `never`. What comes of a secret that was
// read in the wrong process is of no use to anybody, as the statement is about our own end of the link.
Said say(const CmaPeer &peer, const Statement &statement, std::uint64_t &word) noexcept;

// This process's own. Protected by its owner's lock, but for those who read it by the kernel.
class Secret
{
public:
    // Of CLOCK_MONOTONIC. A secret is used while it is fresh, and counts as long again: a word may be under way.
    static constexpr std::uint64_t kFreshNs = 30'000'000'000;
    static constexpr std::uint64_t kCountsNs = 2 * kFreshNs;

    Secret() noexcept = default;
    ~Secret();
    Secret(const Secret &) = delete;
    Secret &operator=(const Secret &) = delete;

    // 0 or a negative fi_errno. Without a secret, but with a mark, where the kernel would give it to children or write
    // it into core files.
    int open() noexcept;
    // Where peers read. The number before the secret is told to them, and stays.
    const CmaMark &mark() const noexcept { return mark_; }
    // A process that does nothing renews nothing: so this comes before a peer is asked to read it.
    void renew_if_old() noexcept;
    // Whether that is the word of a process that has read the secret lately.
    bool was_said(const Statement &statement, std::uint64_t word) const noexcept;

    // As it stands in memory.
    struct Words {
        std::uint64_t number;  // of the mark
        std::uint64_t made_ns; // 0: there is no secret, as in a child, in which the kernel has wiped the page
        core::HashKey key;
        std::uint64_t check; // over the others by the key: it is a secret, and a whole one
    };
    static bool is_whole(const Words &words) noexcept;

private:
    struct Page {
        Words now;
        Words before;
    };
    static constexpr std::size_t kBytes = 4096; // of a page, or more

    Page *page_ = nullptr;
    CmaMark mark_{};
    bool is_kept_ = false; // from children and core files
};

} // namespace vma::local
