// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_DGRAM over an Ethernet port as a libfabric program uses it: what one peer sends, to us or to a group, is sent
// back to it; with a second group, everything goes to that instead. Until the end of standard input; then "N
// datagrams".
//
//   datagram_echo LOCAL PORT PEER PORT [GROUP [GROUP]]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "fabtests/fabric/programs/must.hpp"
#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr std::size_t kMost = 65536;
constexpr std::size_t kReceives = 8;

sockaddr_storage address_of(const char *text, const char *port)
{
    sockaddr_storage storage{};
    auto *const v4 = reinterpret_cast<sockaddr_in *>(&storage);
    auto *const v6 = reinterpret_cast<sockaddr_in6 *>(&storage);
    const auto number = htons(static_cast<std::uint16_t>(std::atoi(port)));
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = number;
    } else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = number;
    } else {
        die("%s is no address", text);
    }
    return storage;
}

struct Echo {
    Echo(const char *local, const char *port);
    Echo(const Echo &) = delete;
    Echo &operator=(const Echo &) = delete;
    ~Echo();

    fi_addr_t insert(const sockaddr_storage &address);
    fid_mc *join(const sockaddr_storage &group, std::uint64_t flags);
    void run();

    fi_info *info = nullptr;
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_av *av = nullptr;
    fid_cq *cq = nullptr;
    fid_ep *ep = nullptr;
    std::vector<fid_mc *> groups;
    fi_addr_t peer = FI_ADDR_UNSPEC; // whose datagrams are echoed
    fi_addr_t to = FI_ADDR_UNSPEC;
    std::vector<std::vector<std::uint8_t>> buffers;

private:
    bool over() const;
    void wait() const;
    void post(std::size_t number);
    void answer(std::size_t number, std::size_t length);

    unsigned count_ = 0;
};

Echo::Echo(const char *local, const char *port)
{
    fi_info *hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_DGRAM;
    hints->caps = FI_MSG | FI_SOURCE | FI_MULTICAST;
    hints->fabric_attr->prov_name = strdup("vma");
    hints->fabric_attr->name = strdup("ethernet");
    fi_must(fi_getinfo(FI_VERSION(1, 17), local, port, FI_SOURCE, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    fi_must(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    fi_must(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    fi_av_attr av_attr{};
    fi_must(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_MSG;
    cq_attr.wait_obj = FI_WAIT_FD;
    fi_must(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
    fi_must(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
    fi_must(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind(av)");
    fi_must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION), "fi_ep_bind(cq)");
    fi_must(fi_enable(ep), "fi_enable");
    buffers.assign(kReceives, std::vector<std::uint8_t>(kMost));
    for (std::size_t i = 0; i < kReceives; ++i)
        post(i);
}

Echo::~Echo()
{
    for (fid_mc *group : groups)
        fi_must(fi_close(&group->fid), "fi_close(group)");
    fi_must(fi_close(&ep->fid), "fi_close(endpoint)");
    fi_must(fi_close(&cq->fid), "fi_close(completion queue)");
    fi_must(fi_close(&av->fid), "fi_close(address vector)");
    fi_must(fi_close(&domain->fid), "fi_close(domain)");
    fi_must(fi_close(&fabric->fid), "fi_close(fabric)");
    fi_freeinfo(info);
}

fi_addr_t Echo::insert(const sockaddr_storage &address)
{
    fi_addr_t place = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(av, &address, 1, &place, 0, nullptr) != 1)
        die("fi_av_insert");
    return place;
}

fid_mc *Echo::join(const sockaddr_storage &group, std::uint64_t flags)
{
    fid_mc *mc = nullptr;
    fi_must(fi_join(ep, &group, flags, &mc, nullptr), "fi_join");
    groups.push_back(mc);
    return mc;
}

void Echo::post(std::size_t number)
{
    const iovec part{buffers[number].data(), kMost};
    fi_msg msg{};
    msg.msg_iov = &part;
    msg.iov_count = 1;
    msg.context = &buffers[number];
    fi_must(fi_recvmsg(ep, &msg, FI_COMPLETION), "fi_recvmsg");
}

void Echo::answer(std::size_t number, std::size_t length)
{
    ssize_t result = 0;
    while ((result = fi_send(ep, buffers[number].data(), length, nullptr, to, nullptr)) == -FI_EAGAIN)
        fi_cq_read(cq, nullptr, 0); // the way is looked for, or the device is full
    fi_must(result, "fi_send");
}

bool Echo::over() const
{
    char end = 0;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, 0) > 0 && ::read(STDIN_FILENO, &end, 1) == 0;
}

void Echo::wait() const
{
    fid *fids[] = {&cq->fid};
    if (fi_trywait(fabric, fids, 1) != 0)
        return;
    pollfd wanted[] = {{STDIN_FILENO, POLLIN, 0}, {-1, POLLIN, 0}};
    fi_must(fi_control(&cq->fid, FI_GETWAIT, &wanted[1].fd), "FI_GETWAIT");
    ::poll(wanted, 2, -1);
}

void Echo::run()
{
    while (!over()) {
        fi_cq_msg_entry entry{};
        fi_addr_t source = FI_ADDR_NOTAVAIL;
        const ssize_t n = fi_cq_readfrom(cq, &entry, 1, &source);
        if (n == -FI_EAGAIN) {
            wait();
            continue;
        }
        fi_must(n, "fi_cq_readfrom");
        if ((entry.flags & FI_RECV) == 0)
            die("a completion of a send that asked for none");
        const auto *buffer = static_cast<std::vector<std::uint8_t> *>(entry.op_context);
        const auto number = static_cast<std::size_t>(buffer - buffers.data());
        if (source == peer) {
            ++count_;
            answer(number, entry.len);
        }
        post(number);
    }
    std::printf("%u datagrams\n", count_);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 7)
        die("datagram_echo LOCAL PORT PEER PORT [GROUP [GROUP]]");
    Echo echo(argv[1], argv[2]);
    echo.peer = echo.to = echo.insert(address_of(argv[3], argv[4]));
    if (argc > 5)
        echo.join(address_of(argv[5], argv[2]), FI_RECV);
    if (argc > 6)
        echo.to = fi_mc_addr(echo.join(address_of(argv[6], argv[4]), FI_SEND));
    std::printf("ready\n");
    std::fflush(stdout);
    echo.run();
}
