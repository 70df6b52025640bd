// SPDX-License-Identifier: BSD-2-Clause
// A process that is guarded: the connections that it has told, and, once it is dead, what their peers are sent.
#pragma once

#include <cstddef>
#include <map>
#include <sys/types.h>

#include "core/fd.hpp"
#include "flow.hpp"

namespace vma::guard {

inline constexpr std::size_t kMostFlows = 1U << 20; // of all processes; some 150 bytes each

// What all clients share.
struct Totals {
    std::size_t flows = 0;
};

class Client
{
public:
    // `socket`: accepted, non-blocking.
    Client(core::UniqueFd socket, pid_t pid, Totals &totals);
    ~Client();
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;

    enum class Outcome { kGoesOn, kOver };

    // What to watch for EPOLLIN: the socket, after it the process; -1: nothing.
    int watched() const;
    // watched() is readable. Where the outcome is kGoesOn, watched() may be another one.
    Outcome on_readable(Nanos now);
    // When on_time() is wanted, kNever or a time of CLOCK_MONOTONIC.
    Nanos due() const { return due_; }
    Outcome on_time(Nanos now);

private:
    enum class State {
        kStrange, // no greeting yet
        kAlive,
        kDying, // its socket is closed: what else it has open goes in these moments
        kDead,
    };

    Outcome take_messages(Nanos now);
    bool take_greeting(const ether::GuardianMessage &message, core::UniqueFd first, core::UniqueFd second);
    bool take(const ether::GuardianMessage &message, Nanos now);
    void add(const ether::GuardianMessage &message, Nanos now);
    void clear();
    bool keep_raw(core::UniqueFd given);
    Outcome on_hangup(Nanos now);
    void begin(Nanos now);
    bool send_probe(const FlowKey &key, const FlowState &state, Nanos now) const;
    Outcome refuse(const char *why);

    core::UniqueFd socket_;
    core::UniqueFd process_; // pidfd
    core::UniqueFd raw4_;
    core::UniqueFd raw6_;
    pid_t pid_;
    Totals &totals_;
    State state_ = State::kStrange;
    bool full_told_ = false;
    std::map<FlowKey, FlowState> flows_;
    Nanos due_ = inet::kNever;
    // Of a dead one.
    unsigned round_ = 0;
    Nanos began_ = 0;
    std::map<FlowKey, FlowState>::const_iterator next_;
};

} // namespace vma::guard
