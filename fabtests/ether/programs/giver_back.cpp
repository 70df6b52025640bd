// SPDX-License-Identifier: BSD-2-Clause
// A connection of the kernel's whose segments a port takes for a while and then gives back. Each line of its standard
// input is a command, answered by one line.
//
//   giver_back INTERFACE                 "ready"
//   connect LOCAL PORT REMOTE PORT       "ok", or the error's name
//   steer                                the port takes what comes
//   give COUNT                           the kernel has it again, with what the port has taken: COUNT bytes, which are written
//                                        out as hexadecimal numbers
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/fd.hpp"
#include "ether/address.hpp"
#include "ether/net_if.hpp"
#include "ether/stream/kernel_return.hpp"
#include "fabtests/ether/programs/commands.hpp"

using namespace vma;
using fabtest::die;

namespace {

class Giver
{
public:
    explicit Giver(ether::NetIf &net_if) : net_if_(net_if) {}

    void obey(const std::string &line)
    {
        std::istringstream words(line);
        std::string command;
        words >> command;
        if (command == "connect")
            fabtest::answer(connect(words));
        else if (command == "steer")
            fabtest::answer(net_if_.flows().add(flow_, inet::Protocol::kTcp));
        else if (command == "give")
            give(words);
        else
            die(line.c_str(), EINVAL);
    }

private:
    int connect(std::istringstream &words)
    {
        std::string local;
        std::string remote;
        words >> local >> flow_.local.port >> remote >> flow_.remote.port;
        if (!fabtest::parse_address(local, flow_.local.address) ||
            !fabtest::parse_address(remote, flow_.remote.address))
            return -EINVAL;
        const ofi::Address from = ether::to_socket_address(flow_.local);
        const ofi::Address to = ether::to_socket_address(flow_.remote);
        socket_ = core::make_fd([&] { return ::socket(from.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0); });
        const bool done = ::bind(socket_.get(), &from.sa, static_cast<socklen_t>(from.size())) == 0 &&
                          ::connect(socket_.get(), &to.sa, static_cast<socklen_t>(to.size())) == 0;
        return done ? 0 : -errno;
    }

    // Frames may come to the ring a little after the wire has them.
    void give(std::istringstream &words)
    {
        std::size_t wanted = 0;
        words >> wanted;
        std::vector<unsigned char> bytes(wanted);
        std::size_t have = 0;
        ether::KernelReturn back(flow_);
        static_cast<void>(net_if_.flows().remove(flow_, inet::Protocol::kTcp));
        while (have < wanted) {
            net_if_.sort(ether::now_ns(), back);
            const ssize_t n = ::recv(socket_.get(), bytes.data() + have, wanted - have, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN))
                die("recv", errno);
            have += n > 0 ? static_cast<std::size_t>(n) : 0;
        }
        for (const unsigned char byte : bytes)
            std::printf("%02x", byte);
        std::printf("\n");
    }

    ether::NetIf &net_if_;
    core::UniqueFd socket_;
    inet::Flow flow_;
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: giver_back INTERFACE\n");
        return 2;
    }
    ::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::unique_ptr<ether::NetIf> net_if;
    if (const int error = ether::NetIf::open(argv[1], {}, net_if))
        die("NetIf::open", -error);
    Giver giver(*net_if);
    fabtest::Commands commands;
    std::printf("ready\n");
    pollfd input{STDIN_FILENO, POLLIN, 0};
    do {
        if (::poll(&input, 1, -1) < 0)
            die("poll", errno);
    } while (commands.take([&](const std::string &line) { giver.obey(line); }));
    return 0;
}
