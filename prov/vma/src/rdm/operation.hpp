// SPDX-License-Identifier: BSD-2-Clause
// What a program has begun and what is not done yet: an operation whose records are not all written, or that waits for
// the peer's answer. Most messages never become one, as they end when they are in the ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/uio.h>

#include <rdma/fi_rma.h>

#include "ofi/cntr.hpp"
#include "ofi/info/attr.hpp"
#include "rdm/packet.hpp"

namespace vma::rdm {

struct Peer;

struct Operation {
    enum class State : std::uint8_t {
        free,
        writing,
        leaving, // to another host: written, but the network still has some of it
        waiting,
    };

    State state = State::free;
    bool completion = false;
    bool answered = false; // ends with an answer, not with its last record
    bool has_data = false;
    bool lost = false; // the ring that it was written into is no more; an answer may still be on its way
    Packet packet{};   // of its records
    std::uint64_t cq_flags = 0;
    std::uint64_t data = 0;
    std::uint64_t length = 0;
    std::uint64_t done = 0; // bytes that are written, or that were read
    void *context = nullptr;
    ofi::Cntr *counter = nullptr;
    Peer *peer = nullptr;
    std::uint64_t to = 0;        // whom it is for
    iovec iov[ofi::kIovLimit]{}; // where it comes from, or, of what reads, goes to
    std::uint32_t iov_count = 0;
    TargetList targets{};        // of what is written in pieces
    std::uint32_t leaves_by = 0; // packets of the peer's that have left when all of this one have
    Operation *next = nullptr;   // of those that the peer's ring has no room for, or that are leaving
    Operation *next_free = nullptr;
    std::uint32_t index = 0;
    std::uint16_t turn = 0; // how often its place was taken, so that an old answer is none of it

    static_assert(ofi::kRdmTxSize <= 1U << 16);
    std::uint32_t id() const noexcept { return index | std::uint32_t{turn} << 16; }
};

} // namespace vma::rdm
