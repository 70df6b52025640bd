// SPDX-License-Identifier: BSD-2-Clause
// System calls are made by number, as the preload library's functions of those names are not meant for us.
#include "ether/stream/kernel_return.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "ether/address.hpp"
#include "inet/tcp/segment.hpp"
#include "inet/wire/bytes.hpp"
#include "inet/wire/checksum.hpp"
#include "inet/wire/ethernet.hpp"
#include "inet/wire/frame.hpp"
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

int KernelReturn::send(std::span<const iovec> parts) noexcept
{
    const int family = flow_.local.address.is_v4() ? AF_INET : AF_INET6;
    if (!raw_)
        raw_ = core::make_fd(
            [&] { return static_cast<int>(::syscall(SYS_socket, family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)); });
    if (!raw_)
        return -errno;
    ofi::Address target = to_socket_address(flow_.local);
    target.set_port(0); // a raw socket has none
    msghdr message{};
    message.msg_name = &target.sa;
    message.msg_namelen = static_cast<socklen_t>(target.size());
    message.msg_iov = const_cast<iovec *>(parts.data());
    message.msg_iovlen = parts.size();
    return ::syscall(SYS_sendmsg, raw_.get(), &message, MSG_DONTWAIT) < 0 ? -errno : 0;
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
    pass_on(ip_packet(frame, packet), packet);
    return true;
}

// With a checksum, which the peer's kernel may have left out.
void KernelReturn::pass_on(inet::Bytes bytes, const inet::Packet &packet) noexcept
{
    constexpr std::size_t kChecksumAt = 16; // of TCP's header
    const std::uint8_t *const tcp = packet.payload.data();
    const auto before = static_cast<std::size_t>(tcp - bytes.data()) + kChecksumAt;
    const std::uint32_t without = 0xffffU - inet::load16(tcp + kChecksumAt);
    std::array<std::uint8_t, 2> checksum{};
    const std::uint32_t all = inet::sum_tcp_header(tcp, packet.payload.size(), 0, packet.source, packet.target);
    inet::store16(checksum.data(), inet::finish(all + without));
    const auto part = [](const std::uint8_t *data, std::size_t size) {
        return iovec{const_cast<std::uint8_t *>(data), size};
    };
    const std::array<iovec, 3> parts = {part(bytes.data(), before), part(checksum.data(), checksum.size()),
                                        part(tcp + kChecksumAt + 2, bytes.size() - before - 2)};
    static_cast<void>(send(parts));
}

} // namespace vma::ether
