// SPDX-License-Identifier: BSD-2-Clause
// Connections whose two ends ask vmad's broker for each other, so many a second: how long that takes, and how much of a
// processor vmad needs.
//   broker_load BROKER VMAD'S-PID CONNECTIONS-A-SECOND SECONDS
// Prints one line of JSON. The client is one thread; what it hasn't time for is fewer connections a second than were
// asked for. 0 of them: one after another, each when the last was introduced.
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "contrib/bench/sockets.hpp"

namespace {

using namespace bench;
using Clock = std::chrono::steady_clock;

// compat/src/rendezvous/broker_messages.hpp
struct Message {
    std::uint32_t magic = 0x564d4142;
    std::uint16_t version = 1;
    std::uint16_t length = 16;
    std::uint32_t kind = 1;
    std::uint32_t id = 0;
};

struct Asked {
    Clock::time_point connected; // connect() returned
    Clock::time_point asked;     // both have
    std::array<int, 2> ends;
    int answers = 0;
};

class Load
{
public:
    Load(const char *broker, double rate) : rate_(rate)
    {
        listener_ = bound(SOCK_STREAM, address_);
        must(::listen(listener_, 1024));
        sockaddr_un path{};
        path.sun_family = AF_UNIX;
        std::strncpy(path.sun_path, broker, sizeof path.sun_path - 1);
        for (pollfd &asker : askers_) {
            asker = {must(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), POLLIN, 0};
            must(::connect(asker.fd, reinterpret_cast<const sockaddr *>(&path), sizeof path));
        }
    }

    void run(double seconds)
    {
        const auto begin = Clock::now();
        const auto end = begin + std::chrono::duration<double>(seconds);
        while (Clock::now() < end) {
            const double due = rate_ * std::chrono::duration<double>(Clock::now() - begin).count();
            if (rate_ == 0 ? met_ + refused_ == asked_.size() : static_cast<double>(asked_.size()) < due)
                connect();
            hear(0);
        }
        while (met_ + refused_ < asked_.size())
            hear(-1);
        seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
    }

    void print(double share)
    {
        std::printf(
            "{\"connections a second\": %.0f, \"met\": %zu, \"refused\": %zu, \"us from both asking: median\": %.0f, "
            "\"p99\": %.0f, \"us from connect(): median\": %.0f, \"of a processor\": %.3f}\n",
            static_cast<double>(asked_.size()) / seconds_, met_, refused_, part(from_asking_, 0.5),
            part(from_asking_, 0.99), part(from_connect_, 0.5), share / seconds_);
    }

private:
    void connect()
    {
        Asked made;
        made.ends[0] = must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        must(::connect(made.ends[0], generic(address_), sizeof address_));
        made.connected = Clock::now();
        made.ends[1] = must(::accept(listener_, nullptr, nullptr));
        for (std::size_t i = 0; i < 2; ++i)
            ask(askers_[i].fd, made.ends[i]);
        made.asked = Clock::now();
        asked_.push_back(made);
    }

    void ask(int asker, int socket)
    {
        Message message;
        message.id = static_cast<std::uint32_t>(asked_.size());
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof socket)] = {};
        iovec part{&message, sizeof message};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        *CMSG_FIRSTHDR(&header) = {CMSG_LEN(sizeof socket), SOL_SOCKET, SCM_RIGHTS};
        std::memcpy(CMSG_DATA(CMSG_FIRSTHDR(&header)), &socket, sizeof socket);
        must(static_cast<int>(::sendmsg(asker, &header, 0)));
    }

    void hear(int wait)
    {
        must(::poll(askers_.data(), askers_.size(), wait));
        for (const pollfd &asker : askers_) {
            if (asker.revents != 0)
                hear_from(asker.fd);
        }
    }

    void hear_from(int asker)
    {
        struct {
            Message message;
            std::uint32_t result;
            char rest[300];
        } answer;
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        iovec part{&answer, sizeof answer};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        if (must(static_cast<int>(::recvmsg(asker, &header, 0))) < 64) {
            std::fputs("broker_load: vmad has hung up\n", stderr);
            std::exit(1);
        }
        if (const cmsghdr *const passed = CMSG_FIRSTHDR(&header)) {
            int pair = -1;
            std::memcpy(&pair, CMSG_DATA(passed), sizeof pair);
            ::close(pair);
        }
        Asked &asked = asked_[answer.message.id];
        if (++asked.answers < 2)
            return;
        const auto now = Clock::now();
        const auto since = [&](Clock::time_point then) {
            return std::chrono::duration<double, std::micro>(now - then).count();
        };
        from_asking_.push_back(since(asked.asked));
        from_connect_.push_back(since(asked.connected));
        (answer.result == 0 ? met_ : refused_) += 1;
        for (const int end : asked.ends)
            ::close(end);
    }

    static double part(std::vector<double> &all, double share)
    {
        if (all.empty())
            return 0;
        std::sort(all.begin(), all.end());
        return all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))];
    }

    double rate_;
    sockaddr_in address_;
    int listener_;
    std::array<pollfd, 2> askers_;
    std::vector<Asked> asked_; // by the question's id
    std::vector<double> from_asking_;
    std::vector<double> from_connect_;
    std::size_t met_ = 0;
    std::size_t refused_ = 0;
    double seconds_ = 0;
};

// Seconds of a processor that the process has had.
double spent_by(const char *pid)
{
    std::FILE *const file = std::fopen(("/proc/" + std::string(pid) + "/stat").c_str(), "r");
    unsigned long user = 0;
    unsigned long system = 0;
    if (file == nullptr ||
        std::fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        must(-1);
    std::fclose(file);
    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 5) {
        std::fputs("usage: broker_load BROKER VMAD'S-PID CONNECTIONS-A-SECOND SECONDS\n", stderr);
        return 2;
    }
    Load load(argv[1], std::atof(argv[3]));
    const double before = spent_by(argv[2]);
    load.run(std::atof(argv[4]));
    load.print(spent_by(argv[2]) - before);
    return 0;
}
