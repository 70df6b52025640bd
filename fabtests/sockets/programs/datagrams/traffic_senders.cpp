// SPDX-License-Identifier: BSD-2-Clause
// The senders' end of the traffic program: each call that sends, in "window" mode no more at once than a receiver's
// queue holds.
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "fabtests/sockets/programs/datagrams/traffic.hpp"

namespace fabtest {

namespace {

class Sender
{
public:
    Sender(const Options &o, unsigned id)
        : options_(o), id_(id), random_(o.seed * 77 + id), fd_(bound_socket(make_address(o.from.c_str(), o.from_port))),
          block_(kMaxLength, '\0'), from_(local_address(fd_).bytes())
    {
        for (const std::uint16_t port : o.ports)
            targets_.push_back(Target{make_address(o.to.c_str(), port), Contents(o, id, port)});
        if (o.connected)
            must(connect_to(fd_, targets_.at(0).address), "connect");
        enlarge_queue(fd_);
    }
    Sender(const Sender &) = delete;
    Sender &operator=(const Sender &) = delete;
    ~Sender() { ::close(fd_); }

    void run()
    {
        for (auto &t : targets_)
            repeat(t, kHello, [&t] { return t.acknowledged > 0; });
        for (std::vector<Target *> open = unfinished(); !open.empty(); open = unfinished()) {
            Target *t = open[random_.below(open.size())];
            const std::size_t cost = cost_of(t->contents.length(t->next));
            if (options_.mode == "window" && !t->in_flight.empty() && t->cost + cost > options_.budget) {
                hear(-1);
                continue;
            }
            if (options_.mode == "window") {
                t->in_flight.push_back(cost);
                t->cost += cost;
            }
            send(*t, kData, t->contents.length(t->next));
            while (hear(0)) {
            }
        }
        for (auto &t : targets_)
            repeat(t, kEnd, [&t] { return t.ended; });
        std::uint64_t total = 0;
        for (const auto &t : targets_)
            total += t.next;
        std::printf("sender %u: %llu sent\n", id_, static_cast<unsigned long long>(total));
    }

private:
    struct Target {
        Address address;
        Contents contents;
        std::uint64_t next = 0, acknowledged = 0;
        std::size_t cost = 0;
        std::vector<std::size_t> in_flight{}; // costs, the oldest first
        bool ended = false;
    };

    std::vector<Target *> unfinished()
    {
        std::vector<Target *> open;
        for (auto &t : targets_)
            if (options_.endless || t.next < options_.datagrams + 1)
                open.push_back(&t);
        return open;
    }

    // HELLO and END may be lost in a flood: again after half a second.
    template <typename Condition> void repeat(Target &t, Kind kind, Condition done)
    {
        while (!done()) {
            send(t, kind, sizeof(Header));
            while (!done() && hear(500)) {
            }
        }
    }

    void send(Target &t, Kind kind, std::size_t len)
    {
        t.contents.fill(t.next, block_.data(), len);
        if (len >= sizeof(Header)) {
            Header h;
            h.kind = kind;
            h.number = t.next;
            h.sender = id_;
            h.length = static_cast<std::uint32_t>(len);
            h.from = from_;
            std::memcpy(block_.data(), static_cast<const void *>(&h), sizeof h);
        }
        ssize_t n = call(t, len);
        if (n < 0 && errno == ECONNREFUSED && options_.restarts) // of an earlier one
            n = call(t, len);
        if (n != static_cast<ssize_t>(len) && !(n < 0 && errno == ECONNREFUSED && options_.restarts))
            die("sender %u: %zu bytes: %zd %s", id_, len, n, n < 0 ? strerrorname_np(errno) : "");
        ++t.next;
    }

    ssize_t call(Target &t, std::size_t len)
    {
        const std::size_t cut = len == 0 ? 0 : random_.below(len);
        iovec parts[2] = {{block_.data(), cut}, {block_.data() + cut, len - cut}};
        mmsghdr message{};
        message.msg_hdr.msg_iov = parts;
        message.msg_hdr.msg_iovlen = 2;
        const bool named = !options_.connected || random_.below(2) == 0;
        message.msg_hdr.msg_name = named ? t.address.get() : nullptr;
        message.msg_hdr.msg_namelen = named ? t.address.len : 0;
        switch (random_.below(named ? 3 : 6)) {
        case 0:
            return ::sendto(fd_, block_.data(), len, 0, named ? t.address.get() : nullptr, named ? t.address.len : 0);
        case 1:
            return ::sendmsg(fd_, &message.msg_hdr, 0);
        case 2:
            return ::sendmmsg(fd_, &message, 1, 0) < 0 ? -1 : static_cast<ssize_t>(message.msg_len);
        case 3:
            return ::send(fd_, block_.data(), len, 0);
        case 4: // writev() of nothing sends nothing
            return len == 0 ? ::write(fd_, nullptr, 0) : ::writev(fd_, parts, 2);
        default:
            return ::write(fd_, block_.data(), len);
        }
    }

    // Takes one acknowledgement; false when none came in time (-1: waits for ever).
    bool hear(int milliseconds)
    {
        pollfd p{fd_, POLLIN, 0};
        if (milliseconds > 0 && must(::poll(&p, 1, milliseconds), "poll") == 0)
            return false;
        Header h;
        Address from;
        const ssize_t n = ::recvfrom(fd_, static_cast<void *>(&h), sizeof h, milliseconds < 0 ? 0 : MSG_DONTWAIT,
                                     from.get(), &from.len);
        if (n < 0 && (errno == EAGAIN || (errno == ECONNREFUSED && options_.restarts)))
            return false;
        if (n != sizeof h || h.magic != kMagic)
            die("sender %u: acknowledgement: %zd %s", id_, n, n < 0 ? strerrorname_np(errno) : "");
        for (auto &t : targets_) {
            if (t.address.bytes() != from.bytes())
                continue;
            if (h.number < t.acknowledged && changes_ways())
                return true;
            if (h.number < t.acknowledged || h.number > t.next)
                die("sender %u: %s acknowledges %llu after %llu, sent are %llu", id_, name_of(from).c_str(),
                    static_cast<unsigned long long>(h.number), static_cast<unsigned long long>(t.acknowledged),
                    static_cast<unsigned long long>(t.next));
            t.acknowledged = h.number;
            t.ended = t.ended || h.kind == kEndAck;
            while (!t.in_flight.empty() && t.in_flight.size() > t.next - h.number) {
                t.cost -= t.in_flight.front();
                t.in_flight.erase(t.in_flight.begin());
            }
            return true;
        }
        die("sender %u: an acknowledgement from %s", id_, name_of(from).c_str());
    }

    const Options &options_;
    unsigned id_;
    Random random_;
    int fd_;
    std::string block_;
    std::array<unsigned char, 18> from_;
    std::vector<Target> targets_;
};

} // namespace

void send_all_of(const Options &o)
{
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < o.here; ++i)
        threads.emplace_back([&o, i] { Sender(o, o.first_id + i).run(); });
    for (auto &thread : threads)
        thread.join();
}

} // namespace fabtest
