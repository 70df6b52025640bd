// SPDX-License-Identifier: BSD-2-Clause
// The process's side of the provider: domain, completion queue, event queue, passive endpoint and the helper thread.
// Whoever waits calls poll(); before it sleeps it registers as a sleeper and arms the queue.
#pragma once

#include <cstdint>

#include "compat/src/table/ring_claim.hpp"

struct fi_vma_place;

namespace vma::sock {

class Socket;

// The one that the socket is on: what comes for it comes there, until it is kernel-only again.
RingMask rings_of(const Socket &s);
// Those of them that are open.
RingMask open_rings(RingMask rings);

// True while this process has connected endpoints: waits have something to poll for. One relaxed load.
bool engine_active();

// Takes some completions out of the rings' queues and hands them to sockets and watchers. Returns 0 when there was
// none, else at least 1, as also where another thread is polling right now. No system call, no blocking.
unsigned engine_poll(RingMask rings = kMainRing);

namespace udp {
struct Direct;
}
// The same for a call that waits for a datagram, which may go straight to where it wants it.
unsigned engine_poll_direct(udp::Direct &direct, RingMask rings);

// Takes all out of the queues, waiting for another thread that polls: what was published before the call is counted
// after. Returns the number of events handed out.
unsigned engine_drain(RingMask rings = kMainRing);

// The helper thread's, of the main ring: VMA_PROGRESS_ENGINE_WCE_MAX completions at the most, and one poll's at the
// least.
unsigned engine_drain_some();

std::uint64_t engine_polls(); // of the main ring and of all devices, by the program

// At the queues of this host.
struct Looks {
    std::uint64_t polls = 0; // the program's
    std::uint64_t hits = 0;  // anybody's that found something
};
Looks engine_looks();

// Descriptor that becomes readable when the armed queue of a ring (by its place) gets an event; -1 without an engine.
// Belongs to the engine.
int engine_wait_fd(unsigned ring = 0);

// Arms the queues of `rings`, which are open. True: nothing is pending, the caller may sleep on the engine_wait_fd() of
// each, and calls engine_woken() with the same rings when it is back, whatever woke it. False: poll again first.
bool engine_arm(RingMask rings = kMainRing);
void engine_woken(RingMask rings = kMainRing);

// The same for a thread that sleeps at a place of the main ring, which counts itself before, watches the socket, and is
// off again when it is back. False, too, when what was to be heard of the kernel has been told meanwhile, to another
// thread that waits for the same socket.
bool engine_rest(const Socket &s);
inline constexpr std::uint32_t kNoPlace = ~0U;
// Where a thread may sleep that waits for nothing but input of the socket, or kNoPlace: on descriptors.
std::uint32_t place_for_input(Socket &s, int fd);

// Reading a queue disarms it: whoever stops polling calls this, so that threads that sleep hear of what comes next.
void engine_leave(RingMask rings = kMainRing);
// The same by a jump out of a handler, whose stack may be small.
void engine_leave_by_jump(RingMask rings);
// A thread sleeps on the main ring, and nothing has come for which it would wake. One that has been woken may be in a
// handler of a signal for long.
bool engine_watches_itself();

// By a call that doesn't wait, before it says that there is nothing.
inline unsigned engine_look(RingMask rings = kMainRing)
{
    const unsigned events = engine_drain(rings);
    engine_leave(rings);
    return events;
}

// A thread that is about to sleep in the kernel on descriptors. While registered, kick_sleepers() (a socket became
// offloaded) and wake() end its sleep through wake_fd(), the thread's own eventfd; the destructor drains it, or makes
// the sleep look again that this one, in a handler, has interrupted.
// Order of use: construct, look at all conditions again, sleep.
class Sleeper
{
public:
    explicit Sleeper(std::uint32_t place); // at one (places.hpp) it has no descriptor
    ~Sleeper();
    static void make_descriptor(); // the thread's, unless it has it; before the first one without a place
    Sleeper(const Sleeper &) = delete;
    Sleeper &operator=(const Sleeper &) = delete;
    int wake_fd() const { return fd_; }
    void wake() const; // any thread; async-signal-safe

    // What poll() said of wake_fd(): with nothing in it the destructor saves a system call. A wake-up that comes after
    // that ends the thread's next sleep, which looks, finds nothing and sleeps again.
    void told(short revents) { empty_ = revents == 0; }

    // Unless something has come since it was constructed; at most until then. A cancellation point.
    void sleep_at_place(std::int64_t until_ns) const;

private:
    friend void kick_sleepers();
    friend void sleepers_after_fork_in_child();
    void enlist();
    void go_on_in_child();
    void drain() const;
    void enter_place(std::uint32_t place);
    void leave_place() const;

    Sleeper *next_ = nullptr;
    Sleeper *prev_ = nullptr;
    int fd_ = -1;
    const int outer_; // what handlers were to wake before: the sleep that one of them interrupted
    const unsigned process_;
    bool empty_ = false;
    fi_vma_place *place_ = nullptr;
    std::uint32_t turn_ = 0; // of the place, when it was constructed
};
void kick_sleepers();

} // namespace vma::sock
