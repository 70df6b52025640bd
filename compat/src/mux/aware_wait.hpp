// SPDX-License-Identifier: BSD-2-Clause
// That a thread is in a wait which uses an epoll set's descriptors: the set stays until it is over. Private to
// compat/src/mux.
#pragma once

#include <atomic>

#include "compat/src/engine/engine.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

class AwareWait
{
public:
    AwareWait(ThreadRecord &record, Set &set)
        : record_(record), set_(set), outer_(record.aware_wait.load(std::memory_order_relaxed))
    {
        record_.aware_wait.store(&set, std::memory_order_relaxed);
        order_record();
    }
    ~AwareWait() { end(); }
    AwareWait(const AwareWait &) = delete;
    AwareWait &operator=(const AwareWait &) = delete;

    // By a jump. It has taken from the queue, or was told by the kernel, what others sleep for.
    void leave()
    {
        drain_side_for_others(set_);
        sock::engine_leave_by_jump(set_.rings.load(std::memory_order_relaxed));
        end();
    }

private:
    void end()
    {
        record_.aware_wait.store(outer_, std::memory_order_release);
        order_record();
        if (set_.dead.load(std::memory_order_acquire)) [[unlikely]]
            recycle_if_unused(set_);
    }

    ThreadRecord &record_;
    Set &set_;
    Set *const outer_; // of the wait that a signal handler, which called us, interrupted
};

} // namespace vma::mux
