// SPDX-License-Identifier: BSD-2-Clause
// What records are written with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "local/cma.hpp"
#include "rdm/packet.hpp"

namespace vma::rdm {

// Fills a record from its start to its end.
class RecordWriter
{
public:
    explicit RecordWriter(std::byte *place) noexcept : at_(place) {}
    void put(const void *from, std::size_t length) noexcept
    {
        std::memcpy(at_, from, length);
        at_ += length;
    }
    void skip(std::size_t length) noexcept { at_ += length; }
    void put_from(const iovec *iov, unsigned count, std::uint64_t offset, std::size_t length) noexcept
    {
        local::gather(at_, iov, count, offset, length);
        at_ += length;
    }

private:
    std::byte *at_;
};

// The part of a list of targets that `length` bytes from `offset` on go to.
inline TargetList part_of(const TargetList &all, std::uint64_t offset, std::uint64_t length) noexcept
{
    TargetList part{};
    for (std::uint64_t i = 0; i < all.count && length != 0; ++i) {
        const Target &target = all.targets[i];
        if (offset >= target.length) {
            offset -= target.length;
            continue;
        }
        const std::uint64_t here = std::min(target.length - offset, length);
        part.targets[part.count++] = {target.address + offset, here, target.key};
        length -= here;
        offset = 0;
    }
    return part;
}

} // namespace vma::rdm
