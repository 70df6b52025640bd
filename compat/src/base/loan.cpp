// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/loan.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "compat/src/base/memory.hpp"

namespace vma::sock {

namespace {

void free_copy(fi_vma_lender *, const void *payload, std::size_t)
{
    memory::release(const_cast<void *>(payload));
}

constinit const fi_vma_lender kCopies = {free_copy, nullptr};

// Pages, where the program's allocator gives nothing: what has arrived is not to be lost for that.
struct Mapping {
    std::size_t size;
    std::size_t unused; // what follows is aligned for all types
};

void unmap_copy(fi_vma_lender *, const void *payload, std::size_t)
{
    const Mapping *const mapping = static_cast<const Mapping *>(payload) - 1;
    ::munmap(const_cast<Mapping *>(mapping), mapping->size);
}

constinit const fi_vma_lender kMappedCopies = {unmap_copy, nullptr};

std::uint8_t *map_room(std::size_t length)
{
    const std::size_t size = sizeof(Mapping) + length;
    void *const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? reinterpret_cast<std::uint8_t *>(new (memory) Mapping{size, 0} + 1) : nullptr;
}

// Nothing is written there yet.
Loan lend_room(std::size_t length)
{
    const fi_vma_lender *lender = &kCopies;
    auto *memory = static_cast<std::uint8_t *>(memory::allocate(length != 0 ? length : 1));
    if (memory == nullptr) {
        lender = &kMappedCopies;
        memory = map_room(length);
    }
    if (memory == nullptr)
        return {};
    return {const_cast<fi_vma_lender *>(lender), memory, static_cast<std::uint32_t>(length), 0};
}

} // namespace

Loan lend_copy(const void *bytes, std::size_t length)
{
    Loan copy = lend_room(length);
    if (copy.lender != nullptr && length != 0)
        std::memcpy(const_cast<std::uint8_t *>(copy.record), bytes, length);
    return copy;
}

Loan lend_copy(const msghdr &message, std::size_t length)
{
    Loan copy = lend_room(length);
    if (copy.lender == nullptr)
        return copy;
    auto *to = const_cast<std::uint8_t *>(copy.record);
    for (const iovec *part = message.msg_iov; length != 0; ++part) {
        const std::size_t piece = std::min(length, part->iov_len);
        if (piece != 0)
            std::memcpy(to, part->iov_base, piece);
        to += piece;
        length -= piece;
    }
    return copy;
}

} // namespace vma::sock
