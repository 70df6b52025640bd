// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/socket/loan.hpp"

#include <cstring>

#include "compat/src/extra/memory.hpp"

namespace vma::sock {

namespace {

void free_copy(fi_vma_lender *, const void *payload, std::size_t)
{
    extra::release(const_cast<void *>(payload));
}

constinit fi_vma_lender g_copies = {free_copy, nullptr};

} // namespace

Loan lend_copy(const void *bytes, std::size_t length)
{
    auto *const memory = static_cast<std::uint8_t *>(extra::allocate(length != 0 ? length : 1));
    if (memory == nullptr)
        return {};
    if (length != 0)
        std::memcpy(memory, bytes, length);
    return {&g_copies, memory, static_cast<std::uint32_t>(length), 0};
}

} // namespace vma::sock
