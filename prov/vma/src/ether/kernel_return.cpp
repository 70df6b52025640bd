// SPDX-License-Identifier: BSD-2-Clause
// System calls are made by number, as the preload library's functions of those names are not meant for us.
#include "ether/kernel_return.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "ether/address.hpp"
#include "inet/bytes.hpp"
#include "inet/ethernet.hpp"
#include "inet/frame.hpp"
#include "inet/tcp_segment.hpp"
#include "ofi/address.hpp"

namespace vma::ether {
namespace {

// From the IP header to the end of the payload: `packet` was read from `frame`.
inet::Bytes ip_packet(std::span<const std::uint8_t> frame, const inet::Packet &packet) noexcept
{
    const bool tagged = inet::load16(frame.data() + inet::kEthernetHeader - 2) == inet::kEtherVlan;
    const std::uint8_t *const begin = frame.data() + inet::kEthernetHeader + (tagged ? inet::kVlanTag : 0);
    return {begin, packet.payload.data() + packet.payload.size()};
}

} // namespace

int KernelReturn::send(inet::Bytes packet) noexcept
{
    const int family = flow_.local.address.is_v4() ? AF_INET : AF_INET6;
    if (!raw_)
        raw_ = core::make_fd(
            [&] { return static_cast<int>(::syscall(SYS_socket, family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)); });
    if (!raw_)
        return -errno;
    ofi::Address target = to_socket_address(flow_.local);
    target.set_port(0); // a raw socket has none
    const long n = ::syscall(SYS_sendto, raw_.get(), packet.data(), packet.size(), MSG_DONTWAIT, &target.sa,
                             static_cast<socklen_t>(target.size()));
    return n < 0 ? -errno : 0;
}

bool KernelReturn::take(std::span<const std::uint8_t> frame, const inet::FrameInfo &info) noexcept
{
    inet::Packet packet;
    inet::FragmentInfo fragment;
    inet::Segment segment;
    if (inet::parse_frame(frame, info, packet, fragment) != inet::Parsed::kPacket ||
        packet.protocol != inet::Protocol::kTcp || !inet::parse_segment(packet, segment))
        return false;
    const inet::Flow its{.local = {packet.target, segment.target_port}, .remote = {packet.source, segment.source_port}};
    if (its != flow_)
        return false;
    static_cast<void>(send(ip_packet(frame, packet)));
    return true;
}

} // namespace vma::ether
