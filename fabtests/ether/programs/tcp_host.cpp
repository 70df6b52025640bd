// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/ether/programs/tcp_host.hpp"

#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>

#include "fabtests/ether/programs/commands.hpp"

namespace fabtest {

using namespace vma;

namespace {

constexpr std::uint32_t kConnections = 8192;

} // namespace

inet::Endpoint endpoint(const std::string &address, const std::string &port)
{
    inet::Endpoint e;
    if (!parse_address(address, e.address))
        die(address.c_str(), EINVAL);
    e.port = static_cast<std::uint16_t>(std::atoi(port.c_str()));
    return e;
}

void set(inet::TcpSettings &settings, const std::string &text)
{
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const std::string word = equals == std::string::npos ? "" : text.substr(equals + 1);
    const auto value = static_cast<std::uint32_t>(std::strtoul(word.c_str(), nullptr, 10));
    struct {
        const char *name;
        bool &where;
    } const switches[] = {
        {"window_scaling", settings.window_scaling},
        {"timestamps", settings.timestamps},
        {"sack", settings.sack},
        {"ecn", settings.ecn},
        {"nodelay", settings.nodelay},
        {"keepalive", settings.keepalive},
    };
    for (const auto &s : switches)
        if (name == s.name) {
            s.where = value != 0;
            return;
        }
    if (name == "send_buffer")
        settings.send_buffer = value;
    else if (name == "receive_buffer")
        settings.receive_buffer = value;
    else if (name == "congestion")
        settings.congestion = word == "reno" ? inet::CongestionAlgorithm::kReno : inet::CongestionAlgorithm::kCubic;
    else if (name == "keepalive_idle")
        settings.keepalive_idle = value * inet::kMillisecond;
    else if (name == "keepalive_interval")
        settings.keepalive_interval = value * inet::kMillisecond;
    else if (name == "keepalive_probes")
        settings.keepalive_probes = static_cast<std::uint8_t>(value);
    else
        die(text.c_str(), EINVAL);
}

TcpHost::TcpHost(const char *interface, const ether::NicOptions &nic)
{
    inet::TcpLimits limits;
    limits.connections = kConnections;
    if (const int status = ether::NetIf::open(interface, limits, net_if_, nic); status != 0)
        die(interface, -status);
}

void TcpHost::wait(int input)
{
    if (!net_if_->arm())
        return;
    pollfd wanted[] = {{input, POLLIN, 0}, {net_if_->wait_fd(), POLLIN, 0}};
    if (::poll(wanted, std::size(wanted), -1) < 0)
        die("poll", errno);
}

} // namespace fabtest
