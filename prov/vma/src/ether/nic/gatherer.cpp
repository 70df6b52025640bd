// SPDX-License-Identifier: BSD-2-Clause
#include "ether/nic/gatherer.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace vma::ether {

int Gatherer::open() noexcept
{
    memory_.reset(new (std::nothrow) std::uint8_t[kSize]);
    return memory_ ? 0 : -ENOMEM;
}

void Gatherer::restart() noexcept
{
    std::copy_n(&memory_[start_], size_, &memory_[0]); // to the left, if they overlap
    start_ = 0;
}

Gatherer::Took Gatherer::take(std::span<const std::uint8_t> part, bool more) noexcept
{
    broken_ = broken_ || part.size() > kLongest - size_;
    if (!broken_) {
        std::ranges::copy(part, &memory_[start_ + size_]);
        size_ += static_cast<std::uint32_t>(part.size());
    }
    gathering_ = more;
    if (more)
        return Took::kPart;
    const std::uint32_t size = std::exchange(size_, 0);
    if (std::exchange(broken_, false))
        return Took::kDropped;
    frame_ = {&memory_[start_], size};
    start_ += size;
    return Took::kFrame;
}

} // namespace vma::ether
