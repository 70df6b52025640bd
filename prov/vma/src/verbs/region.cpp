// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/region.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <endian.h>
#include <sys/mman.h>

#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>
#include <rdma/fi_rma.h>

#include "core/log.hpp"
#include "ofi/give_option.hpp"
#include "verbs/endpoint.hpp"

namespace vma::verbs {

int Pages::make(ibv_pd *pd, std::size_t wanted, int access) noexcept
{
    void *memory = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    bytes_ = static_cast<std::byte *>(memory);
    size_ = wanted;
    // A forked child must not make us a copy of pages that the device goes on writing to.
    ::madvise(memory, wanted, MADV_DONTFORK);
    return register_memory(pd, memory, wanted, access, mr_);
}

Pages::~Pages()
{
    if (mr_ != nullptr)
        table()->dereg_mr(mr_);
    if (bytes_ != nullptr && !kept_)
        ::munmap(bytes_, size_);
}

int RegionLink::open(ibv_pd *pd, std::size_t region, std::size_t receives) noexcept
{
    length = region;
    limit = std::bit_floor(receives);
    int error = block.make(pd, kControlBytes + region, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (error == 0)
        error = notes.make(pd, limit * sizeof(Note), IBV_ACCESS_LOCAL_WRITE);
    return error;
}

void RegionLink::describe(ConnectHeader &header) const noexcept
{
    header.block_key = block.remote_key();
    header.block_address = reinterpret_cast<std::uintptr_t>(block.bytes());
    header.block_length = static_cast<std::uint32_t>(length);
    header.notes = static_cast<std::uint8_t>(std::countr_zero(limit));
}

int RegionLink::join(ibv_pd *pd, const ConnectHeader &header) noexcept
{
    if (header.block_length == 0)
        return 0; // it has none
    if (header.block_length > kMaxRegion || header.notes >= 32) {
        VMA_WARN(ep_ctrl, "the peer offers a region of %u bytes and 2^%u notes, expected %zu and 2^31 at most",
                 header.block_length, unsigned{header.notes}, kMaxRegion);
        return -FI_EINVAL;
    }
    if (const int error = mirror.make(pd, header.block_length, 0))
        return error;
    peer_length = header.block_length;
    peer_address = header.block_address;
    peer_key = header.block_key;
    room = UINT64_C(1) << header.notes;
    return 0;
}

int Endpoint::keep_region(void *value, std::size_t *length) noexcept
{
    const int result = ofi::give_option(fi_vma_mapping{region->block.bytes(), region->block.size()}, value, length);
    if (result == 0)
        region->block.keep();
    return result;
}

// ---- what an endpoint does with it ---------------------------------------------------------------------------------

int Endpoint::post_note(std::uint64_t number) noexcept
{
    ibv_sge place{.addr = reinterpret_cast<std::uintptr_t>(region->note(number)),
                  .length = sizeof(Note),
                  .lkey = region->notes.local_key()};
    ibv_recv_wr wr{.wr_id = number | kReceiveBit, .next = nullptr, .sg_list = &place, .num_sge = 1};
    ibv_recv_wr *refused = nullptr;
    rx.push({.context = nullptr, .flags = 0, .counter = nullptr, .wanted = true});
    return -ibv_post_recv(qp, &wr, &refused);
}

int Endpoint::post_notes() noexcept
{
    for (std::uint64_t number = 0; number < region->limit; ++number) {
        if (const int error = post_note(number))
            return error;
    }
    return 0;
}

// A write of the peer's, or a note alone. False: it broke the rules.
bool Endpoint::take_note(const ibv_wc &wc, ofi::Completion &entry) noexcept
{
    const std::uint64_t number = wc.wr_id & ~kReceiveBit;
    entry.context = fid.fid.context;
    entry.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
    if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        entry.length = wc.byte_len;
        entry.data = be32toh(wc.imm_data);
    } else {
        Note note;
        std::memcpy(&note, region->note(number), sizeof note);
        entry.length = note.length;
        entry.data = note.data;
        if (wc.byte_len != sizeof note || note.length > region->length)
            return false;
    }
    rx.set_done(number + 1);
    ++region->taken;
    if (post_note(rx.next()) != 0)
        return false;
    tell_taken();
    return true;
}

// Lets the peer know that its notes are read, a quarter of them at a time. With the receiving queue's lock held.
void Endpoint::tell_taken() noexcept
{
    if (region->taken - region->told < region->limit / 4)
        return;
    const core::SpinGuard guard(tx_lock);
    if (tx.full() || !open_for_sends.load(std::memory_order_relaxed))
        return; // with the next note
    std::uint64_t taken = region->taken;
    ibv_sge list{.addr = reinterpret_cast<std::uintptr_t>(&taken), .length = sizeof taken, .lkey = 0};
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_INLINE;
    wr.wr.rdma = {.remote_addr = region->peer_address, .rkey = region->peer_key};
    if (post_locked(wr, {.context = nullptr, .flags = 0, .counter = nullptr, .wanted = false}) == 0)
        region->told = taken;
}

namespace {

// Where a write's bytes go out from: the call's own when the device takes them along, else the mirror, which has them
// for as long as nobody writes there again.
void list_bytes(const Endpoint &endpoint, std::uint64_t offset, std::size_t length, ibv_send_wr &wr, ibv_sge &list)
{
    const RegionLink &region = *endpoint.region;
    list = {.addr = reinterpret_cast<std::uintptr_t>(region.mirror.bytes() + offset),
            .length = static_cast<std::uint32_t>(length),
            .lkey = region.mirror.local_key()};
    wr.sg_list = &list;
    wr.num_sge = length > 0 ? 1 : 0;
    if (length <= endpoint.max_inline)
        wr.send_flags |= IBV_SEND_INLINE;
    wr.wr.rdma = {.remote_addr = region.peer_address + kControlBytes + offset, .rkey = region.peer_key};
}

} // namespace

// With tx_lock held. Long data goes behind the bytes, in a message of its own.
ssize_t Endpoint::write_region_locked(std::uint64_t offset, std::size_t length, const std::uint64_t *data,
                                      const Work &work) noexcept
{
    const bool is_long = data && *data >= kShortData;
    const Work silent = {.context = nullptr, .flags = 0, .counter = nullptr, .wanted = false};
    ibv_sge list{};
    if (!is_long || length > 0) {
        ibv_send_wr wr{};
        list_bytes(*this, offset, length, wr, list);
        wr.opcode = data && !is_long ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        wr.imm_data = data && !is_long ? htobe32(static_cast<std::uint32_t>(*data)) : 0;
        ibv_sge place;
        Work there = is_long ? silent : work;
        if (device_memory.there() && length > 0 && !(wr.send_flags & IBV_SEND_INLINE)) [[unlikely]]
            put_on_device(wr, place, there);
        if (const ssize_t error = post_locked(wr, there))
            return error;
    }
    if (is_long) {
        const Note note = {*data, length};
        list = {.addr = reinterpret_cast<std::uintptr_t>(&note), .length = sizeof note, .lkey = 0};
        ibv_send_wr wr{};
        wr.sg_list = &list;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_INLINE;
        if (const ssize_t error = post_locked(wr, work))
            return error;
    }
    region->sent += data != nullptr;
    return 0;
}

ssize_t Endpoint::write_region(const iovec *iov, std::size_t count, std::uint64_t offset, const std::uint64_t *data,
                               const Work &work) noexcept
{
    if (!region || count > kMostIov)
        return -FI_EINVAL;
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (__builtin_add_overflow(length, iov[i].iov_len, &length))
            return -FI_EINVAL;
    }
    tx_lock.lock();
    if (tx.left() < kReservedSends + 2) [[unlikely]] {
        tx_lock.unlock();
        tx_queue->progress();
        tx_lock.lock();
    }
    ssize_t result = 0;
    if (!open_for_sends.load(std::memory_order_relaxed))
        result = -FI_ENOTCONN;
    else if (offset > region->peer_length || length > region->peer_length - offset)
        result = -FI_EINVAL;
    else if (tx.left() < kReservedSends + 2 || (data && region->left() == 0) ||
             (pacer.limited() && length > 0 && !may_go(length)))
        result = -FI_EAGAIN;
    if (result == 0) {
        std::byte *to = region->mirror.bytes() + offset;
        for (std::size_t i = 0; i < count; to += iov[i++].iov_len) {
            if (iov[i].iov_len > 0)
                std::memcpy(to, iov[i].iov_base, iov[i].iov_len);
        }
        result = write_region_locked(offset, length, data, work);
    }
    tx_lock.unlock();
    return result;
}

} // namespace vma::verbs
