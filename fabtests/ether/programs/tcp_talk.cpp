// SPDX-License-Identifier: BSD-2-Clause
// One connection after the other of the user-space TCP, played call by call by commands on standard input, so that a
// test decides what happens when. Each command has one line for an answer, which may take as long as the network does.
//
//   tcp_talk INTERFACE
//
//   set NAME=VALUE                       of listeners and connections made later (tcp_host.hpp)
//   listen LOCAL PORT, unlisten, accept
//   connect LOCAL PORT REMOTE PORT       begins it
//   wait STATE                           until the connection is in it; "none": the program has none
//   send N                               until N bytes were taken
//   fill                                 what there is room for; "filled N", of all bytes sent
//   read N                               until N bytes were read and compared
//   finish N                             sends N bytes and their end, and reads meanwhile to the end: "read N", in all
//   shutdown, close, abort
//   info                                 of the connection, "NAME VALUE ..."
//   counters                             of the engine
//
// Answers are "ok", what is said above, or an error's name: the connection's when it has failed.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fabtests/ether/programs/commands.hpp"
#include "fabtests/ether/programs/tcp_host.hpp"

using namespace vma;
using fabtest::byte_at;
using fabtest::die;
using fabtest::endpoint;
using fabtest::now_ns;

namespace {

constexpr std::size_t kChunk = 65536;
constexpr std::uint32_t kBacklog = 16;
constexpr const char *kStates[] = {"closed",     "syn_sent",   "syn_received", "established", "fin_wait_1",
                                   "fin_wait_2", "close_wait", "closing",      "last_ack"};

class Talk
{
public:
    explicit Talk(const char *interface) : host_(interface), tcp_(host_.tcp()) {}

    void run()
    {
        bool ended = false;
        while (!ended) {
            const bool any = host_.turn();
            inet::TcpEvent event;
            while (tcp_.next_event(event)) {
            }
            const bool answered = doing_ && doing_();
            if (answered)
                doing_ = nullptr;
            if (!any && !answered && !host_.stack().wants_output())
                host_.wait(STDIN_FILENO);
            ended = !commands_.take([this](const std::string &line) { obey(line); });
        }
    }

private:
    static bool say(const std::string &line)
    {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
        return true;
    }

    static bool say_status(std::int64_t status)
    {
        fabtest::answer(static_cast<int>(std::min<std::int64_t>(status, 0)));
        return true;
    }

    void obey(const std::string &line)
    {
        std::istringstream text(line);
        std::vector<std::string> words;
        for (std::string word; text >> word;)
            words.push_back(word);
        words.resize(5);
        const std::string &what = words[0];
        if (what == "set") {
            fabtest::set(settings_, words[1]);
            say("ok");
        } else if (what == "settle") {
            say_status(tcp_.settle(now_ns(), id_, settings_));
        } else if (what == "listen") {
            say_status(listen(endpoint(words[1], words[2])));
        } else if (what == "unlisten") {
            tcp_.unlisten(now_ns(), listener_);
            say("ok");
        } else if (what == "connect") {
            say_status(connect({endpoint(words[1], words[2]), endpoint(words[3], words[4])}));
        } else if (what == "info") {
            info();
        } else if (what == "counters") {
            counters();
        } else if (!end(what)) {
            wait_for(what, words[1]);
        }
    }

    bool end(const std::string &what)
    {
        if (what == "shutdown")
            return say_status(tcp_.shutdown(now_ns(), id_));
        if (what == "close")
            tcp_.close(now_ns(), id_);
        else if (what == "abort")
            tcp_.abort(now_ns(), id_);
        else
            return false;
        return say("ok");
    }

    void wait_for(const std::string &what, const std::string &argument)
    {
        const std::uint64_t more = std::strtoull(argument.c_str(), nullptr, 10);
        if (what == "accept")
            doing_ = [this] { return accept(); };
        else if (what == "wait")
            doing_ = [this, argument] { return argument == state() && say("ok"); };
        else if (what == "send")
            doing_ = [this, to = sent_ + more] { return send(to); };
        else if (what == "fill")
            doing_ = [this] { return fill(); };
        else if (what == "read")
            doing_ = [this, to = received_ + more] { return read(to); };
        else if (what == "finish")
            doing_ = [this, to = sent_ + more] { return finish(to); };
        else
            die(what.c_str(), EINVAL);
    }

    // ---- opening

    int listen(const inet::Endpoint &local)
    {
        if (const int status = tcp_.listen(local, kBacklog, settings_, 0, listener_); status != 0)
            return status;
        return host_.flows().add({local, {}}, inet::Protocol::kTcp);
    }

    int connect(const inet::Flow &flow)
    {
        const int status = host_.flows().add(flow, inet::Protocol::kTcp);
        if (status != 0 && status != -EEXIST)
            return status;
        start();
        const inet::NextHopIndex next_hop = host_.stack().use_next_hop(now_ns(), flow.remote.address);
        return tcp_.connect(now_ns(), flow, next_hop, settings_, 0, id_);
    }

    bool accept()
    {
        if (!tcp_.accept(listener_, id_))
            return false;
        start();
        return say("ok");
    }

    void start() { sent_ = received_ = 0; }

    // ---- what a command waits for: true when it has been answered

    std::string_view state() const
    {
        const inet::Connection *const c = tcp_.find(id_);
        return c != nullptr ? kStates[static_cast<unsigned>(c->state)] : "none";
    }

    // What can be sent now, up to `to` bytes in all; 0, or the error.
    std::int64_t push(std::uint64_t to)
    {
        while (sent_ < to) {
            const std::size_t n = std::min<std::uint64_t>(sizeof buffer_, to - sent_);
            for (std::size_t i = 0; i < n; ++i)
                buffer_[i] = byte_at(sent_ + i);
            const std::int64_t taken = tcp_.send(now_ns(), id_, {buffer_, n});
            if (taken < 0)
                return taken == -EAGAIN ? 0 : taken;
            sent_ += static_cast<std::uint64_t>(taken);
        }
        return 0;
    }

    // What can be read now, up to `to` bytes in all. 1: that, or the end, is reached; 0: not yet; or the error.
    std::int64_t pull(std::uint64_t to)
    {
        while (received_ < to) {
            const std::size_t most = std::min<std::uint64_t>(sizeof buffer_, to - received_);
            const std::int64_t n = tcp_.receive(now_ns(), id_, {buffer_, most});
            if (n <= 0)
                return n == 0 ? 1 : n == -EAGAIN ? 0 : n;
            for (std::int64_t i = 0; i < n; ++i)
                if (buffer_[i] != byte_at(received_++))
                    die("wrong byte", EPROTO);
        }
        return 1;
    }

    bool send(std::uint64_t to)
    {
        const std::int64_t status = push(to);
        return (status < 0 || sent_ == to) && say_status(status);
    }

    bool fill()
    {
        const std::int64_t status = push(~std::uint64_t{0});
        return status < 0 ? say_status(status) : say("filled " + std::to_string(sent_));
    }

    bool read(std::uint64_t to)
    {
        const std::int64_t status = pull(to);
        if (status == 0)
            return false;
        return status < 0 || received_ == to ? say_status(status) : say("end at " + std::to_string(received_));
    }

    bool finish(std::uint64_t to)
    {
        const std::int64_t status = push(to);
        if (status == 0 && sent_ == to)
            (void)tcp_.shutdown(now_ns(), id_);
        const std::int64_t at_end = status < 0 ? status : pull(~std::uint64_t{0});
        if (at_end < 0)
            return say_status(at_end);
        return at_end == 1 && sent_ == to && say("read " + std::to_string(received_));
    }

    // ---- questions

    void info()
    {
        const inet::Connection *const c = tcp_.find(id_);
        if (c == nullptr) {
            say("none");
            return;
        }
        std::printf("state %s timestamps %d sack %d ecn %d scaling %d send_shift %d receive_shift %d mss %d ",
                    kStates[static_cast<unsigned>(c->state)], c->agreed.timestamps, c->agreed.sack, c->agreed.ecn,
                    c->agreed.scaling, c->agreed.send_shift, c->agreed.receive_shift, c->mss);
        std::printf("window %u most_window %u probes %u ecn_answered %d segments_sent %lu segments_received %lu "
                    "unacknowledged %u readable %zu rcv %u receive_window %u error %s\n",
                    c->window, c->most_window, c->probes, c->recovery.ecn_answered, c->segments_sent,
                    c->segments_received, c->nxt - c->una, c->receive.in.size(), c->receive.next,
                    c->receive.advertised - c->receive.next, strerrorname_np(c->error));
        std::fflush(stdout);
    }

    void counters()
    {
        const inet::TcpCounters &n = tcp_.counters();
        std::printf("in %lu out %lu malformed %lu challenges %lu resets_in %lu resets_out %lu retransmissions %lu "
                    "timeouts %lu undone %lu recoveries %lu out_of_order %lu duplicates %lu no_memory %lu unmatched "
                    "%lu open %u\n",
                    n.in, n.out, n.malformed, n.challenges, n.resets_in, n.resets_out, n.retransmissions, n.timeouts,
                    n.undone, n.recoveries, n.out_of_order, n.duplicates, n.no_memory, n.unmatched,
                    tcp_.open_connections());
        std::fflush(stdout);
    }

    fabtest::TcpHost host_;
    inet::Tcp &tcp_;
    fabtest::Commands commands_;
    inet::TcpSettings settings_;
    inet::ListenerId listener_;
    inet::ConnectionId id_;
    std::function<bool()> doing_; // what the last command waits for
    std::uint64_t sent_ = 0;
    std::uint64_t received_ = 0;
    std::uint8_t buffer_[kChunk];
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2)
        die("tcp_talk INTERFACE", EINVAL);
    Talk talk(argv[1]);
    std::printf("ready\n");
    std::fflush(stdout);
    talk.run();
}
