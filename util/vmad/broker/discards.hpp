// SPDX-License-Identifier: BSD-2-Clause
// Closes descriptors that others have given, without waiting for anybody: a file's server may keep close() as long as
// it likes, a TCP socket lingers as long as its owner has said, and a UNIX socket lets go of whatever its queue has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <sys/types.h>
#include <vector>

#include "core/fd.hpp"
#include "inet/wire/types.hpp"

namespace vma::guard {

using inet::Nanos;

// Whether it is a socket of TCP or UDP. What is asked waits for no lock.
bool is_inet(int fd);

class Discards
{
public:
    // `number` comes in the epoll set `set` when work() has something to do.
    void open(int set, std::uint64_t number);
    void work();
    Nanos due() const { return due_; } // CLOCK_MONOTONIC, when work() is wanted without that; kNever
    ~Discards();                       // of what is left, too

    // What a user has given. That of an inet socket ends here, else by a child.
    void close(core::UniqueFd given, uid_t user);
    // An end of ours that the other may have sent to: it says its end at once, and is closed by a child if it has a
    // message with descriptors that was not read.
    void hang_up(core::UniqueFd end, uid_t user);

    // What he has given keeps children busy: he isn't to give any more.
    bool is_full(uid_t user) const;
    // More than that is left to close, of whoever it is.
    bool is_swamped() const { return waiting_.size() >= kMostWaiting; }

private:
    static constexpr unsigned kMostOfUser = 4;
    static constexpr std::size_t kMostChildren = 64;
    static constexpr std::size_t kMostWaiting = 4096;

    struct Job {
        int fd;
        uid_t user;
        bool given;
    };
    struct Child {
        core::UniqueFd process;
        Job job;
    };
    struct Count {
        unsigned given = 0; // that are not closed yet
        unsigned children = 0;
        unsigned waiting = 0;
    };

    void add(const Job &job);
    bool start(const Job &job);
    void try_again();
    void reap();

    int set_ = -1;
    std::uint64_t number_ = 0;
    Nanos due_ = inet::kNever;
    std::map<uid_t, Count> users_; // who has something to be closed
    std::vector<Child> children_;
    std::deque<Job> waiting_;
};

// As long as one exists a signal comes each 10 ms, which ends a wait of close(), and is in the way of other calls.
class CloseWatch
{
public:
    CloseWatch();
    ~CloseWatch();
    CloseWatch(const CloseWatch &) = delete;
    CloseWatch &operator=(const CloseWatch &) = delete;

    static void prepare(); // once: the signal's handler
};

// poll(2) without waiting, of one descriptor. A signal that comes is no answer.
bool has_come(int fd, short events);

} // namespace vma::guard
