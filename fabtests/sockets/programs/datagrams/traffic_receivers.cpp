// SPDX-License-Identifier: BSD-2-Clause
// The receivers' end of the traffic program: what comes is checked, what is missing is counted, and in "window" mode
// acknowledged.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fabtests/sockets/programs/datagrams/traffic.hpp"

namespace fabtest {

namespace {

struct Flow {
    Address address;
    Contents contents;
    std::uint64_t next = 0, received = 0;
    std::set<std::uint64_t> late = {}; // overtaken by others; or lost
    bool end_came = false, ended = false, acknowledge = false;
};

class Checker final : public Receiver
{
public:
    Checker(const Options &o, std::uint16_t port)
        : options_(o), port_(port), random_(o.seed + port), fd_(bound_socket(make_address(o.bind_to.c_str(), port))),
          buffers_(kBatch, std::string(kMaxLength + 1, '\0'))
    {
        const int on = 1;
        must(set_option(fd_, SOL_SOCKET, SO_RXQ_OVFL, on), "SO_RXQ_OVFL");
        if (o.mode == "window")
            enlarge_queue(fd_);
    }
    Checker(const Checker &) = delete;
    Checker &operator=(const Checker &) = delete;
    ~Checker() override { ::close(fd_); }

    int fd() const override { return fd_; }
    bool ended() const override { return ended_ == options_.senders; }

    bool receive(int flags) override
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

    void report() const override
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

} // namespace

std::unique_ptr<Receiver> make_receiver(const Options &o, std::uint16_t port)
{
    return std::make_unique<Checker>(o, port);
}

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

} // namespace fabtest
