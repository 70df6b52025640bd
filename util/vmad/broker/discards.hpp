// SPDX-License-Identifier: BSD-2-Clause
// Closes descriptors that others have given, without waiting for anybody: a file's server may keep close() as long as
// it likes, and a TCP socket lingers as long as its owner has said.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <sys/types.h>

#include "core/fd.hpp"

namespace vma::guard {

class Discards
{
public:
    // What is no socket is closed by a thread of its own.
    void close(core::UniqueFd given, uid_t user);

    // That user's descriptors keep threads busy: he isn't to give any more.
    bool is_full(uid_t user) const;

private:
    static constexpr int kMost = 4;
    static constexpr int kMostThreads = 64;

    struct Busy {
        std::atomic<int> count{0};
    };
    std::map<uid_t, std::shared_ptr<Busy>> users_;
    std::shared_ptr<Busy> all_ = std::make_shared<Busy>();

    void forget_idle();
    bool start(int fd, const std::shared_ptr<Busy> &user);
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
