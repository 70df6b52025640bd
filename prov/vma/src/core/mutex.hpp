// SPDX-License-Identifier: BSD-2-Clause
// A std::mutex that its thread counts (held.hpp): all of the provider's are of this type, or a SpinLock.
#pragma once

#include <mutex>

#include "core/held.hpp"

namespace vma::core {

class Mutex
{
public:
    void lock()
    {
        const bool counted = begin_hold();
        mutex_.lock();
        counted_ = counted;
    }
    bool try_lock()
    {
        const bool counted = begin_hold();
        if (mutex_.try_lock()) {
            counted_ = counted;
            return true;
        }
        end_hold(counted);
        return false;
    }
    void unlock()
    {
        const bool counted = counted_;
        mutex_.unlock();
        end_hold(counted);
    }

private:
    std::mutex mutex_;
    bool counted_ = false; // who holds it has counted it
};

} // namespace vma::core
