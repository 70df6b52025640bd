// SPDX-License-Identifier: BSD-2-Clause
// What peers do with the memory that a program has registered: it is carried out here, by who reads the endpoint's
// queue, in the order in which it was written into the ring.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <rdma/fi_errno.h>

#include "local/cma.hpp"
#include "local/ring/inlet.hpp"
#include "ofi/cntr.hpp"
#include "ofi/memory/atomic_apply.hpp"

namespace vma::rdm {

namespace {

using ofi::AtomicKind;

// Calls use(iovec *, count) for each of the targets until one gives an error, which it returns.
template <typename Use>
int for_targets(ofi::MrTable &mrs, const TargetList &targets, std::uint64_t access, Use &&use) noexcept
{
    int error = 0;
    for (std::uint64_t i = 0; i < targets.count && error == 0; ++i) {
        const Target &target = targets.targets[i];
        error = mrs.access(target.key, target.address, target.length, access, use);
    }
    return error;
}

} // namespace

void RdmEndpoint::count_access(const TargetList &targets, std::uint64_t access) noexcept
{
    ofi::Cntr *const counter = access == FI_REMOTE_WRITE ? counters_.remote_write : counters_.remote_read;
    if (counter != nullptr)
        counter->count();
    mrs_->count(targets.targets[targets.count - 1].key, access);
}

// A write is done, as far as this packet goes. Of one in pieces only the last is answered, with what went wrong in any.
void RdmEndpoint::written(const Incoming &in, const TargetList &targets, int error) noexcept
{
    Peer::Sender &sender = in.sender();
    if (sender.failed_write_error != 0 && sender.failed_write == in.packet.id)
        error = sender.failed_write_error;
    sender.failed_write = in.packet.id;
    sender.failed_write_error = (in.packet.flags & kMore) != 0 ? error : 0;
    if ((in.packet.flags & kMore) != 0)
        return;
    if (error == 0) {
        count_access(targets, FI_REMOTE_WRITE);
        if (in.has_data) {
            ofi::Completion entry;
            entry.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
            entry.length = in.packet.size;
            entry.data = in.data;
            entry.owner = owner();
            entry.source = in.source();
            push_rx(entry);
        }
    }
    answer(in.whom(), in.packet.id, error);
}

RdmEndpoint::Took RdmEndpoint::take_write(const Incoming &in) noexcept
{
    TargetList targets{};
    if (!read_list(in.body, in.length, targets) || targets.count == 0)
        return Took::lie;
    const std::size_t head = bytes_of(targets);
    if (in.length - head > kEager || total_of(targets) != in.length - head)
        return Took::lie;
    if (in.has_data && has_to_wait_for_queue())
        return Took::later;
    const std::byte *from = in.body + head;
    const int error = for_targets(*mrs_, targets, FI_REMOTE_WRITE, [&](const iovec *parts, unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            std::memcpy(parts[i].iov_base, from, parts[i].iov_len);
            from += parts[i].iov_len;
        }
        return 0;
    });
    written(in, targets, error);
    return Took::taken;
}

int RdmEndpoint::copy_targets(const TargetList &targets, const Peer::Sender &sender, const BufferList &theirs,
                              bool to_them) noexcept
{
    if (sender.we_reach_it != Peer::Reach::yes)
        return FI_ECONNRESET;
    std::uint64_t done = 0;
    const auto copy = [&](const iovec *parts, unsigned count) {
        std::uint64_t length = 0;
        for (unsigned i = 0; i < count; ++i)
            length += parts[i].iov_len;
        iovec there[ofi::kIovLimit];
        const unsigned used = local::slice(theirs.parts, static_cast<unsigned>(theirs.count), done, length, there);
        done += length;
        const auto direction = to_them ? local::CmaDirection::write : local::CmaDirection::read;
        return local::cma_copy(direction, sender.memory, parts, count, there, used, length);
    };
    return for_targets(*mrs_, targets, to_them ? FI_REMOTE_READ : FI_REMOTE_WRITE, copy);
}

RdmEndpoint::Took RdmEndpoint::take_write_offer(const Incoming &in) noexcept
{
    TargetList targets{};
    BufferList theirs{};
    if (!read_both(in.body, in.length, in.packet.size, targets, theirs))
        return Took::lie;
    if (in.has_data && has_to_wait_for_queue())
        return Took::later;
    written(in, targets, copy_targets(targets, in.sender(), theirs, false));
    return Took::taken;
}

RdmEndpoint::Took RdmEndpoint::take_read(const Incoming &in) noexcept
{
    TargetList targets{};
    BufferList theirs{};
    if (!read_both(in.body, in.length, in.packet.size, targets, theirs))
        return Took::lie;
    if (in.packet.size > kEager && in.sender().we_reach_it == Peer::Reach::yes) {
        const int error = copy_targets(targets, in.sender(), theirs, true);
        if (error == 0)
            count_access(targets, FI_REMOTE_READ);
        answer(in.whom(), in.packet.id, error);
        return Took::taken;
    }
    Reply said;
    said.packet = {PacketOp::answer, 0, 0, in.packet.id, 0, 0};
    said.source = targets;
    said.streams = true;
    reply(in.whom(), std::move(said));
    return Took::taken;
}

RdmEndpoint::Took RdmEndpoint::take_atomic(const Incoming &in) noexcept
{
    AtomicHead head{};
    TargetList targets{};
    if (in.length < sizeof head)
        return Took::lie;
    std::memcpy(&head, in.body, sizeof head);
    if (!read_list(in.body + sizeof head, in.length - sizeof head, targets) || targets.count == 0)
        return Took::lie;
    const auto kind = static_cast<AtomicKind>(head.kind);
    const auto type = static_cast<fi_datatype>(head.type);
    const auto op = static_cast<fi_op>(head.op);
    if (head.kind > static_cast<std::uint8_t>(AtomicKind::compare) || !ofi::atomic_valid(kind, type, op))
        return Took::lie;
    const std::size_t size = ofi::atomic_size(type);
    const std::uint64_t bytes = head.count * std::uint64_t{size};
    const bool only_reads = op == FI_ATOMIC_READ;
    const std::uint64_t operands = (only_reads ? 0 : bytes) + (kind == AtomicKind::compare ? bytes : 0);
    const std::size_t before = sizeof head + bytes_of(targets);
    if (bytes == 0 || bytes > ofi::kAtomicBytes || total_of(targets) != bytes || in.length - before != operands)
        return Took::lie;
    const std::byte *const operand = only_reads ? nullptr : in.body + before;
    const std::byte *const compare = kind == AtomicKind::compare ? in.body + before + bytes : nullptr;
    alignas(16) std::byte result[ofi::kAtomicBytes];
    std::size_t done = 0;
    const std::uint64_t access = (only_reads ? 0 : FI_REMOTE_WRITE) | (kind != AtomicKind::base ? FI_REMOTE_READ : 0);
    const int error = for_targets(*mrs_, targets, access, [&](const iovec *parts, unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            if (parts[i].iov_len % size != 0)
                return FI_EINVAL; // an element would lie in two buffers
        }
        for (unsigned i = 0; i < count; ++i) {
            ofi::atomic_apply(kind, type, op, static_cast<std::byte *>(parts[i].iov_base),
                              operand != nullptr ? operand + done : nullptr,
                              compare != nullptr ? compare + done : nullptr, result + done, parts[i].iov_len / size);
            done += parts[i].iov_len;
        }
        return 0;
    });
    if (error == 0)
        count_access(targets, kind == AtomicKind::base ? FI_REMOTE_WRITE : FI_REMOTE_READ);
    answer_with(in.whom(), in.packet.id, error, result, error == 0 && kind != AtomicKind::base ? bytes : 0);
    return Took::taken;
}

} // namespace vma::rdm
