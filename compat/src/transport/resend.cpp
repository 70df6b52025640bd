// SPDX-License-Identifier: BSD-2-Clause
// Reads the peer's ring back as we left it, and sends that by the kernel (doc/stream-protocol.md).
#include "compat/src/transport/resend.hpp"

#include <errno.h>
#include <limits.h>
#include <linux/sock_diag.h>
#include <poll.h>

#include <algorithm>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/kernel_acts.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"

namespace vma::sock {

namespace {

// A reset came. Looked for first, as the error that a send gets is not there any more for the program.
bool is_reset(int fd)
{
    pollfd p = {fd, 0, 0};
    return libc::uncancelled::poll_now(&p, 1) > 0 && (p.revents & (POLLERR | POLLHUP)) != 0;
}

// From here on the peer's ring can be read back as we left it. 0, or -FI_ESHUTDOWN: the peer has cut, and keeps what is
// in it.
int claim_back(Stream &s, const void *&view)
{
    std::size_t size = sizeof view;
    return s.endpoint == nullptr
               ? -FI_ENOTCONN
               : fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PEER_VIEW), &view, &size);
}

// Who is killed now would leave a clean end behind some of the bytes: the kernel is told to reset the connection then.
void guard_resend(Stream &s, int fd)
{
    const linger reset = {1, 0};
    socklen_t size = sizeof s.tx.unguarded;
    if (!s.tx.guarded && libc::real.getsockopt(fd, SOL_SOCKET, SO_LINGER, &s.tx.unguarded, &size) == 0)
        s.tx.guarded = libc::real.setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0;
}

void unguard_resend(Stream &s, int fd)
{
    if (s.tx.guarded)
        libc::real.setsockopt(fd, SOL_SOCKET, SO_LINGER, &s.tx.unguarded, sizeof s.tx.unguarded);
    s.tx.guarded = false;
}

// Not all of them went: END would say so. The kernel's own end tells the peer how many did, and it has the others in
// its ring.
void forget_resend(Sender &tx)
{
    tx.resend_from = kNone;
    tx.end_pending = kNone;
}

// SO_SNDBUF, in the kernel's count. Whoever may not have more than wmem_max gets that.
void set_send_buffer(int fd, std::uint64_t bytes)
{
    const int half = static_cast<int>(std::min<std::uint64_t>(bytes / 2, INT_MAX / 2)); // the kernel doubles it
    if (libc::real.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &half, sizeof half) != 0)
        libc::real.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof half);
}

// What lies in the kernel's queue, in its count: more than SO_SNDBUF where the program has lowered that.
std::uint64_t queued_in_kernel(int fd)
{
    std::uint32_t info[SK_MEMINFO_VARS] = {};
    socklen_t size = sizeof info;
    libc::real.getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size);
    return info[SK_MEMINFO_WMEM_QUEUED];
}

} // namespace

// The bytes the peer gave back: out of its ring by the kernel, as many as the kernel takes now.
void resend(Stream &s)
{
    Sender &tx = s.tx;
    if (is_unseen(s)) {
        s.tx_work.store(true, std::memory_order_release);
        return;
    }
    const void *view = nullptr;
    const int result = claim_back(s, view);
    if (result != 0 || view == nullptr) {
        forget_resend(tx);
        if (result != -FI_ESHUTDOWN) // no device of ours gets here; the connection can only end
            abort_stream(s, "what was sent can't be read back");
        return; // or the peer has kept what it wanted to have again
    }
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    while (tx.resend_from != tx.position && !is_reset(fd)) {
        const std::uint64_t offset = tx.resend_from & (tx.ring - 1);
        const std::size_t piece = std::min(tx.position - tx.resend_from, tx.ring - offset);
        const ssize_t n = libc::by_kernel(libc::uncancelled::send(fd, static_cast<const std::uint8_t *>(view) + offset,
                                                                  piece, MSG_DONTWAIT | MSG_NOSIGNAL));
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            guard_resend(s, fd);
            s.tx_work.store(true, std::memory_order_release);
            return;
        }
        if (n < 0) { // the reset came since: the program's next call learns it from us
            if (errno != EPIPE)
                s.pending_error.store(errno, std::memory_order_relaxed);
            break;
        }
        tx.kernel_bytes.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
        tx.resend_from += static_cast<std::uint64_t>(n);
    }
    if (tx.resend_from == tx.position) {
        tx.resend_from = kNone;
        unguard_resend(s, fd);
    } else {
        forget_resend(tx);
    }
}

namespace {

// Between hosts nothing goes by the kernel until the peer's engine has answered our START: a round trip, in which who
// shuts down, or leaves, has to wait.
void await_seen(const Stream &s)
{
    constexpr std::int64_t kPatienceNs = 1'000'000'000;
    const std::int64_t until = now_ns() + kPatienceNs;
    while (is_unseen(s) && now_ns() < until) {
        libc::uncancelled::poll(nullptr, 0, 1);
        engine_drain(ring_of(s));
    }
}

} // namespace

void finish_resend(Stream &s)
{
    constexpr std::uint64_t kCostsPerByte = 4; // at most, of small pieces, by far
    do_tx_work(s);
    if (s.tx.resend_from == kNone)
        return;
    await_seen(s);
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    const std::uint64_t left = s.tx.position - s.tx.resend_from;
    const auto room = static_cast<std::uint64_t>(libc::read_option(fd, SOL_SOCKET, SO_SNDBUF, 0));
    set_send_buffer(fd, std::max(room, queued_in_kernel(fd)) + left * kCostsPerByte);
    do_tx_work(s);
    set_send_buffer(fd, room);
    if (s.tx.resend_from == kNone)
        return;
    forget_resend(s.tx);
    abort_stream(s, "what the peer gave back can't be sent");
}

} // namespace vma::sock
