// SPDX-License-Identifier: BSD-2-Clause
// What poll() would say of a tracked socket: the endpoint's side from memory, the kernel's side only where a direction
// is on the kernel or the kernel has had news.
#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "compat/src/base/fence.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/tcp/calls.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kIn = POLLIN | POLLRDNORM;
constexpr std::uint32_t kOut = POLLOUT | POLLWRNORM;
constexpr std::uint32_t kEnd = POLLRDHUP | POLLHUP;
constexpr std::uint32_t kSticky = kEnd | POLLERR;
constexpr std::uint32_t kAlways = POLLHUP | POLLERR | POLLNVAL;
constexpr std::uint32_t kOneNote = 1U << 16; // of kernel_state, above all bits of poll()

std::uint32_t kernel_events(const Socket &s, int fd, std::uint32_t interest)
{
    pollfd p = {fd, static_cast<short>(interest), 0};
    const int n = libc::uncancelled::poll_now(&p, 1);
    const std::uint32_t untold = owes_error(s) ? POLLERR : 0;
    if (n > 0 && live_fd(s, fd) != fd) [[unlikely]]
        return untold; // of another file, maybe, that has got the number
    return (n > 0 ? static_cast<std::uint32_t>(static_cast<unsigned short>(p.revents)) : 0) | untold;
}

// The endpoint carries what comes next: kernel bytes are not for the program yet. A span that is used up carries
// nothing, also where nobody has settled that yet: of what the kernel has behind it nobody would tell. The end is read
// first, as settle() takes it away last.
bool receives_by_endpoint(const Stream &s)
{
    const Receiver &rx = s.rx;
    if (rx.end_at.load(std::memory_order_acquire) == rx.consumed.load(std::memory_order_relaxed)) [[unlikely]]
        return false;
    return rx.path.load(std::memory_order_acquire) == Path::kEndpoint ||
           rx.start_at.load(std::memory_order_acquire) == rx.kernel_bytes.load(std::memory_order_relaxed);
}

bool sends_by_endpoint(const Stream &s)
{
    return s.tx.path.load(std::memory_order_acquire) == Path::kEndpoint &&
           !s.endpoint_down.load(std::memory_order_acquire);
}

bool sends_blocked(const Stream &s)
{
    return s.tx.resend_from.load(std::memory_order_relaxed) != kNone ||
           s.tx.end_pending.load(std::memory_order_relaxed) != kNone ||
           (s.tx.unseen.load(std::memory_order_relaxed) != 0 && !s.endpoint_down.load(std::memory_order_acquire));
}

// The peer has said END, and has not begun anew: where that was by shutdown() or close(), its FIN or reset is there, or
// comes at once, and the kernel alone tells it. Likewise that both directions are shut, once ours is. `known`: of
// kernel_state.
bool awaits_end(const Stream &s, std::uint32_t known)
{
    return s.rx.ended.load(std::memory_order_acquire) &&
           ((known & POLLRDHUP) == 0 || ((known & POLLHUP) == 0 && s.send_shut.load(std::memory_order_relaxed)));
}

// The end stays. An error is over once the kernel doesn't say it any more, whoever has taken it, unless it has told one
// since `known` was read.
void learn_state(Stream &s, std::uint32_t known, std::uint32_t kernel)
{
    const std::uint32_t now = (known & ~static_cast<std::uint32_t>(POLLERR)) | (kernel & kSticky);
    if (now != known && !s.kernel_state.compare_exchange_strong(known, now, std::memory_order_relaxed))
        s.kernel_state.fetch_or(kernel & kSticky, std::memory_order_relaxed);
}

std::uint32_t endpoint_in(const Stream &s)
{
    if (s.receive_shut.load(std::memory_order_relaxed)) [[unlikely]]
        return kIn | POLLRDHUP;
    return has_input(s) ? kIn : 0;
}

} // namespace

bool is_offloaded(const Socket &s)
{
    return offloaded(s);
}

bool tells_of_itself(const Socket &s)
{
    return offloaded(s) || s.pending_error.load(std::memory_order_relaxed) != 0;
}

bool waits_for_kernel(const Socket &s, std::uint32_t interest)
{
    return protocol(s).waits_for_kernel(s, interest);
}

namespace tcp {

bool waits_for_kernel(const Socket &socket, std::uint32_t interest)
{
    const Stream &s = as_stream(socket);
    if ((interest & POLLRDHUP) != 0 && awaits_end(s, s.kernel_state.load(std::memory_order_relaxed))) [[unlikely]]
        return true;
    return ((interest & kIn) != 0 && !receives_by_endpoint(s)) || ((interest & kOut) != 0 && !sends_by_endpoint(s));
}

} // namespace tcp

namespace {

std::uint32_t kept_in(const Socket &s, std::uint32_t interest)
{
    return is_screened(s) && kExtraApi.has_ready(s) ? interest & kIn : 0;
}

} // namespace

std::uint32_t ready_events_fast(const Socket &s, std::uint32_t interest)
{
    if (const std::uint32_t kept = kept_in(s, interest)) [[unlikely]]
        return kept;
    return protocol(s).ready_events_fast(s, interest);
}

namespace tcp {

std::uint32_t ready_events_fast(const Socket &socket, std::uint32_t interest)
{
    const Stream &s = as_stream(socket);
    const std::uint32_t state = s.kernel_state.load(std::memory_order_relaxed) & kSticky;
    std::uint32_t events = endpoint_in(s) | (state & POLLERR); // that perhaps: ready_events() asks
    if (sends_by_endpoint(s) && can_transmit(s))
        events |= kOut;
    if (s.kernel_news.load(std::memory_order_relaxed) || s.endpoint_down.load(std::memory_order_acquire))
        events |= kIn | kOut | state;
    if (!receives_by_endpoint(s) || (interest & POLLOUT && !sends_by_endpoint(s)))
        events |= state;
    return events & (interest | kAlways);
}

} // namespace tcp

namespace {

// Room to send; if there is none, the CREDIT that makes some is news, though no send has found it full: who was told
// "not yet" is not looked at again otherwise. (The kernel's poll() notes it for the same reason.)
bool has_room(Stream &s)
{
    if (can_transmit(s))
        return true;
    s.tx.found_full.store(true, std::memory_order_seq_cst);
    fence_after_exchange(); // against on_credit()
    return can_transmit(s);
}

// The kernel has told the end of the peer's bytes. Whoever hears of it takes the next receive that gives less than it
// asks for as the last one (haproxy does), so what came before is counted first, and where some may still be on its way
// there is no end yet.
std::uint32_t with_all_before_end(Stream &s, int fd, std::uint32_t events)
{
    if (!transport(s).may_bring_more(s)) {
        engine_drain(ring_of(s));
        return endpoint_in(s) != 0 && transport(s).confirm_input(s) ? events | kIn : events;
    }
    int queued = 0;
    const bool empty = endpoint_in(s) == 0 && libc::real.ioctl(fd, FIONREAD, &queued) == 0 && queued == 0;
    return events & ~(kEnd | (empty ? kIn : 0));
}

} // namespace

namespace tcp {

std::uint32_t ready_events(Socket &socket, int fd, std::uint32_t interest)
{
    Stream &s = as_stream(socket);
    if ((interest & kOut) != 0 && sends_blocked(s)) { // perhaps only for the moment in which another thread sees to it
        const LockGuard guard(s.tx_lock);
    }
    const std::uint32_t known = s.kernel_state.load(std::memory_order_relaxed);
    const bool news = s.kernel_news.load(std::memory_order_acquire) || s.endpoint_down.load(std::memory_order_acquire);
    bool rx_endpoint = receives_by_endpoint(s);
    const bool tx_endpoint = sends_by_endpoint(s);
    std::uint32_t events = endpoint_in(s);
    if (events != 0 && !transport(s).confirm_input(s))
        events = 0;
    if (events == 0 && rx_endpoint) // another thread may have read the last byte of a span in between
        rx_endpoint = receives_by_endpoint(s);
    const bool end_due = awaits_end(s, known);
    std::uint32_t ask = (interest & (POLLRDHUP | POLLPRI)) | (end_due ? POLLRDHUP : 0);
    if ((interest & kIn) != 0 && (!rx_endpoint || news))
        ask |= interest & kIn;
    if ((interest & kOut) != 0 && !tx_endpoint && !sends_blocked(s))
        ask |= interest & kOut;
    if (tx_endpoint && (interest & kOut) != 0 && has_room(s))
        events |= kOut;
    const std::uint32_t comes_along = POLLPRI | (rx_endpoint ? POLLRDHUP : 0); // alone no reason to ask
    if (news || end_due || (known & POLLERR) != 0 || (ask & ~comes_along) != 0) {
        const std::uint32_t kernel = kernel_events(s, fd, ask);
        events |= kernel;
        learn_state(s, known, kernel);
        if (news && rx_endpoint && (ask & kIn) != 0 && (kernel & (kIn | kSticky)) == 0)
            s.kernel_news.store(false, std::memory_order_relaxed);
    }
    events |= s.kernel_state.load(std::memory_order_relaxed) & kEnd;
    if ((events & kEnd) != 0 && has_endpoint(s) && transport(s).spans) [[unlikely]]
        events = with_all_before_end(s, fd, events);
    return events & (interest | kAlways);
}

} // namespace tcp

namespace {

std::uint32_t ready_events_of_both(Socket &s, int fd, std::uint32_t interest)
{
    return offloaded(s) ? protocol(s).ready_events(s, fd, interest)
                        : kernel_events(s, fd, interest) & (interest | kAlways);
}

} // namespace

std::uint32_t ready_events(Socket &s, int fd, std::uint32_t interest)
{
    if (const std::uint32_t kept = kept_in(s, interest)) [[unlikely]]
        return kept | ready_events_of_both(s, fd, interest);
    return ready_events_of_both(s, fd, interest);
}

std::uint32_t screen_events(Socket &s, int fd, std::uint32_t events)
{
    if (!is_screened(s) || (events & kIn) == 0) [[likely]]
        return events;
    return kExtraApi.screen(s, fd) ? events : events & ~kIn;
}

namespace {

// A look that began before changes the word as it was, and fails.
void note_state(Stream &s, std::uint32_t events)
{
    std::uint32_t state = s.kernel_state.load(std::memory_order_relaxed);
    while (!s.kernel_state.compare_exchange_weak(state, (state | events) + kOneNote, std::memory_order_relaxed)) {
    }
}

} // namespace

void tcp::note_kernel_events(Stream &s, std::uint32_t events)
{
    if ((events & kSticky) != 0)
        note_state(s, events & kSticky);
}

void note_kernel_events(Socket &s, std::uint32_t events)
{
    const Stream *const stream = stream_of(s);
    if (stream != nullptr && !transport(*stream).spans)
        return; // its socket in the kernel is a shell
    protocol(s).note_kernel_events(s, events);
    if ((events & (kIn | kSticky | POLLPRI)) != 0)
        s.kernel_news.store(true, std::memory_order_release);
}

} // namespace vma::sock
