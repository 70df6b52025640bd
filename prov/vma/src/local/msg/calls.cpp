// SPDX-License-Identifier: BSD-2-Clause
// The fi_ops_msg table of an endpoint: each call becomes one of post_send() and post_receive().
#include "local/msg/endpoint.hpp"

#include <rdma/fi_errno.h>

#include "local/cma.hpp"
#include "ofi/ops.hpp"

namespace vma::local {

namespace {

constexpr std::uint64_t kDelivery = FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE | FI_MATCH_COMPLETE;

struct Message {
    const iovec *iov;
    std::size_t count;
    const std::uint64_t *data; // FI_REMOTE_CQ_DATA, or nullptr
    void *context;
    std::uint64_t flags;
    bool completion;
};

ssize_t post_send(Endpoint &endpoint, const Message &message) noexcept
{
    if (message.count > kIovLimit || (message.count && !message.iov))
        return -FI_EINVAL;
    TxOp op;
    for (std::size_t i = 0; i < message.count; ++i) {
        if (__builtin_add_overflow(op.length, message.iov[i].iov_len, &op.length))
            return -FI_EINVAL;
        op.iov[i] = message.iov[i];
    }
    op.iov_count = static_cast<std::uint8_t>(message.count);
    op.inject = (message.flags & FI_INJECT) != 0;
    if (op.inject && op.length > endpoint.inject_size)
        return -FI_EINVAL;
    op.completion = message.completion;
    op.has_data = message.data != nullptr;
    op.data = message.data ? *message.data : 0;
    op.delivery = (message.flags & kDelivery) != 0;
    op.fence = (message.flags & FI_FENCE) != 0;
    op.context = message.context;
    return endpoint.sender.post(op);
}

// One buffer: the common case, and when it is small nothing but a slot is needed.
ssize_t send_one(Endpoint &endpoint, const void *buffer, std::size_t length, const std::uint64_t *data, void *context,
                 std::uint64_t flags, bool completion) noexcept
{
    if (length <= kSlotPayload && !(flags & (kDelivery | FI_FENCE))) {
        const ssize_t sent = endpoint.sender.send_small(buffer, length, data, context, completion);
        if (sent <= 0)
            return sent;
    }
    const iovec iov{const_cast<void *>(buffer), length};
    return post_send(endpoint, {&iov, 1, data, context, flags, completion});
}

ssize_t send(fid_ep *ep, const void *buffer, std::size_t length, void *, fi_addr_t, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags;
    return send_one(endpoint, buffer, length, nullptr, context, flags, endpoint.wants_tx_completion(flags));
}

ssize_t senddata(fid_ep *ep, const void *buffer, std::size_t length, void *, std::uint64_t data, fi_addr_t,
                 void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags;
    return send_one(endpoint, buffer, length, &data, context, flags, endpoint.wants_tx_completion(flags));
}

ssize_t sendv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags;
    return post_send(endpoint, {iov, count, nullptr, context, flags, endpoint.wants_tx_completion(flags)});
}

ssize_t sendmsg(fid_ep *ep, const fi_msg *message, std::uint64_t flags)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t *data = (flags & FI_REMOTE_CQ_DATA) ? &message->data : nullptr;
    const bool completion = endpoint.wants_tx_completion(flags);
    if (message->iov_count == 1)
        return send_one(endpoint, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, data, message->context,
                        flags, completion);
    return post_send(endpoint, {message->msg_iov, message->iov_count, data, message->context, flags, completion});
}

ssize_t inject(fid_ep *ep, const void *buffer, std::size_t length, fi_addr_t)
{
    return send_one(Endpoint::from(ep), buffer, length, nullptr, nullptr, FI_INJECT, false);
}

ssize_t injectdata(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, fi_addr_t)
{
    return send_one(Endpoint::from(ep), buffer, length, &data, nullptr, FI_INJECT, false);
}

ssize_t post_receive(Endpoint &endpoint, const iovec *iov, std::size_t count, void *context,
                     std::uint64_t flags) noexcept
{
    if (!endpoint.receiver.receives)
        return -FI_EOPBADSTATE;
    if (endpoint.shares_receives())
        return -FI_EINVAL; // posted to the shared context
    return endpoint.receiver.receives->post(iov, count, context, endpoint.wants_rx_completion(flags));
}

ssize_t recv(fid_ep *ep, void *buffer, std::size_t length, void *, fi_addr_t, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const iovec iov{buffer, length};
    return post_receive(endpoint, &iov, 1, context, endpoint.rx_flags);
}

ssize_t recvv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    return post_receive(endpoint, iov, count, context, endpoint.rx_flags);
}

ssize_t recvmsg(fid_ep *ep, const fi_msg *message, std::uint64_t flags)
{
    return post_receive(Endpoint::from(ep), message->msg_iov, message->iov_count, message->context, flags);
}

} // namespace

constinit fi_ops_msg endpoint_msg_ops = ofi::MsgOps{.recv = recv,
                                                    .recvv = recvv,
                                                    .recvmsg = recvmsg,
                                                    .send = send,
                                                    .sendv = sendv,
                                                    .sendmsg = sendmsg,
                                                    .inject = inject,
                                                    .senddata = senddata,
                                                    .injectdata = injectdata};

} // namespace vma::local
