// SPDX-License-Identifier: BSD-2-Clause
// Dummy sends: what a send would touch is brought into the caches, and nothing leaves.
#include <errno.h>
#include <limits.h>
#include <sys/uio.h>

#include <algorithm>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/extra/state.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::extra {

namespace {

bool is_accelerated(const sock::Socket &s)
{
    return sock::protocol(s).messages ? !sock::udp::only_kernel_sends(s) : sock::offloaded(s);
}

// Where the next bytes would go.
void warm_stream(sock::Stream &s, std::size_t length)
{
    s.tx_lock.lock();
    if (s.endpoint != nullptr && sock::can_transmit(s))
        sock::transport(s).warm(s, length);
    sock::unlock_tx(s);
}

} // namespace

ssize_t send_nothing(sock::Socket *s, std::size_t length, const sockaddr *to, socklen_t to_length)
{
    State *const state = s != nullptr && is_accelerated(*s) ? state_of(*s) : nullptr;
    if (state == nullptr) {
        errno = EINVAL;
        return -1;
    }
    if (sock::protocol(*s).messages)
        sock::udp::warm(*s, length, to, to_length);
    else
        warm_stream(sock::as_stream(*s), length);
    state->dummy_sent.fetch_add(1, std::memory_order_relaxed);
    stats::add_shared(sock::record_of(*s).now.tx.dummies);
    return static_cast<ssize_t>(length);
}

ssize_t send_nothing(sock::Socket *s, const msghdr &message)
{
    return send_nothing(s, length_of(&message), static_cast<const sockaddr *>(message.msg_name), message.msg_namelen);
}

int send_nothing_of_each(sock::Socket *s, mmsghdr *messages, unsigned count)
{
    count = messages != nullptr ? std::min<unsigned>(count, UIO_MAXIOV) : 0;
    for (unsigned i = 0; i < count; ++i) {
        const ssize_t length = send_nothing(s, messages[i].msg_hdr);
        if (length < 0)
            return i != 0 ? static_cast<int>(i) : -1;
        messages[i].msg_len = static_cast<unsigned>(length);
    }
    return count != 0 ? static_cast<int>(count) : static_cast<int>(std::min<ssize_t>(send_nothing(s, 0), 0));
}

std::size_t length_of(const msghdr *message)
{
    if (message == nullptr || message->msg_iov == nullptr || message->msg_iovlen > IOV_MAX)
        return 0;
    return sock::total_length(*message);
}

} // namespace vma::extra
