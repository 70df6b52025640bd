// SPDX-License-Identifier: BSD-2-Clause
// Something with a descriptor in the epoll set of a connection manager.
#pragma once

#include <cstdint>

namespace vma::local {

class EventSource
{
public:
    EventSource() = default;
    EventSource(const EventSource &) = delete;
    EventSource &operator=(const EventSource &) = delete;
    // Called with the CM lock held. It may destroy the source itself.
    virtual void on_ready(std::uint32_t events) noexcept = 0;

protected:
    ~EventSource() = default;
};

} // namespace vma::local
