// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_VMA_STREAM as a libfabric program uses it, with whoever is on the wire: a server that sends back what it gets,
// a client that sends a stream and checks its echo, and one that measures round trips.
//
//   stream_echo spin|fd listen ADDRESS PORT          until the end of standard input; then "N connections, N bytes"
//   stream_echo spin|fd connect ADDRESS PORT BYTES COUNT    COUNT connections, all at once; "ok"
//   stream_echo spin|fd ping ADDRESS PORT BYTES COUNT       COUNT round trips on one; half the median in ns
//
// An ADDRESS that is a string of libfabric's (fi_sockaddr_in://192.0.2.1:7000) names its port too, and PORT is not
// read; all addresses are strings then.
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fabtests/fabric/programs/must.hpp"
#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/peer.hpp"
#include "rdma/fi_ext_vma.h"

using namespace fabtest;

namespace {

constexpr std::size_t kChunk = 65536;
const int kPatienceMs = patience::milliseconds();

std::uint64_t now_ns()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

// The port behind an address, opened.
struct Port {
    Port(const char *address, const char *number, bool source, bool sleeps);
    Port(const Port &) = delete;
    Port &operator=(const Port &) = delete;
    ~Port();

    fid_ep *open_endpoint(fi_info *with, void *context) const;
    // Until the queues have something, or standard input has with `input`.
    void wait(bool input) const;

    bool sleeps;
    fi_info *info = nullptr;
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_eq *eq = nullptr;
    fid_cq *cq = nullptr;
};

Port::Port(const char *address, const char *number, bool source, bool sleeping) : sleeps(sleeping)
{
    fi_info *hints = fi_allocinfo();
    fi_vma_make_stream(hints->ep_attr);
    hints->fabric_attr->prov_name = strdup("vma");
    if (std::strstr(address, "://") != nullptr)
        hints->addr_format = FI_ADDR_STR;
    const char *const service = hints->addr_format == FI_ADDR_STR ? nullptr : number;
    fi_must(fi_getinfo(FI_VERSION(1, 17), address, service, source ? FI_SOURCE : 0, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    fi_must(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    fi_must(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_FD;
    fi_must(fi_eq_open(fabric, &eq_attr, &eq, nullptr), "fi_eq_open");
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_MSG;
    cq_attr.wait_obj = FI_WAIT_FD;
    fi_must(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
}

Port::~Port()
{
    fi_must(fi_close(&cq->fid), "fi_close(completion queue)");
    fi_must(fi_close(&domain->fid), "fi_close(domain)");
    fi_must(fi_close(&eq->fid), "fi_close(event queue)");
    fi_must(fi_close(&fabric->fid), "fi_close(fabric)");
    fi_freeinfo(info);
}

fid_ep *Port::open_endpoint(fi_info *with, void *context) const
{
    fid_ep *ep = nullptr;
    fi_must(fi_endpoint(domain, with, &ep, context), "fi_endpoint");
    fi_must(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind(eq)");
    fi_must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind(cq)");
    fi_must(fi_enable(ep), "fi_enable");
    return ep;
}

void Port::wait(bool input) const
{
    pollfd wanted[] = {{STDIN_FILENO, POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
    int timeout = 0;
    if (sleeps) {
        fid *fids[] = {&eq->fid, &cq->fid};
        const int status = fi_trywait(fabric, fids, 2);
        if (status == -FI_EAGAIN)
            return;
        fi_must(status, "fi_trywait");
        fi_must(fi_control(&eq->fid, FI_GETWAIT, &wanted[1].fd), "FI_GETWAIT");
        fi_must(fi_control(&cq->fid, FI_GETWAIT, &wanted[2].fd), "FI_GETWAIT");
        timeout = kPatienceMs;
    }
    if (!input)
        wanted[0].fd = -1;
    else if (!sleeps)
        timeout = 0;
    if ((sleeps || input) && ::poll(wanted, 3, timeout) == 0 && sleeps && !input)
        die("nothing comes any more");
}

std::uint8_t byte_at(std::uint64_t position)
{
    return static_cast<std::uint8_t>(position * 7 + (position >> 8) + (position >> 16) * 31);
}

// ---- the server -----------------------------------------------------------------------------------------------------

class Server
{
public:
    Server(const char *address, const char *number, bool sleeps) : port_(address, number, true, sleeps)
    {
        fi_must(fi_passive_ep(port_.fabric, port_.info, &pep_, nullptr), "fi_passive_ep");
        fi_must(fi_pep_bind(pep_, &port_.eq->fid, 0), "fi_pep_bind");
        fi_must(fi_listen(pep_), "fi_listen");
        std::printf("listening\n");
        std::fflush(stdout);
    }
    ~Server() { fi_must(fi_close(&pep_->fid), "fi_close(passive endpoint)"); }
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    void run()
    {
        char end = 0;
        for (unsigned turn = 0; !over(turn, end); ++turn) {
            bool any = take_events();
            fi_cq_msg_entry entries[16];
            const ssize_t n = fi_cq_read(port_.cq, entries, std::size(entries));
            for (ssize_t i = 0; i < n; ++i)
                echo(*static_cast<Link *>(entries[i].op_context));
            any = any || n > 0;
            gone_.clear();
            if (!any && port_.sleeps)
                port_.wait(true);
        }
        links_.clear();
        std::printf("%u connections, %lu bytes\n", connections_, bytes_);
    }

private:
    struct Link {
        fid_ep *ep = nullptr;
        std::vector<std::uint8_t> left; // that had no room
        bool ended = false;

        Link() = default;
        Link(const Link &) = delete;
        Link &operator=(const Link &) = delete;
        ~Link() { fi_must(fi_close(&ep->fid), "fi_close(endpoint)"); }
    };

    bool over(unsigned turn, char &end) const
    {
        if (!port_.sleeps && turn % 1024 != 0)
            return false;
        pollfd input{STDIN_FILENO, POLLIN, 0};
        return ::poll(&input, 1, 0) > 0 && ::read(STDIN_FILENO, &end, 1) == 0;
    }

    bool take_events()
    {
        fi_eq_cm_entry entry{};
        std::uint32_t event = 0;
        if (fi_eq_read(port_.eq, &event, &entry, sizeof entry, 0) <= 0)
            return false;
        if (event == FI_CONNREQ) {
            ++connections_;
            links_.push_back(std::make_unique<Link>());
            Link &link = *links_.back();
            link.ep = port_.open_endpoint(entry.info, &link);
            fi_must(fi_accept(link.ep, nullptr, 0), "fi_accept");
            fi_freeinfo(entry.info);
        }
        return true;
    }

    void echo(Link &link)
    {
        for (;;) {
            if (!give(link))
                return;
            const ssize_t n = fi_recv(link.ep, buffer_, sizeof buffer_, nullptr, 0, nullptr);
            if (n == -FI_EAGAIN)
                return;
            if (n <= 0)
                return close(link);
            bytes_ += static_cast<std::uint64_t>(n);
            link.left.assign(buffer_, buffer_ + n);
        }
    }

    // False: there is no room for all of it, or the connection has failed.
    bool give(Link &link)
    {
        while (!link.left.empty()) {
            const ssize_t n = fi_send(link.ep, link.left.data(), link.left.size(), nullptr, 0, nullptr);
            if (n == -FI_EAGAIN)
                return false;
            if (n < 0) {
                close(link);
                return false;
            }
            link.left.erase(link.left.begin(), link.left.begin() + n);
        }
        return true;
    }

    // Entries of this round may still name it.
    void close(Link &link)
    {
        const auto place = std::find_if(links_.begin(), links_.end(), [&](const auto &l) { return l.get() == &link; });
        if (place == links_.end())
            return;
        gone_.push_back(std::move(*place));
        links_.erase(place);
    }

    Port port_;
    fid_pep *pep_ = nullptr;
    std::vector<std::unique_ptr<Link>> links_;
    std::vector<std::unique_ptr<Link>> gone_;
    unsigned connections_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint8_t buffer_[kChunk];
};

// ---- the clients ----------------------------------------------------------------------------------------------------

// One connection that sends so many bytes, and checks that the same come back.
struct Check {
    fid_ep *ep = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    bool finished = false; // its half is shut
    bool done = false;

    void act()
    {
        std::uint8_t buffer[kChunk];
        while (sent < bytes) {
            const std::size_t n = std::min<std::uint64_t>(sizeof buffer, bytes - sent);
            for (std::size_t i = 0; i < n; ++i)
                buffer[i] = byte_at(sent + i);
            const ssize_t taken = fi_send(ep, buffer, n, nullptr, 0, nullptr);
            if (taken == -FI_EAGAIN)
                break;
            fi_must(taken, "fi_send");
            sent += static_cast<std::uint64_t>(taken);
        }
        if (sent == bytes && !finished) {
            finished = true;
            fi_must(fi_shutdown(ep, 0), "fi_shutdown");
        }
        take(buffer, sizeof buffer);
    }

private:
    void take(std::uint8_t *buffer, std::size_t size)
    {
        for (;;) {
            const ssize_t n = fi_recv(ep, buffer, size, nullptr, 0, nullptr);
            if (n == -FI_EAGAIN)
                return;
            fi_must(n, "fi_recv");
            if (n == 0) {
                if (received != bytes)
                    die("the echo is short: %lu of %lu bytes", received, bytes);
                done = true;
                return;
            }
            for (ssize_t i = 0; i < n; ++i)
                if (buffer[i] != byte_at(received + static_cast<std::uint64_t>(i)))
                    die("the echo is wrong at byte %lu", received + static_cast<std::uint64_t>(i));
            received += static_cast<std::uint64_t>(n);
        }
    }
};

// Names that are strings are what the peers call each other, and no longer than they say.
void check_names(const Port &port, fid_ep *ep)
{
    if (port.info->addr_format != FI_ADDR_STR)
        return;
    char peer[128];
    std::size_t length = sizeof peer;
    fi_must(fi_getpeer(ep, peer, &length), "fi_getpeer");
    const auto *const wanted = static_cast<const char *>(port.info->dest_addr);
    if (length != std::strlen(wanted) + 1 || std::strcmp(peer, wanted) != 0)
        die("the peer is called %s, not %s", peer, wanted);
    char own[128];
    length = sizeof own;
    fi_must(fi_getname(&ep->fid, own, &length), "fi_getname");
    if (length != std::strlen(own) + 1 || std::strncmp(own, "fi_sockaddr_in", 14) != 0)
        die("our own name is %s", own);
}

// The next event of the queue, if there is one; an error event ends the program.
std::uint32_t next_event(const Port &port, fi_eq_cm_entry &entry)
{
    std::uint32_t event = 0;
    const ssize_t n = fi_eq_read(port.eq, &event, &entry, sizeof entry, 0);
    if (n == -FI_EAVAIL) {
        fi_eq_err_entry error{};
        fi_must(fi_eq_readerr(port.eq, &error, 0), "fi_eq_readerr");
        die("error event: %s", fi_strerror(error.err));
    }
    return n > 0 ? event : 0;
}

void check(const Port &port, std::uint64_t bytes, unsigned count)
{
    std::vector<Check> checks(count);
    for (Check &c : checks) {
        c.bytes = bytes;
        c.ep = port.open_endpoint(port.info, &c);
        fi_must(fi_connect(c.ep, port.info->dest_addr, nullptr, 0), "fi_connect");
    }
    for (unsigned left = count; left != 0;) {
        fi_eq_cm_entry entry{};
        bool any = false;
        while (const std::uint32_t event = next_event(port, entry)) {
            any = true;
            if (event != FI_CONNECTED)
                continue;
            Check &connected = *static_cast<Check *>(entry.fid->context);
            check_names(port, connected.ep);
            connected.act();
        }
        fi_cq_msg_entry entries[16];
        const ssize_t n = fi_cq_read(port.cq, entries, std::size(entries));
        for (ssize_t i = 0; i < n; ++i) {
            Check &c = *static_cast<Check *>(entries[i].op_context);
            if (!c.done)
                c.act();
        }
        left =
            static_cast<unsigned>(std::count_if(checks.begin(), checks.end(), [](const Check &c) { return !c.done; }));
        if (!any && n <= 0 && left != 0)
            port.wait(false);
    }
    for (Check &c : checks)
        fi_must(fi_close(&c.ep->fid), "fi_close(endpoint)");
    std::printf("ok\n");
}

void ping(const Port &port, std::size_t bytes, unsigned count)
{
    fid_ep *const ep = port.open_endpoint(port.info, nullptr);
    fi_vma_tcp tcp{};
    std::size_t length = sizeof tcp;
    fi_must(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP), &tcp, &length), "fi_getopt");
    tcp.nodelay = 1;
    fi_must(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP), &tcp, sizeof tcp), "fi_setopt");
    fi_must(fi_connect(ep, port.info->dest_addr, nullptr, 0), "fi_connect");
    fi_eq_cm_entry entry{};
    while (next_event(port, entry) != FI_CONNECTED)
        port.wait(false);
    std::vector<std::uint8_t> buffer(bytes);
    std::vector<std::uint64_t> times;
    for (unsigned i = 0; i < count; ++i) {
        const std::uint64_t start = now_ns();
        if (fi_send(ep, buffer.data(), bytes, nullptr, 0, nullptr) != static_cast<ssize_t>(bytes))
            die("no room for a ping");
        for (std::size_t got = 0; got < bytes;) {
            const ssize_t n = fi_recv(ep, buffer.data() + got, bytes - got, nullptr, 0, nullptr);
            if (n == -FI_EAGAIN) {
                fi_cq_msg_entry readable{};
                if (fi_cq_read(port.cq, &readable, 1) == -FI_EAGAIN)
                    port.wait(false);
                continue;
            }
            fi_must(n, "fi_recv");
            if (n == 0)
                die("the peer has finished");
            got += static_cast<std::size_t>(n);
        }
        times.push_back(now_ns() - start);
    }
    fi_must(fi_close(&ep->fid), "fi_close(endpoint)");
    std::nth_element(times.begin(), times.begin() + count / 2, times.end());
    std::printf("%lu\n", times[count / 2] / 2);
}

} // namespace

int main(int argc, char **argv)
{
    const std::string role = argc > 2 ? argv[2] : "";
    const bool sleeps = argc > 1 && std::strcmp(argv[1], "fd") == 0;
    if (role == "listen" && argc == 5) {
        Server(argv[3], argv[4], sleeps).run();
    } else if ((role == "connect" || role == "ping") && argc == 7) {
        const Port port(argv[3], argv[4], false, sleeps);
        const auto bytes = static_cast<std::uint64_t>(std::atoll(argv[5]));
        const auto count = static_cast<unsigned>(std::atoi(argv[6]));
        role == "ping" ? ping(port, bytes, count) : check(port, bytes, count);
    } else {
        die("stream_echo spin|fd listen ADDRESS PORT | connect ADDRESS PORT BYTES COUNT | ping ADDRESS PORT BYTES "
            "COUNT");
    }
}
