// SPDX-License-Identifier: BSD-2-Clause
// The user-space UDP, without libfabric, against whoever is on the wire: sends each datagram back.
//
//   udp_echo INTERFACE LOCAL PORT [nic=NETWORK:SYSFS]     until the end of standard input; then "N datagrams"
//
// nic: see nic_port.hpp. Command: "remove", the simulated NIC is pulled out.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "fabtests/ether/programs/commands.hpp"
#include "fabtests/ether/programs/nic_port.hpp"
#include "fabtests/ether/programs/tcp_host.hpp"
#include "inet/udp/header.hpp"

using namespace vma;
using fabtest::die;
using fabtest::now_ns;

namespace {

class Echo
{
public:
    Echo(fabtest::TcpHost &host, const inet::Endpoint &local)
        : host_(host), udp_(host.stack().udp()), local_(local), socket_(udp_.open({}))
    {
        if (const int status = udp_.bind(socket_, local); status != 0)
            die("bind", -status);
        if (const int status = host.flows().add({local, {}}, inet::Protocol::kUdp); status != 0)
            die("flow", -status);
    }

    void run()
    {
        bool ended = false;
        while (!ended) {
            const bool any = host_.turn();
            while (answer()) {
            }
            if (!any)
                host_.wait(STDIN_FILENO);
            ended = !commands_.take([](const std::string &) {
                fabtest::SimNic::remove();
                fabtest::answer(0);
            });
        }
        std::printf("%u datagrams\n", datagrams_);
    }

private:
    bool answer()
    {
        const std::span<std::uint8_t> room[] = {buffer_};
        const inet::UdpTable::Received got = udp_.receive(socket_, room);
        if (got.error != 0)
            return false;
        ++datagrams_;
        inet::IpOut ip;
        ip.source = local_.address;
        ip.target = got.info.source.address;
        ip.protocol = inet::Protocol::kUdp;
        inet::Bytes parts[] = {{}, inet::Bytes(buffer_).first(got.copied)};
        const inet::UdpPorts ports{local_.port, got.info.source.port};
        // The peer asks for us as we ask for it, so its address is soon there.
        const inet::NextHopIndex next_hop = host_.stack().use_next_hop(now_ns(), ip.target);
        const auto is_ready = [&] { return host_.stack().tcp().next_hops()[next_hop].ready; };
        while (!is_ready()) {
            if (!host_.turn() && !is_ready())
                host_.wait();
        }
        while (host_.net_if().write_datagram(now_ns(), next_hop, ip, ports, parts) == -EAGAIN)
            host_.turn();
        host_.net_if().send(now_ns());
        return true;
    }

    fabtest::TcpHost &host_;
    inet::UdpTable &udp_;
    const inet::Endpoint local_;
    const inet::UdpSocketId socket_;
    fabtest::Commands commands_;
    unsigned datagrams_ = 0;
    std::uint8_t buffer_[65536];
};

} // namespace

int main(int argc, char **argv)
{
    const std::string nic = argc > 4 ? argv[4] : "nic=";
    if (argc < 4 || !nic.starts_with("nic="))
        die("udp_echo INTERFACE LOCAL PORT [nic=NETWORK:SYSFS]", EINVAL);
    fabtest::NicPort port;
    if (argc > 4)
        port.set(nic.substr(4));
    fabtest::TcpHost host(argv[1], port.options);
    Echo echo(host, fabtest::endpoint(argv[2], argv[3]));
    std::printf("ready\n");
    std::fflush(stdout);
    echo.run();
}
