// SPDX-License-Identifier: BSD-2-Clause
// Atomic operations on a peer's memory, from the side that begins them: all operands go with one record, what was there
// before comes with the answer.
#include "rdm/endpoint.hpp"

#include <cstring>

#include <rdma/fi_errno.h>

#include "ofi/memory/atomic_apply.hpp"

namespace vma::rdm {

using local::Bell;
using ofi::AtomicKind;

namespace {

// The elements of a list of buffers; 0 for a list that is none.
std::size_t elements_of(const fi_ioc *list, std::size_t count) noexcept
{
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count && list != nullptr; ++i) {
        if (list[i].count > ofi::kAtomicBytes)
            return SIZE_MAX;
        sum += list[i].count;
    }
    return sum;
}

void put(std::byte *&at, const fi_ioc *list, std::size_t count, std::size_t size) noexcept
{
    for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(at, list[i].addr, list[i].count * size);
        at += list[i].count * size;
    }
}

bool lists_fit(const AtomicAccess &access, std::size_t elements) noexcept
{
    const bool fetches = access.kind != static_cast<std::uint8_t>(AtomicKind::base);
    const bool compares = access.kind == static_cast<std::uint8_t>(AtomicKind::compare);
    const bool operands = access.op != FI_ATOMIC_READ;
    return access.operand_count <= ofi::kIovLimit && access.result_count <= ofi::kIovLimit &&
           access.compare_count <= ofi::kIovLimit &&
           (!operands || elements_of(access.operand, access.operand_count) == elements) &&
           (!fetches || elements_of(access.result, access.result_count) == elements) &&
           (!compares || elements_of(access.compare, access.compare_count) == elements);
}

} // namespace

ssize_t RdmEndpoint::atomic(const AtomicAccess &access) noexcept
{
    if (!ofi::atomic_valid(static_cast<AtomicKind>(access.kind), access.type, access.op))
        return -FI_EOPNOTSUPP;
    const std::size_t size = ofi::atomic_size(access.type);
    if (access.remote == nullptr || access.remote_count == 0 || access.remote_count > ofi::kRmaIovLimit)
        return -FI_EINVAL;
    TargetList targets{};
    std::size_t elements = 0;
    for (std::size_t i = 0; i < access.remote_count; ++i) {
        const fi_rma_ioc &part = access.remote[i];
        if (part.count > ofi::kAtomicBytes)
            return -FI_EMSGSIZE;
        elements += part.count;
        targets.targets[targets.count++] = {part.addr, part.count * size, part.key};
    }
    if (elements == 0 || !lists_fit(access, elements))
        return -FI_EINVAL;
    if (elements * size > ofi::kAtomicBytes)
        return -FI_EMSGSIZE;
    return write_locked([&](Bell &bell) { return looked_into(atomic_locked(access, targets, elements, bell)); });
}

ssize_t RdmEndpoint::atomic_locked(const AtomicAccess &access, const TargetList &targets, std::size_t elements,
                                   Bell &bell) noexcept
{
    if (!enabled_)
        return -FI_EOPBADSTATE;
    Peer *const peer = peer_of(access.to);
    if (peer == nullptr)
        return -FI_EINVAL;
    if (const int error = ready_to_wait(*peer, bell))
        return error;
    if ((access.flags & FI_FENCE) != 0 && peer->outstanding != 0)
        return -FI_EAGAIN;
    const bool fetches = access.kind != static_cast<std::uint8_t>(AtomicKind::base);
    const bool compares = access.kind == static_cast<std::uint8_t>(AtomicKind::compare);
    const std::size_t bytes = elements * ofi::atomic_size(access.type);
    Operation *const operation =
        begin(*peer, access.context, access.completion, FI_ATOMIC | (fetches ? FI_READ : FI_WRITE),
              fetches ? counters_.read : counters_.write);
    if (operation == nullptr)
        return -FI_EAGAIN;
    const std::size_t operands = (access.op != FI_ATOMIC_READ ? bytes : 0) + (compares ? bytes : 0);
    const std::size_t length = sizeof(Packet) + sizeof(AtomicHead) + bytes_of(targets) + operands;
    std::byte *at = peer->claim(length);
    if (at == nullptr) {
        release(*operation);
        return refused(*peer, bell);
    }
    const std::size_t size = ofi::atomic_size(access.type);
    for (std::size_t i = 0; fetches && i < access.result_count; ++i)
        operation->iov[i] = {access.result[i].addr, access.result[i].count * size};
    operation->iov_count = fetches ? static_cast<std::uint32_t>(access.result_count) : 0;
    operation->length = operation->done = fetches ? bytes : 0;
    const Packet packet{PacketOp::atomic, 0, 0, operation->id(), 0, bytes};
    const AtomicHead head{access.kind, static_cast<std::uint8_t>(access.type), static_cast<std::uint8_t>(access.op), 0,
                          static_cast<std::uint32_t>(elements)};
    std::memcpy(at, &packet, sizeof packet);
    at += sizeof packet;
    std::memcpy(at, &head, sizeof head);
    at += sizeof head;
    std::memcpy(at, &targets, bytes_of(targets));
    at += bytes_of(targets);
    if (access.op != FI_ATOMIC_READ)
        put(at, access.operand, access.operand_count, size);
    if (compares)
        put(at, access.compare, access.compare_count, size);
    operation->state = Operation::State::waiting;
    publish(*peer, length, false, 0, bell);
    return 0;
}

} // namespace vma::rdm
