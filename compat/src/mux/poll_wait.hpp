// SPDX-License-Identifier: BSD-2-Clause
// The wait that poll() and select() share: an array of descriptors, some of them tracked. Private to compat/src/mux.
#pragma once

#include <poll.h>
#include <signal.h>

#include <cstdint>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/spin_time.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/stats/wait_count.hpp"
#include "compat/src/wait/thread_record.hpp"

namespace vma::mux {

enum class Style : bool { kPoll, kSelect }; // select() isn't ended by a hang-up that nobody asked for

class PollWait
{
public:
    PollWait(ThreadRecord &record, Frame &frame, pollfd *fds, nfds_t count, Style style, Deadline &deadline,
             const sigset_t *mask);
    ~PollWait();
    PollWait(const PollWait &) = delete;
    PollWait &operator=(const PollWait &) = delete;

    int run(); // as poll(): the number of entries with revents, 0 after the timeout, or -1 and errno

private:
    static constexpr int kAgain = -2;    // the sockets are no longer what they were: begin anew
    static constexpr int kTimedOut = -3; // kept apart from 0, "nothing yet"

    bool classify();
    bool changed() const;
    sock::RingMask rings() const; // that the looked at are on now
    std::uint32_t wanted(const pollfd &entry) const;
    std::uint32_t kernel_interest(const Looked &looked) const;
    std::uint32_t find(const Looked &looked) const;
    bool interrupted() const;

    int kernel_only();
    int aware();
    int look(KernelTurn &kernel, bool kernel_first);
    int ours();
    int ours_fast();
    bool kernel_may_be_earlier() const;
    int ask_kernel();
    int look_at_kernel();
    int collect();
    SpinTime time_to_spin();
    int spin(KernelTurn &kernel, SpinTime &time);
    int sleep();
    int sleep_in_kernel(sock::RingMask rings);
    std::uint32_t place() const;
    int sleep_at(std::uint32_t place, sock::RingMask rings);
    void mute();
    void unmute();
    void attach();
    void leave();

    ThreadRecord &record_;
    Frame &frame_;
    pollfd *const fds_;
    const nfds_t count_;
    const Style style_;
    Deadline &deadline_;
    const sigset_t *const mask_;
    WaitCount counted_;
    const std::uint32_t handlers_ = libc::signal_counts().all;
    bool sure_ = false; // nothing was in the engine's queue at the last look
    bool ends_ = false; // the program asks for the end of a peer's bytes
    pollfd *kernel_ = nullptr;
    Looked *looked_ = nullptr;
    sock::RingMask rings_ = sock::kMainRing; // of the last look
    sock::RingMask left_ = sock::kMainRing;  // all that were polled
    bool spun_ = false;
    bool muted_ = false;
};

} // namespace vma::mux
