// SPDX-License-Identifier: BSD-2-Clause
// The tables of libfabric's calls on a stream: arguments are checked here, what they do is in endpoint.cpp.
#include <memory>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "ether/address.hpp"
#include "ether/stream/endpoint.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/op_flags.hpp"
#include "ofi/ops.hpp"

namespace vma::ether {
namespace {

Stream &self(fid_t fid) noexcept
{
    return *reinterpret_cast<Stream *>(fid);
}

Stream &self(fid_ep *fid) noexcept
{
    return self(&fid->fid);
}

bool is_orphaned(const Stream &stream) noexcept
{
    return stream.domain.fabric.orphaned();
}

// ---- fi_ops --------------------------------------------------------------------------------------------------------

int close(fid_t fid)
{
    std::unique_ptr<Stream> stream(&self(fid));
    if (is_orphaned(*stream)) {
        static_cast<void>(stream.release());
        return 0;
    }
    stream->close();
    stream->domain.refs.fetch_sub(1, std::memory_order_release);
    return 0;
}

int bind(fid_t fid, fid_t what, std::uint64_t flags)
{
    return what != nullptr ? self(fid).bind(what, flags) : -FI_EINVAL;
}

int control(fid_t fid, int command, void *argument)
{
    Stream &stream = self(fid);
    return ofi::control_endpoint(stream, is_orphaned(stream), command, argument);
}

// ---- fi_ops_ep, fi_ops_cm ------------------------------------------------------------------------------------------

int getopt(fid_t fid, int level, int name, void *value, std::size_t *length)
{
    return level == FI_OPT_ENDPOINT ? self(fid).get_option(name, value, length) : -FI_ENOPROTOOPT;
}

int setopt(fid_t fid, int level, int name, const void *value, std::size_t length)
{
    return level == FI_OPT_ENDPOINT ? self(fid).set_option(name, value, length) : -FI_ENOPROTOOPT;
}

int setname(fid_t fid, void *address, std::size_t length)
{
    ofi::Address wanted;
    if (!self(fid).format.read(address, length, wanted))
        return -FI_EINVAL;
    return is_orphaned(self(fid)) ? -FI_EOPBADSTATE : self(fid).set_name(wanted);
}

int getname(fid_t fid, void *address, std::size_t *length)
{
    Stream &stream = self(fid);
    const core::SpinGuard guard(stream.port_context.lock());
    return stream.flow.local.port == 0 ? -FI_EOPBADSTATE
                                       : stream.format.copy(to_socket_address(stream.flow.local), address, length);
}

int getpeer(fid_ep *fid, void *address, std::size_t *length)
{
    Stream &stream = self(fid);
    const core::SpinGuard guard(stream.port_context.lock());
    return stream.phase == Stream::Phase::kIdle
               ? -FI_ENOTCONN
               : stream.format.copy(to_socket_address(stream.flow.remote), address, length);
}

// TCP carries no private data. What has not been enabled is by now.
int check_call(Stream &stream, std::size_t data_length) noexcept
{
    if (is_orphaned(stream))
        return -FI_EOPBADSTATE;
    return data_length != 0 ? -FI_EINVAL : stream.enable();
}

int connect(fid_ep *fid, const void *address, const void *, std::size_t length)
{
    const int error = check_call(self(fid), length);
    return error != 0 ? error : self(fid).connect(address);
}

int accept(fid_ep *fid, const void *, std::size_t length)
{
    const int error = check_call(self(fid), length);
    return error != 0 ? error : self(fid).accept();
}

int shutdown(fid_ep *fid, std::uint64_t flags)
{
    if (flags != 0)
        return -FI_EINVAL;
    return is_orphaned(self(fid)) ? -FI_EOPBADSTATE : self(fid).shutdown();
}

// ---- fi_ops_msg: hot path -------------------------------------------------------------------------------------------

ssize_t send(fid_ep *fid, const void *buffer, std::size_t length, void *, fi_addr_t, void *)
{
    const iovec part{const_cast<void *>(buffer), length};
    return self(fid).send({&part, 1}, (self(fid).tx_flags & FI_MORE) != 0);
}

ssize_t sendv(fid_ep *fid, const iovec *parts, void **, std::size_t count, fi_addr_t, void *)
{
    if (count > ofi::kIovLimit || (parts == nullptr && count != 0)) [[unlikely]]
        return -FI_EINVAL;
    return self(fid).send({parts, count}, (self(fid).tx_flags & FI_MORE) != 0);
}

ssize_t sendmsg(fid_ep *fid, const fi_msg *msg, std::uint64_t flags)
{
    if (msg == nullptr || msg->iov_count > ofi::kIovLimit || (msg->msg_iov == nullptr && msg->iov_count != 0))
        [[unlikely]]
        return -FI_EINVAL;
    return self(fid).send({msg->msg_iov, msg->iov_count}, (flags & FI_MORE) != 0);
}

ssize_t recv(fid_ep *fid, void *buffer, std::size_t length, void *, fi_addr_t, void *)
{
    const iovec part{buffer, length};
    return self(fid).receive({&part, 1}, false);
}

ssize_t recvv(fid_ep *fid, const iovec *parts, void **, std::size_t count, fi_addr_t, void *)
{
    if (count > ofi::kIovLimit || (parts == nullptr && count != 0)) [[unlikely]]
        return -FI_EINVAL;
    return self(fid).receive({parts, count}, false);
}

ssize_t recvmsg(fid_ep *fid, const fi_msg *msg, std::uint64_t flags)
{
    if (msg == nullptr || msg->iov_count > ofi::kIovLimit || (msg->msg_iov == nullptr && msg->iov_count != 0))
        [[unlikely]]
        return -FI_EINVAL;
    return self(fid).receive({msg->msg_iov, msg->iov_count}, (flags & FI_PEEK) != 0);
}

constinit fi_ops g_fid_ops = ofi::FidOps{.close = close, .bind = bind, .control = control};

constinit fi_ops_ep g_ep_ops = ofi::EpOps{.getopt = getopt, .setopt = setopt};

constinit fi_ops_cm g_cm_ops = ofi::CmOps{.setname = setname,
                                          .getname = getname,
                                          .getpeer = getpeer,
                                          .connect = connect,
                                          .accept = accept,
                                          .shutdown = shutdown};

constinit fi_ops_msg g_msg_ops =
    ofi::MsgOps{.recv = recv, .recvv = recvv, .recvmsg = recvmsg, .send = send, .sendv = sendv, .sendmsg = sendmsg};

} // namespace

void set_stream_calls(fid_ep &fid) noexcept
{
    fid.fid.ops = &g_fid_ops;
    fid.ops = &g_ep_ops;
    fid.cm = &g_cm_ops;
    fid.msg = &g_msg_ops;
}

} // namespace vma::ether
