// SPDX-License-Identifier: BSD-2-Clause
// Who wants to see frames before the stack does: NetIf::sort().
#pragma once

#include <cstdint>
#include <span>

#include "inet/wire/packet.hpp"

namespace vma::ether {

class FrameTaker
{
public:
    // True: the stack doesn't get it.
    virtual bool take(std::span<const std::uint8_t> frame, const inet::FrameInfo &info) noexcept = 0;

protected:
    ~FrameTaker() = default;
};

} // namespace vma::ether
