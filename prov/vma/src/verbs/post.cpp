// SPDX-License-Identifier: BSD-2-Clause
// The data path: work requests to the device, and the fi_ops_msg and fi_ops_rma tables that make them.
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <utility>

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"
#include "verbs/endpoint.hpp"
#include "verbs/srx.hpp"

namespace vma::verbs {

// A full queue is no error of the program's (ibv_post_send(3) says ENOMEM).
static ssize_t to_result(int error) noexcept
{
    return error == ENOMEM ? -FI_EAGAIN : -error;
}

static std::uint64_t bytes_of(const ibv_send_wr &wr) noexcept
{
    std::uint64_t bytes = 0;
    for (int i = 0; i < wr.num_sge; ++i)
        bytes += wr.sg_list[i].length;
    return bytes;
}

static bool takes_receive(ibv_wr_opcode opcode) noexcept
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// Posts the batch, of which the last one is the caller's. The others were promised: what the device refuses of them
// gets error completions. tx_lock held.
ssize_t Endpoint::flush(std::uint64_t last) noexcept
{
    for (unsigned i = 0; i + 1 < batch->count; ++i)
        batch->wr[i].next = &batch->wr[i + 1];
    const unsigned batched = std::exchange(batch->count, 0);
    ibv_send_wr *refused = nullptr;
    const int error = ibv_post_send(qp, &batch->wr[0], &refused);
    if (error == 0)
        return 0;
    const std::uint64_t first = refused->wr_id;
    Work lost[Batch::kMost];
    unsigned count = 0;
    for (std::uint64_t number = first; number < last; ++number)
        lost[count++] = tx.at(number);
    tx.drop(first);
    if (fast_out != nullptr)
        fast_out->sent -=
            static_cast<std::uint64_t>(std::count_if(batch->wr, batch->wr + batched, [=](const ibv_send_wr &wr) {
                return wr.wr_id >= first && wr.wr_id < last && takes_receive(wr.opcode);
            }));
    tx_lock.unlock();
    {
        const core::SpinGuard guard(tx_queue->lock);
        for (unsigned i = 0; i < count; ++i) {
            ofi::Completion entry;
            entry.context = lost[i].context;
            entry.flags = lost[i].flags;
            entry.owner = this;
            entry.error = error;
            static_cast<void>(tx_queue->entries.push(entry));
        }
    }
    tx_lock.lock();
    return to_result(error);
}

void Endpoint::number(ibv_send_wr &wr, const Work &work) noexcept
{
    wr.wr_id = tx.next();
    if (work.wanted || work.counter || ++unsignaled >= tx.limit() / 4) {
        wr.send_flags |= IBV_SEND_SIGNALED;
        unsignaled = 0;
    }
    tx.push(work);
}

ssize_t Endpoint::post_locked(ibv_send_wr &wr, const Work &work) noexcept
{
    number(wr, work);
    ibv_send_wr *refused = nullptr;
    const int error = ibv_post_send(qp, &wr, &refused);
    if (error == 0) [[likely]]
        return 0;
    tx.drop(wr.wr_id);
    return to_result(error);
}

// What waits in a row of FI_MORE goes now. tx_lock held.
ssize_t Endpoint::flush_row() noexcept
{
    return batch && batch->count > 0 ? flush(tx.next()) : 0;
}

// Who only injects reads no queue, and what waits in a row of FI_MORE may be all that fills it. tx_lock held, but not
// all the time.
[[gnu::noinline]] void Endpoint::make_room() noexcept
{
    static_cast<void>(flush_row());
    tx_lock.unlock();
    tx_queue->progress();
    tx_lock.lock();
}

// One function without calls but the device's: a sixth of a small send's instructions are saved.
[[gnu::flatten]] ssize_t Endpoint::post(ibv_send_wr &wr, const Work &work, std::uint64_t flags) noexcept
{
    const core::SpinGuard guard(tx_lock);
    if (!open_for_sends.load(std::memory_order_relaxed)) [[unlikely]]
        return -FI_ENOTCONN;
    if (tx.full()) [[unlikely]] {
        make_room();
        if (tx.full())
            return -FI_EAGAIN;
    }
    if (pacer.limited() && wr.opcode != IBV_WR_RDMA_READ && !may_go(bytes_of(wr))) [[unlikely]]
        return -FI_EAGAIN;
    if (fast_out != nullptr && takes_receive(wr.opcode)) [[unlikely]]
        return post_fast(wr, work, flags);
    return post_slow(wr, work, flags);
}

// By send/receive, or what needs no receive. With tx_lock held and room in the send queue.
ssize_t Endpoint::post_slow(ibv_send_wr &wr, const Work &work, std::uint64_t flags) noexcept
{
    if (!device_memory.there() || (wr.send_flags & IBV_SEND_INLINE) || wr.opcode == IBV_WR_RDMA_READ) [[likely]]
        return post_open(wr, work, flags);
    ibv_sge place;
    Work there = work;
    put_on_device(wr, place, there);
    return post_open(wr, there, flags);
}

// The bytes of `wr` go from the device's memory, `place`, if that has room. tx_lock held.
void Endpoint::put_on_device(ibv_send_wr &wr, ibv_sge &place, Work &work) noexcept
{
    const std::uint64_t done = memory_done.load(std::memory_order_acquire);
    if (!device_memory.put(wr.sg_list, wr.num_sge, done, place, work.device_memory))
        return;
    wr.sg_list = &place;
    wr.num_sge = 1;
    if (device_memory.is_quarter_used(work.device_memory)) {
        wr.send_flags |= IBV_SEND_SIGNALED;
        unsignaled = 0;
    }
}

// At once, or with others in a row of FI_MORE. With tx_lock held and room in the send queue.
ssize_t Endpoint::post_open(ibv_send_wr &wr, const Work &work, std::uint64_t flags) noexcept
{
    const bool more = (flags & FI_MORE) && !(flags & FI_INJECT);
    if (!more && (!batch || batch->count == 0)) [[likely]]
        return post_locked(wr, work);
    if (!batch)
        batch.reset(new (std::nothrow) Batch);
    if (!batch)
        return -FI_ENOMEM;
    number(wr, work);
    const unsigned at = batch->count++;
    batch->wr[at] = wr;
    batch->wr[at].sg_list = batch->sge[at];
    std::copy_n(wr.sg_list, wr.num_sge, batch->sge[at]);
    return more && batch->count < Batch::kMost ? 0 : flush(wr.wr_id);
}

void Endpoint::release_memory(const Work &work) noexcept
{
    if (work.device_memory != 0) [[unlikely]]
        memory_done.store(work.device_memory, std::memory_order_release);
}

Work Endpoint::complete_sends(std::uint64_t number) noexcept
{
    for (std::uint64_t i = tx.done(); i < number; ++i) {
        if (ofi::Cntr *counter = tx.at(i).counter)
            counter->count();
        release_memory(tx.at(i));
    }
    const Work work = tx.at(number);
    release_memory(work);
    tx.set_done(number + 1);
    return work;
}

Work Endpoint::complete_receive(std::uint64_t number) noexcept
{
    if (shared) {
        Work work = shared->complete(number);
        work.counter = receive_counter;
        return work;
    }
    const Work work = rx.at(number);
    rx.set_done(number + 1);
    return work;
}

ssize_t Endpoint::post_receive(const iovec *iov, void **desc, std::size_t count, void *context, bool wanted) noexcept
{
    ibv_sge list[kMostIov];
    std::uint64_t length = 0;
    if (!is_enabled)
        return -FI_EOPBADSTATE;
    if (shared || region || !fill_list(iov, desc, count, list, length))
        return -FI_EINVAL;
    const core::SpinGuard guard(rx_lock);
    if (rx.full())
        return -FI_EAGAIN;
    const std::uint64_t number = rx.next();
    rx.push({.context = context, .flags = FI_RECV | FI_MSG, .counter = receive_counter, .wanted = wanted});
    if (number >= hold_from) [[unlikely]] {
        hold(number, list, count);
        return 0;
    }
    ibv_recv_wr wr{.wr_id = number | kReceiveBit, .next = nullptr, .sg_list = list, .num_sge = static_cast<int>(count)};
    ibv_recv_wr *refused = nullptr;
    const int error = ibv_post_recv(qp, &wr, &refused);
    if (error == 0) [[likely]]
        return 0;
    rx.drop(number);
    return to_result(error);
}

namespace {

struct Operation {
    const iovec *iov;
    void **desc;
    std::size_t count;
    void *context;
    std::uint64_t flags;
    bool wanted;
};

// Lists the bytes, and makes them inline where they fit: then the device needs no second look at memory.
[[gnu::always_inline]] inline ssize_t fill(Endpoint &endpoint, const Operation &op, ibv_send_wr &wr, ibv_sge *list,
                                           bool reads = false) noexcept
{
    std::uint64_t length = 0;
    if (!fill_list(op.iov, op.desc, op.count, list, length))
        return -FI_EINVAL;
    wr.sg_list = list;
    wr.num_sge = length > 0 ? static_cast<int>(op.count) : 0;
    if (length <= endpoint.max_inline && !reads)
        wr.send_flags |= IBV_SEND_INLINE;
    else if (op.flags & FI_INJECT)
        return -FI_EINVAL; // more than inject_size
    if (op.flags & FI_FENCE)
        wr.send_flags |= IBV_SEND_FENCE;
    return 0;
}

ssize_t send_message(Endpoint &endpoint, const Operation &op, const std::uint64_t *data) noexcept
{
    ibv_sge list[kMostIov];
    ibv_send_wr wr{};
    if (endpoint.region) [[unlikely]]
        return -FI_EOPNOTSUPP; // the peer's receives are for notes
    if (const ssize_t error = fill(endpoint, op, wr, list))
        return error;
    wr.opcode = data ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    if (data)
        wr.imm_data = htonl(static_cast<std::uint32_t>(*data));
    return endpoint.post(
        wr, {.context = op.context, .flags = FI_SEND | FI_MSG, .counter = endpoint.send_counter, .wanted = op.wanted},
        op.flags);
}

ssize_t send(fid_ep *ep, const void *buffer, std::size_t length, void *desc, fi_addr_t, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const iovec iov{const_cast<void *>(buffer), length};
    const std::uint64_t flags = endpoint.tx_flags;
    return send_message(endpoint, {&iov, &desc, 1, context, flags, endpoint.wants_tx_completion(flags)}, nullptr);
}

ssize_t senddata(fid_ep *ep, const void *buffer, std::size_t length, void *desc, std::uint64_t data, fi_addr_t,
                 void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const iovec iov{const_cast<void *>(buffer), length};
    const std::uint64_t flags = endpoint.tx_flags;
    return send_message(endpoint, {&iov, &desc, 1, context, flags, endpoint.wants_tx_completion(flags)}, &data);
}

ssize_t sendv(fid_ep *ep, const iovec *iov, void **desc, std::size_t count, fi_addr_t, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags;
    return send_message(endpoint, {iov, desc, count, context, flags, endpoint.wants_tx_completion(flags)}, nullptr);
}

ssize_t sendmsg(fid_ep *ep, const fi_msg *message, std::uint64_t flags)
{
    Endpoint &endpoint = Endpoint::from(ep);
    return send_message(endpoint,
                        {message->msg_iov, message->desc, message->iov_count, message->context, flags,
                         endpoint.wants_tx_completion(flags)},
                        (flags & FI_REMOTE_CQ_DATA) ? &message->data : nullptr);
}

ssize_t inject(fid_ep *ep, const void *buffer, std::size_t length, fi_addr_t)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return send_message(Endpoint::from(ep), {&iov, nullptr, 1, nullptr, FI_INJECT, false}, nullptr);
}

ssize_t injectdata(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, fi_addr_t)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return send_message(Endpoint::from(ep), {&iov, nullptr, 1, nullptr, FI_INJECT, false}, &data);
}

ssize_t recv(fid_ep *ep, void *buffer, std::size_t length, void *desc, fi_addr_t, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const iovec iov{buffer, length};
    return endpoint.post_receive(&iov, &desc, 1, context, endpoint.wants_rx_completion(endpoint.rx_flags));
}

ssize_t recvv(fid_ep *ep, const iovec *iov, void **desc, std::size_t count, fi_addr_t, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    return endpoint.post_receive(iov, desc, count, context, endpoint.wants_rx_completion(endpoint.rx_flags));
}

ssize_t recvmsg(fid_ep *ep, const fi_msg *message, std::uint64_t flags)
{
    Endpoint &endpoint = Endpoint::from(ep);
    return endpoint.post_receive(message->msg_iov, message->desc, message->iov_count, message->context,
                                 endpoint.wants_rx_completion(flags));
}

// ---- RMA -----------------------------------------------------------------------------------------------------------

struct Target {
    std::uint64_t address;
    std::uint64_t key;
};

ssize_t access(Endpoint &endpoint, const Operation &op, const Target &target, ibv_wr_opcode opcode,
               const std::uint64_t *data) noexcept
{
    const bool reads = opcode == IBV_WR_RDMA_READ;
    const Work work = {.context = op.context,
                       .flags = FI_RMA | (reads ? FI_READ : FI_WRITE),
                       .counter = reads ? endpoint.read_counter : endpoint.write_counter,
                       .wanted = op.wanted};
    if (target.key == FI_VMA_REGION_KEY)
        return reads ? -FI_EINVAL : endpoint.write_region(op.iov, op.count, target.address, data, work);
    if (data && !endpoint.cq_data)
        return -FI_EINVAL; // without FI_RX_CQ_DATA there is none
    ibv_sge list[kMostIov];
    ibv_send_wr wr{};
    if (const ssize_t error = fill(endpoint, op, wr, list, reads))
        return error;
    wr.opcode = opcode;
    if (data)
        wr.imm_data = htonl(static_cast<std::uint32_t>(*data));
    wr.wr.rdma.remote_addr = target.address;
    wr.wr.rdma.rkey = static_cast<std::uint32_t>(target.key);
    return endpoint.post(wr, work, op.flags);
}

ssize_t readv(fid_ep *ep, const iovec *iov, void **desc, std::size_t count, fi_addr_t, std::uint64_t address,
              std::uint64_t key, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags & ~FI_INJECT;
    return access(endpoint, {iov, desc, count, context, flags, endpoint.wants_tx_completion(flags)}, {address, key},
                  IBV_WR_RDMA_READ, nullptr);
}

ssize_t read(fid_ep *ep, void *buffer, std::size_t length, void *desc, fi_addr_t source, std::uint64_t address,
             std::uint64_t key, void *context)
{
    const iovec iov{buffer, length};
    return readv(ep, &iov, &desc, 1, source, address, key, context);
}

// One place at the peer, of the right length.
bool fits(const fi_msg_rma *message) noexcept
{
    if (message->rma_iov_count != 1 || message->iov_count > kMostIov)
        return false;
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < message->iov_count; ++i)
        length += message->msg_iov[i].iov_len;
    return length == message->rma_iov[0].len;
}

ssize_t message_access(Endpoint &endpoint, const fi_msg_rma *message, std::uint64_t flags, ibv_wr_opcode opcode,
                       const std::uint64_t *data) noexcept
{
    if (!fits(message))
        return -FI_EINVAL;
    return access(endpoint,
                  {message->msg_iov, message->desc, message->iov_count, message->context, flags,
                   endpoint.wants_tx_completion(flags)},
                  {message->rma_iov[0].addr, message->rma_iov[0].key}, opcode, data);
}

ssize_t readmsg(fid_ep *ep, const fi_msg_rma *message, std::uint64_t flags)
{
    return message_access(Endpoint::from(ep), message, flags & ~FI_INJECT, IBV_WR_RDMA_READ, nullptr);
}

ssize_t writemsg(fid_ep *ep, const fi_msg_rma *message, std::uint64_t flags)
{
    const bool data = (flags & FI_REMOTE_CQ_DATA) != 0;
    return message_access(Endpoint::from(ep), message, flags, data ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
                          data ? &message->data : nullptr);
}

ssize_t writev(fid_ep *ep, const iovec *iov, void **desc, std::size_t count, fi_addr_t, std::uint64_t address,
               std::uint64_t key, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags;
    return access(endpoint, {iov, desc, count, context, flags, endpoint.wants_tx_completion(flags)}, {address, key},
                  IBV_WR_RDMA_WRITE, nullptr);
}

ssize_t write(fid_ep *ep, const void *buffer, std::size_t length, void *desc, fi_addr_t target, std::uint64_t address,
              std::uint64_t key, void *context)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return writev(ep, &iov, &desc, 1, target, address, key, context);
}

ssize_t writedata(fid_ep *ep, const void *buffer, std::size_t length, void *desc, std::uint64_t data, fi_addr_t,
                  std::uint64_t address, std::uint64_t key, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const iovec iov{const_cast<void *>(buffer), length};
    const std::uint64_t flags = endpoint.tx_flags;
    return access(endpoint, {&iov, &desc, 1, context, flags, endpoint.wants_tx_completion(flags)}, {address, key},
                  IBV_WR_RDMA_WRITE_WITH_IMM, &data);
}

ssize_t inject_write(fid_ep *ep, const void *buffer, std::size_t length, fi_addr_t, std::uint64_t address,
                     std::uint64_t key)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return access(Endpoint::from(ep), {&iov, nullptr, 1, nullptr, FI_INJECT, false}, {address, key}, IBV_WR_RDMA_WRITE,
                  nullptr);
}

ssize_t inject_writedata(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, fi_addr_t,
                         std::uint64_t address, std::uint64_t key)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return access(Endpoint::from(ep), {&iov, nullptr, 1, nullptr, FI_INJECT, false}, {address, key},
                  IBV_WR_RDMA_WRITE_WITH_IMM, &data);
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

constinit fi_ops_rma endpoint_rma_ops = {.size = sizeof(fi_ops_rma),
                                         .read = read,
                                         .readv = readv,
                                         .readmsg = readmsg,
                                         .write = write,
                                         .writev = writev,
                                         .writemsg = writemsg,
                                         .inject = inject_write,
                                         .writedata = writedata,
                                         .injectdata = inject_writedata};

} // namespace vma::verbs
