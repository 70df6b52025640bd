// SPDX-License-Identifier: BSD-2-Clause
// The process's side of the provider: domain, completion queue, event queue, passive endpoint and the helper thread.
// Whoever waits calls poll(); before it sleeps it registers as a sleeper and arms the queue.
#pragma once

#include <cstdint>

namespace vma::sock {

// True while this process has connected endpoints: waits have something to poll for. One relaxed load.
bool engine_active();

// Takes some completions out of the queue and hands them to sockets and watchers. Returns 0 when there was none, else at
// least 1, as also where another thread is polling right now. No system call, no blocking.
unsigned engine_poll();

namespace udp {
struct Direct;
}
// The same for a call that waits for a datagram, which may go straight to where it wants it.
unsigned engine_poll_direct(udp::Direct &direct);

// Takes all out of the queue, waiting for another thread that polls: what was published before the call is counted after.
// Returns the number of events handed out.
unsigned engine_drain();

// Descriptor that becomes readable when an armed queue gets an event; -1 without an engine. Belongs to the engine.
int engine_wait_fd();

// Arms the queue. True: nothing is pending, the caller may sleep on engine_wait_fd(), and calls engine_woken() when it
// is back, whatever woke it. False: poll again first.
bool engine_arm();
void engine_woken();

// Reading the queue disarms it: whoever stops polling calls this, so that threads that sleep hear of what comes next.
void engine_leave();

// By a call that doesn't wait, before it says that there is nothing.
inline unsigned engine_look()
{
    const unsigned events = engine_drain();
    engine_leave();
    return events;
}

// A thread that is about to sleep in the kernel on descriptors. While registered, kick_sleepers() (a socket became
// dual) and wake() end its sleep through wake_fd(), the thread's own eventfd; the destructor drains it.
// Order of use: construct, look at all conditions again, sleep.
class Sleeper
{
public:
    Sleeper();
    ~Sleeper();
    Sleeper(const Sleeper &) = delete;
    Sleeper &operator=(const Sleeper &) = delete;
    int wake_fd() const { return fd_; }
    void wake() const; // any thread; async-signal-safe

private:
    friend void kick_sleepers();
    Sleeper *next_ = nullptr;
    Sleeper *prev_ = nullptr;
    int fd_ = -1;
};
void kick_sleepers();

} // namespace vma::sock
