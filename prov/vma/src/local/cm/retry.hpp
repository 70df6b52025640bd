// SPDX-License-Identifier: BSD-2-Clause
// What has to be tried again in a moment, for want of something that nobody tells us of when it is there: room in a
// listener's backlog, descriptors, the kernel's allowance of descriptors on their way.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "core/fd.hpp"
#include "local/cm/event_source.hpp"

namespace vma::local {

class ConnectionManager;
class Link;
class Listener;
struct Connection;

class Retries final : public EventSource
{
public:
    explicit Retries(ConnectionManager &manager) noexcept : manager_(manager) {}
    ~Retries();
    // At the start: when it is needed there may be no descriptor left for a timer. 0 or a negative errno.
    int open() noexcept;

    void add(Connection &connection) noexcept { note(connections_, &connection); }
    void add(Link &link) noexcept { note(links_, &link); }
    void add(Listener &listener) noexcept { note(listeners_, &listener); }
    void remove(Connection &connection) noexcept { connections_.erase(&connection); }
    void remove(Link &link) noexcept { links_.erase(&link); }
    void remove(Listener &listener) noexcept { listeners_.erase(&listener); }

    void on_ready(std::uint32_t events) noexcept override;

private:
    template <typename Item> void note(std::unordered_set<Item *> &set, Item *item) noexcept
    {
        set.insert(item);
        arm();
    }
    void arm() noexcept;

    ConnectionManager &manager_;
    core::UniqueFd timer_;
    bool armed_ = false;
    std::unordered_set<Connection *> connections_;
    std::unordered_set<Link *> links_;
    std::unordered_set<Listener *> listeners_;
};

} // namespace vma::local
