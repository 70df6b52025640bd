// SPDX-License-Identifier: BSD-2-Clause
// A socket of rtnetlink: requests with their answers, or events of the groups it is in. libmnl reads what comes; the
// descriptor is ours, as libmnl's own socket would close it by number, in forked children too, where it may be
// another's by then.
#pragma once

#include <functional>
#include <vector>

#include "core/fd.hpp"
#include "ether/netlink/message.hpp"

namespace vma::ether {

class NetlinkSocket
{
public:
    // Gets each message but those that only end an answer. `payload` lives as long as the call.
    using Handler = std::function<void(const nlmsghdr &header, NetlinkBytes payload)>;

    // `receive_buffer`: bytes that the kernel keeps for it, 0: as it likes. `groups`: of RTNLGRP_*. 0 or negative
    // errno: -ELIBACC without libmnl.
    [[nodiscard]] static int open(std::span<const unsigned> groups, int receive_buffer, NetlinkSocket &opened) noexcept;

    // Sends it and waits for the whole answer. 0, the kernel's own negative errno, or -EINTR: what a dump tells of has
    // changed meanwhile, ask again. For sockets in no group.
    [[nodiscard]] int ask(NetlinkRequest &request, const Handler &handler) noexcept;

    // Takes all events that have arrived, waits for none. 0 or negative errno. -ENOBUFS: some are lost, the next call
    // gives those after them.
    [[nodiscard]] int take_events(const Handler &handler) noexcept;

    int fd() const noexcept { return fd_.get(); }

private:
    const nlmsghdr *receive(int flags, int &size) noexcept;

    core::UniqueFd fd_;
    std::vector<std::uint8_t> buffer_;
    std::uint32_t sequence_ = 0;
};

} // namespace vma::ether
