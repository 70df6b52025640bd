// SPDX-License-Identifier: BSD-2-Clause
// Datagrams that are checked: every byte is a function of seed, flow and sequence number, and so is every length. A flow
// is one sender's socket to one receiver's. In "window" mode receivers acknowledge over UDP and nothing may be lost; in
// "flood" mode what is lost must be what SO_RXQ_OVFL counts. There is no channel besides UDP: a process may be anywhere.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fabtests/sockets/programs/datagrams/traffic.hpp"

namespace {

using namespace fabtest;

// ---- receiving --------------------------------------------------------------------------------------------------------

// With the library a flow changes from the kernel to the endpoint, once or more: order holds on each of the two ways, and the
// kernel may be late (up to a time slice, when both processors spin).
bool changes_ways()
{
    static const bool preloaded = std::getenv("LD_PRELOAD") != nullptr;
    return preloaded;
}

struct Flow {
    Address address;
    Contents contents;
    std::uint64_t next = 0, received = 0;
    std::set<std::uint64_t> late = {}; // overtaken by others; or lost
    bool end_came = false, ended = false, acknowledge = false;
};

class Receiver
{
public:
    Receiver(const Options &o, std::uint16_t port)
        : options_(o), port_(port), random_(o.seed + port), fd_(bound_socket(make_address(o.bind_to.c_str(), port))),
          buffers_(kBatch, std::string(kMaxLength + 1, '\0'))
    {
        const int on = 1;
        must(set_option(fd_, SOL_SOCKET, SO_RXQ_OVFL, on), "SO_RXQ_OVFL");
        if (o.mode == "window")
            enlarge_queue(fd_);
    }
    Receiver(const Receiver &) = delete;
    Receiver &operator=(const Receiver &) = delete;
    ~Receiver() { ::close(fd_); }

    int fd() const { return fd_; }
    bool ended() const { return ended_ == options_.senders; }

    // One call. False: nothing there (only with `flags` MSG_DONTWAIT).
    bool receive(int flags)
    {
        constexpr std::size_t kControl = 256;
        static_assert(kControl >= CMSG_SPACE(sizeof(std::uint32_t)));
        mmsghdr messages[kBatch]{};
        iovec parts[kBatch][2];
        Address from[kBatch];
        alignas(cmsghdr) char control[kBatch][kControl];
        const std::size_t wanted = random_.below(4) == 0 ? 1 + random_.below(kBatch) : 1;
        for (std::size_t i = 0; i < wanted; ++i) {
            const std::size_t cut = random_.below(100);
            parts[i][0] = {buffers_[i].data(), cut};
            parts[i][1] = {buffers_[i].data() + cut, buffers_[i].size() - cut};
            msghdr &m = messages[i].msg_hdr;
            m.msg_iov = parts[i];
            m.msg_iovlen = 2;
            m.msg_name = from[i].get();
            m.msg_namelen = from[i].len;
            m.msg_control = control[i];
            m.msg_controllen = kControl;
        }
        int got;
        // Without cmsgs drops are not counted: forms that have none only where nothing may be lost.
        const std::size_t form = random_.below(options_.mode == "window" ? 3 : 2);
        if (form == 0) {
            const ssize_t n = ::recvmsg(fd_, &messages[0].msg_hdr, flags);
            got = n < 0 ? -1 : 1;
            messages[0].msg_len = static_cast<unsigned>(n);
        } else if (form == 1) {
            got = ::recvmmsg(fd_, messages, static_cast<unsigned>(wanted), flags | MSG_WAITFORONE, nullptr);
        } else {
            const ssize_t n =
                ::recvfrom(fd_, buffers_[0].data(), buffers_[0].size(), flags, from[0].get(), &from[0].len);
            got = n < 0 ? -1 : 1;
            messages[0].msg_len = static_cast<unsigned>(n);
            messages[0].msg_hdr.msg_namelen = from[0].len;
            messages[0].msg_hdr.msg_controllen = 0;
        }
        if (got < 0 && (flags & MSG_DONTWAIT) != 0 && errno == EAGAIN)
            return false;
        if (must(got, "receive") == 0)
            die("port %u: received no message", port_);
        for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
            from[i].len = messages[i].msg_hdr.msg_namelen;
            note_drops(messages[i].msg_hdr);
            take(buffers_[i].data(), messages[i].msg_len, from[i]);
        }
        for (auto &[key, flow] : flows_)
            if (flow.acknowledge)
                answer(flow);
        return true;
    }

    void report() const
    {
        std::uint64_t received = 0, sent = 0;
        for (const auto &[key, flow] : flows_) {
            received += flow.received;
            sent += flow.next;
        }
        std::printf("port %u: %zu flows, %llu sent, %llu received, %llu dropped\n", port_, flows_.size(),
                    static_cast<unsigned long long>(sent), static_cast<unsigned long long>(received),
                    static_cast<unsigned long long>(drops_));
        if (options_.restarts)
            return;
        if (sent - received != drops_)
            die("port %u: %llu lost, and SO_RXQ_OVFL says %llu", port_,
                static_cast<unsigned long long>(sent - received), static_cast<unsigned long long>(drops_));
        if (options_.mode == "window" && sent != received)
            die("port %u: lost some", port_);
    }

private:
    static constexpr std::size_t kBatch = 8;

    void note_drops(msghdr &message)
    {
        if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
            die("port %u: msg_flags %#x", port_, static_cast<unsigned>(message.msg_flags));
        for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_RXQ_OVFL)
                continue;
            std::uint32_t count = 0;
            std::memcpy(&count, CMSG_DATA(c), sizeof count);
            if (count < drops_)
                die("port %u: SO_RXQ_OVFL went back from %llu to %u", port_, static_cast<unsigned long long>(drops_),
                    count);
            drops_ = count;
        }
    }

    void take(const char *data, std::size_t len, const Address &from)
    {
        Header h;
        const bool has_header = len >= sizeof h;
        if (has_header) {
            std::memcpy(static_cast<void *>(&h), data, sizeof h);
            if (h.magic != kMagic || h.length != len)
                die("port %u: %zu bytes from %s are none of ours", port_, len, name_of(from).c_str());
            if (h.from != from.bytes())
                die("port %u: sender %u's datagram is said to be of %s", port_, h.sender, name_of(from).c_str());
        }
        // A sender that is killed and one that is started at its address are two: their datagrams may meet.
        const auto key = std::make_pair(from.bytes(), options_.mode == "flood" ? h.sender : 0U);
        auto it = flows_.find(key);
        const bool begins = has_header && (h.kind == kHello || options_.restarts);
        if (begins && it == flows_.end()) {
            it = flows_.emplace(key, Flow{from, Contents(options_, h.sender, port_)}).first;
            if (options_.restarts)
                it->second.next = h.number;
        }
        if (it == flows_.end() && options_.restarts)
            return; // of a sender that talked to who had this port before
        if (it == flows_.end())
            die("port %u: %zu bytes from %s, which has not said HELLO", port_, len, name_of(from).c_str());
        Flow &flow = it->second;
        const std::uint64_t number = has_header ? h.number : flow.next;
        const bool was_late = flow.late.erase(number) != 0;
        if (number < flow.next && !was_late)
            die("port %u: number %llu of %s comes again or late: %llu is the next", port_,
                static_cast<unsigned long long>(number), name_of(from).c_str(),
                static_cast<unsigned long long>(flow.next));
        for (std::uint64_t i = flow.next; i < number && changes_ways(); ++i)
            flow.late.insert(i);
        if (number > flow.next && options_.mode == "window" && !changes_ways())
            die("port %u: number %llu of %s is lost, %llu is here", port_, static_cast<unsigned long long>(flow.next),
                name_of(from).c_str(), static_cast<unsigned long long>(number));
        const std::size_t wanted = has_header && h.kind != kData ? sizeof h : flow.contents.length(number);
        if (len != wanted)
            die("port %u: number %llu has %zu bytes, not %zu", port_, static_cast<unsigned long long>(number), len,
                wanted);
        const std::size_t good = flow.contents.check(number, data, has_header ? sizeof h : 0, len);
        if (good != len)
            die("port %u: number %llu of %zu bytes is wrong from the %zuth on", port_,
                static_cast<unsigned long long>(number), len, good);
        flow.next = std::max(flow.next, number + 1);
        if (++flow.received == 100 && options_.restarts)
            std::printf("port %u: flow of sender %u at %s is at 100\n", port_, h.sender, name_of(from).c_str());
        flow.end_came = flow.end_came || (has_header && h.kind == kEnd);
        if (flow.end_came && !waits_for_late(flow) && !flow.ended) {
            flow.ended = true;
            ++ended_;
        }
        if (options_.mode == "window" || (has_header && h.kind != kData))
            flow.acknowledge = true;
    }

    // In a flood they may as well be lost.
    bool waits_for_late(const Flow &flow) const { return !flow.late.empty() && options_.mode == "window"; }

    void answer(Flow &flow)
    {
        Header h;
        h.kind = flow.ended ? kEndAck : kAck;
        h.number = waits_for_late(flow) ? *flow.late.begin() : flow.next;
        flow.acknowledge = false;
        // A sender that was killed is no fault.
        if (send_to(fd_, &h, sizeof h, flow.address) != sizeof h && !options_.restarts)
            die("port %u: acknowledgement: %s", port_, strerrorname_np(errno));
    }

    const Options &options_;
    std::uint16_t port_;
    Random random_;
    int fd_;
    std::vector<std::string> buffers_;
    std::map<std::pair<std::array<unsigned char, 18>, std::uint32_t>, Flow> flows_;
    std::uint64_t drops_ = 0;
    unsigned ended_ = 0;
};

using Receivers = std::vector<std::unique_ptr<Receiver>>;

void receive_all_of(const Options &o, const Receivers &receivers)
{
    if (o.wait == "block") { // a thread each
        std::vector<std::thread> threads;
        for (const auto &r : receivers)
            threads.emplace_back([&r] {
                while (!r->ended())
                    r->receive(0);
            });
        for (auto &thread : threads)
            thread.join();
        return;
    }
    const int set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    for (std::size_t i = 0; i < receivers.size(); ++i) {
        epoll_event event{EPOLLIN | (i % 2 ? static_cast<std::uint32_t>(EPOLLET) : 0U), {}};
        event.data.u64 = i;
        must(::epoll_ctl(set, EPOLL_CTL_ADD, receivers[i]->fd(), &event), "epoll_ctl");
    }
    while (!std::all_of(receivers.begin(), receivers.end(), [](const auto &r) { return r->ended(); })) {
        std::vector<std::size_t> ready;
        if (o.wait == "poll") {
            std::vector<pollfd> fds;
            for (const auto &r : receivers)
                fds.push_back({r->fd(), POLLIN, 0});
            must(::poll(fds.data(), fds.size(), -1), "poll");
            for (std::size_t i = 0; i < fds.size(); ++i)
                if (fds[i].revents != 0)
                    ready.push_back(i);
        } else {
            epoll_event events[16];
            const int n = must(::epoll_wait(set, events, 16, -1), "epoll_wait");
            for (int i = 0; i < n; ++i)
                ready.push_back(events[i].data.u64);
        }
        for (const std::size_t i : ready)
            while (receivers[i]->receive(MSG_DONTWAIT)) {
            }
    }
    ::close(set);
}

// ---- sending ----------------------------------------------------------------------------------------------------------

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

void send_all_of(const Options &o)
{
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < o.here; ++i)
        threads.emplace_back([&o, i] { Sender(o, o.first_id + i).run(); });
    for (auto &thread : threads)
        thread.join();
}

// A socket that sends to itself, two at a time, and takes them back.
void send_to_self(const Options &o)
{
    const int fd = bound_socket(make_address(o.bind_to.c_str(), o.ports.at(0)));
    const Address own = local_address(fd);
    const Contents contents(o, 0, own.port());
    std::string out(kMaxLength, '\0'), in(kMaxLength + 1, '\0');
    for (std::uint64_t i = 0; i < o.datagrams; ++i) {
        if (i == o.datagrams / 2)
            must(connect_to(fd, own), "connect to itself");
        const std::size_t len[2] = {contents.length(2 * i), contents.length(2 * i + 1) / 2};
        for (unsigned k = 0; k < 2; ++k) {
            contents.fill(2 * i + k, out.data(), len[k]);
            if (send_to(fd, out.data(), len[k], own) != static_cast<ssize_t>(len[k]))
                die("send to itself: %s", strerrorname_np(errno));
        }
        for (unsigned k = 0; k < 2; ++k) {
            Address from;
            const ssize_t n = ::recvfrom(fd, in.data(), in.size(), 0, from.get(), &from.len);
            if (n != static_cast<ssize_t>(len[k]) || contents.check(2 * i + k, in.data(), 0, len[k]) != len[k])
                die("from itself: %zd instead of %zu, or wrong", n, len[k]);
            if (from.bytes() != own.bytes())
                die("from itself: of %s", name_of(from).c_str());
        }
    }
    char byte;
    if (::recv(fd, &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN)
        die("from itself: one more");
    ::close(fd);
    const unsigned long long total = 2 * o.datagrams;
    std::printf("itself: %llu sent and received\n", total);
}

Options parse(int argc, char **argv)
{
    Options o;
    o.role = argc > 1 ? argv[1] : "";
    for (int i = 2; i + 1 < argc; i += 2) {
        const std::string name = argv[i], value = argv[i + 1];
        const auto number = std::strtoull(value.c_str(), nullptr, 0);
        const std::map<std::string, std::string *> texts = {
            {"--mode", &o.mode}, {"--wait", &o.wait}, {"--bind", &o.bind_to}, {"--to", &o.to}, {"--from", &o.from}};
        const std::map<std::string, unsigned *> numbers = {
            {"--senders", &o.senders}, {"--here", &o.here}, {"--first-id", &o.first_id}};
        const std::map<std::string, bool *> switches = {
            {"--connected", &o.connected}, {"--endless", &o.endless}, {"--restarts", &o.restarts}};
        if (texts.contains(name)) {
            *texts.at(name) = value;
        } else if (numbers.contains(name)) {
            *numbers.at(name) = static_cast<unsigned>(number);
        } else if (switches.contains(name)) {
            *switches.at(name) = number != 0;
        } else if (name == "--from-port") {
            o.from_port = static_cast<std::uint16_t>(number);
        } else if (name == "--datagrams") {
            o.datagrams = number;
        } else if (name == "--numbered") {
            o.numbered = number != 0;
        } else if (name == "--seed") {
            o.seed = number;
        } else if (name == "--ports") {
            std::istringstream list(value);
            for (std::string port; std::getline(list, port, ',');)
                o.ports.push_back(static_cast<std::uint16_t>(std::strtoul(port.c_str(), nullptr, 0)));
        } else {
            die("unknown: %s", name.c_str());
        }
    }
    const int probe = udp_socket(AF_INET);
    enlarge_queue(probe);
    o.budget = static_cast<std::size_t>(int_option(probe, SOL_SOCKET, SO_RCVBUF)) / 2 / o.senders;
    o.largest = std::min(kMaxLength, (o.budget - cost_of(0)) / 2);
    ::close(probe);
    return o;
}

} // namespace

// traffic receive|send|alone|self [--OPTION VALUE]...: see Options. "ready" is printed once the receivers' ports are bound.
int main(int argc, char **argv)
{
    const Options o = parse(argc, argv);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("seed %llu\n", static_cast<unsigned long long>(o.seed));
    if (o.role == "self") {
        send_to_self(o);
        return 0;
    }
    Receivers receivers;
    if (o.role != "send")
        for (const std::uint16_t port : o.ports)
            receivers.push_back(std::make_unique<Receiver>(o, port));
    std::printf("ready\n");
    std::thread senders;
    if (o.role == "send" || o.role == "alone")
        senders = std::thread([&o] { send_all_of(o); });
    if (o.role != "send")
        receive_all_of(o, receivers);
    if (senders.joinable())
        senders.join();
    for (const auto &r : receivers)
        r->report();
    return 0;
}
