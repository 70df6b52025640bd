// SPDX-License-Identifier: BSD-2-Clause
// What an atomic operation does to the memory that it is meant for, for every type and operation of fi_atomic(3). Who
// may access that memory, and how operands come and results go, is the callers' affair.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

namespace vma::ofi {

enum class AtomicKind : std::uint8_t { base, fetch, compare }; // fi_atomic, fi_fetch_atomic, fi_compare_atomic

// Bytes of one element; 0 for what is no type of ours.
std::size_t atomic_size(fi_datatype type) noexcept;
// Whether the operation is one that we carry out on elements of this type.
bool atomic_valid(AtomicKind kind, fi_datatype type, fi_op op) noexcept;

// Carries out a valid operation on `count` elements at `target`. `operand` may be nullptr for FI_ATOMIC_READ; `compare`
// is for compare kinds; `result` gets the values from before, of fetch and compare kinds. None of the three may overlap
// `target`, and all four may be unaligned.
//
// The caller holds a lock, which makes each element's change atomic to all others that are made here. Integers of up to
// 8 bytes that are naturally aligned are changed by the processor's own atomic instructions besides, so that what the
// program does to them with its own at the same time is not lost; everything else is read and then written.
void atomic_apply(AtomicKind kind, fi_datatype type, fi_op op, std::byte *target, const std::byte *operand,
                  const std::byte *compare, std::byte *result, std::size_t count) noexcept;

} // namespace vma::ofi
