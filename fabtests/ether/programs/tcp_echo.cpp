// SPDX-License-Identifier: BSD-2-Clause
// The user-space TCP against whoever is on the wire: a server that sends back what it gets, and a client that sends a
// stream and checks its echo.
//
//   tcp_echo INTERFACE listen LOCAL PORT            until the end of standard input; then "N connections, N bytes, N open"
//   tcp_echo INTERFACE connect LOCAL PORT REMOTE PORT BYTES COUNT    COUNT connections one after the other; "ok"
//
// Behind that: settings, NAME=VALUE (tcp_host.hpp); nic=NETWORK:SYSFS (nic_port.hpp).
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fabtests/ether/programs/commands.hpp"
#include "fabtests/ether/programs/nic_port.hpp"
#include "fabtests/ether/programs/tcp_host.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using fabtest::byte_at;
using fabtest::die;
using fabtest::endpoint;
using fabtest::now_ns;
using fabtest::TcpHost;

namespace {

constexpr std::size_t kChunk = 65536;
constexpr std::uint32_t kBacklog = 4096;
const inet::Nanos kLeave = static_cast<inet::Nanos>(patience::seconds()) * inet::kSecond;

// ---- the server -----------------------------------------------------------------------------------------------------

class Server
{
public:
    Server(TcpHost &host, const inet::Endpoint &local, const inet::TcpSettings &settings)
        : host_(host), tcp_(host.tcp())
    {
        if (const int status = tcp_.listen(local, kBacklog, settings, 0, listener_); status != 0)
            die("listen", -status);
        if (const int status = host.flows().add({local, {}}, inet::Protocol::kTcp); status != 0)
            die("flow", -status);
    }

    void run()
    {
        bool ended = false;
        while (!ended) {
            const bool any = host_.turn();
            inet::TcpEvent event;
            while (tcp_.next_event(event)) {
                if ((event.what & inet::kAcceptable) != 0)
                    accept();
                else
                    echo(event.connection);
            }
            if (!any && !host_.stack().wants_output())
                host_.wait(STDIN_FILENO);
            ended = !commands_.take([](const std::string &) {});
        }
        let_end();
        std::printf("%u connections, %lu bytes, %u open\n", connections_, bytes_, tcp_.open_connections());
    }

private:
    // The last acknowledgements may be on their way still, or lost.
    void let_end()
    {
        const inet::Nanos until = now_ns() + kLeave;
        while (tcp_.open_connections() != 0 && now_ns() < until)
            if (!host_.turn())
                (void)::poll(nullptr, 0, 1);
    }

    void accept()
    {
        inet::ConnectionId id;
        while (tcp_.accept(listener_, id)) {
            ++connections_;
            echo(id);
        }
    }

    // Takes no more than it can give back, so nothing has to be kept.
    void echo(inet::ConnectionId id)
    {
        while (tcp_.find(id) != nullptr) {
            const std::size_t room = std::min(tcp_.room(id), sizeof buffer_);
            const bool open = tcp_.find(id)->state != inet::TcpState::kClosed;
            if (open && room == 0) { // an empty send asks to be told
                (void)tcp_.send(now_ns(), id, {buffer_, 1});
                return;
            }
            const std::int64_t n = tcp_.receive(now_ns(), id, {buffer_, open ? room : sizeof buffer_});
            if (n == -EAGAIN)
                return;
            if (n <= 0) {
                tcp_.close(now_ns(), id);
                return;
            }
            bytes_ += static_cast<std::uint64_t>(n);
            if (open && tcp_.send(now_ns(), id, {buffer_, static_cast<std::size_t>(n)}) != n)
                tcp_.abort(now_ns(), id); // memory of others: this program gives it up
        }
    }

    TcpHost &host_;
    inet::Tcp &tcp_;
    inet::ListenerId listener_;
    fabtest::Commands commands_;
    unsigned connections_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint8_t buffer_[kChunk];
};

// ---- the client -----------------------------------------------------------------------------------------------------

class Client
{
public:
    Client(TcpHost &host, const inet::Flow &flow, std::uint64_t bytes, const inet::TcpSettings &settings)
        : host_(host), tcp_(host.tcp()), flow_(flow), bytes_(bytes), settings_(settings)
    {
    }

    void run()
    {
        if (const int status = host_.flows().add(flow_, inet::Protocol::kTcp); status != 0)
            die("flow", -status);
        const inet::NextHopIndex next_hop = host_.stack().use_next_hop(now_ns(), flow_.remote.address);
        if (const int status = tcp_.connect(now_ns(), flow_, next_hop, settings_, 0, id_); status != 0)
            die("connect", -status);
        while (!done_) {
            const bool any = host_.turn();
            inet::TcpEvent event;
            while (tcp_.next_event(event))
                act(event.what);
            if (!any && !done_ && !host_.stack().wants_output())
                host_.wait();
        }
        tcp_.close(now_ns(), id_);
        while (tcp_.open_connections() != 0) { // it is gone when the other side has our last word
            if (!host_.turn())
                host_.wait();
        }
        if (const int status = host_.flows().remove(flow_, inet::Protocol::kTcp); status != 0)
            die("flow", -status);
    }

private:
    void act(std::uint32_t what)
    {
        if ((what & inet::kFailed) != 0)
            die("connection", tcp_.take_error(id_));
        while (sent_ < bytes_) {
            const std::size_t n = std::min<std::uint64_t>(sizeof buffer_, bytes_ - sent_);
            for (std::size_t i = 0; i < n; ++i)
                buffer_[i] = byte_at(sent_ + i);
            const std::int64_t taken = tcp_.send(now_ns(), id_, {buffer_, n});
            if (taken < 0)
                break;
            sent_ += static_cast<std::uint64_t>(taken);
        }
        if (sent_ == bytes_ && !finished_) {
            finished_ = true;
            (void)tcp_.shutdown(now_ns(), id_);
        }
        for (;;) {
            const std::int64_t n = tcp_.receive(now_ns(), id_, buffer_);
            if (n == -EAGAIN)
                return;
            if (n <= 0) {
                if (n < 0 || received_ != bytes_)
                    die("echo is short", n < 0 ? static_cast<int>(-n) : EPROTO);
                done_ = true;
                return;
            }
            for (std::int64_t i = 0; i < n; ++i)
                if (buffer_[i] != byte_at(received_ + static_cast<std::uint64_t>(i)))
                    die("echo is wrong", EPROTO);
            received_ += static_cast<std::uint64_t>(n);
        }
    }

    TcpHost &host_;
    inet::Tcp &tcp_;
    const inet::Flow flow_;
    const std::uint64_t bytes_;
    const inet::TcpSettings settings_;
    inet::ConnectionId id_;
    std::uint64_t sent_ = 0;
    std::uint64_t received_ = 0;
    bool finished_ = false;
    bool done_ = false;
    std::uint8_t buffer_[kChunk];
};

} // namespace

int main(int argc, char **argv)
{
    std::vector<std::string> words;
    inet::TcpSettings settings;
    fabtest::NicPort port;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word.find('=') == std::string::npos)
            words.emplace_back(word);
        else if (word.starts_with("nic="))
            port.set(word.substr(4));
        else
            fabtest::set(settings, word);
    }
    const std::string role = words.size() > 1 ? words[1] : "";
    if (role == "listen" && words.size() == 4) {
        TcpHost host(words[0].c_str(), port.options);
        Server server(host, endpoint(words[2], words[3]), settings);
        std::printf("listening\n");
        std::fflush(stdout);
        server.run();
    } else if (role == "connect" && words.size() == 8) {
        TcpHost host(words[0].c_str(), port.options);
        inet::Flow flow = {endpoint(words[2], words[3]), endpoint(words[4], words[5])};
        for (int i = 0; i < std::atoi(words[7].c_str()); ++i, ++flow.local.port)
            Client(host, flow, static_cast<std::uint64_t>(std::atoll(words[6].c_str())), settings).run();
        std::printf("ok\n");
    } else {
        die("tcp_echo INTERFACE listen LOCAL PORT | connect LOCAL PORT REMOTE PORT BYTES COUNT [NAME=VALUE...]",
            EINVAL);
    }
}
