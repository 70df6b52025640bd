// SPDX-License-Identifier: BSD-2-Clause
// What has a rate limit waits here for its time: a completion queue's timing wheel, and the timer descriptor that wakes
// who sleeps on the queue. How much may go when is vma/pacer.hpp's business.
#pragma once

#include <cstdint>

#include "core/fd.hpp"
#include "vma/wheel.hpp"

namespace vma::local {

class Sender;

// Of a sender, or of a datagram endpoint that has refused one.
struct PacedTimer : Timer {
    Sender *sender = nullptr;
};

// Protected by the queue's lock.
struct PacedWork {
    Wheel wheel;
    core::UniqueFd timer;        // made for the queue's first limited endpoint
    std::uint64_t timer_set = 0; // ns: what it is armed for; 0: it isn't, or has fired and was read
    bool refused_is_due = false; // a datagram that was refused may go: whoever sleeps should try again
};

} // namespace vma::local
