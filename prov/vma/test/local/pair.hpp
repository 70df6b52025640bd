// SPDX-License-Identifier: BSD-2-Clause
// Two endpoints of the local device, joined without connection management: in one process, or one each side of a
// fork(). Everything goes through the fi_* calls but the joining.
#pragma once

#include "prov/vma/test/fixture.hpp"

#include <memory>
#include <sched.h>
#include <sys/socket.h>

#include <rdma/fi_rma.h>

#include "local/msg/endpoint.hpp"
#include "local/msg/srx.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::test {

// A check that also works in a forked child, where cmocka must not report.
#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                       \
            std::abort();                                                                                              \
        }                                                                                                              \
    } while (0)

struct Setup {
    fi_threading threading = FI_THREAD_SAFE;
    fi_cq_format format = FI_CQ_FORMAT_DATA;
    std::size_t cq_size = 1024;
    std::size_t tx_size = 0;
    std::size_t rx_size = 0;
    std::size_t region = 0;
    std::uint64_t bind_flags = 0; // FI_SELECTIVE_COMPLETION
    bool cma = true;
    bool two_queues = false;
    bool shared_receive = false;
    bool guests = false; // each is another user to the other
    int mr_mode = 0;
};

// One side: a domain with its queue and one endpoint. A peer's breach of the rules ends the connection as connection
// management would, which knows nothing of it.
struct Side {
    Setup setup;
    ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, nullptr);
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_cq *cq = nullptr;    // receives, and sends unless there are two
    fid_cq *tx_cq = nullptr; // the same, or a second one
    fid_ep *srx = nullptr;
    fid_ep *ep = nullptr;

    explicit Side(const Setup &wanted) : setup(wanted)
    {
        info->domain_attr->threading = setup.threading;
        info->domain_attr->mr_mode = setup.mr_mode;
        info->tx_attr->inject_size = 4096;
        if (setup.tx_size)
            info->tx_attr->size = setup.tx_size;
        if (setup.rx_size)
            info->rx_attr->size = setup.rx_size;
        REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
        REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
        cq = open_queue();
        tx_cq = setup.two_queues ? open_queue() : cq;
        if (setup.shared_receive)
            REQUIRE(fi_srx_context(domain, info->rx_attr, &srx, nullptr) == 0);
        ep = open_endpoint(this);
    }
    Side(const Side &) = delete;
    Side &operator=(const Side &) = delete;
    ~Side()
    {
        if (ep)
            REQUIRE(fi_close(&ep->fid) == 0);
        if (srx)
            REQUIRE(fi_close(&srx->fid) == 0);
        if (tx_cq != cq)
            REQUIRE(fi_close(&tx_cq->fid) == 0);
        REQUIRE(fi_close(&cq->fid) == 0);
        REQUIRE(fi_close(&domain->fid) == 0);
        REQUIRE(fi_close(&fabric->fid) == 0);
    }

    fid_cq *open_queue()
    {
        fi_cq_attr attr{};
        attr.format = setup.format;
        attr.size = setup.cq_size;
        attr.wait_obj = FI_WAIT_FD;
        fid_cq *queue = nullptr;
        REQUIRE(fi_cq_open(domain, &attr, &queue, nullptr) == 0);
        return queue;
    }

    fid_ep *open_endpoint(void *context)
    {
        fid_ep *endpoint = nullptr;
        REQUIRE(fi_endpoint(domain, info.get(), &endpoint, context) == 0);
        local::Endpoint::from(endpoint).report = [](local::Endpoint &failed, const char *) noexcept {
            failed.on_local_shutdown();
        };
        if (tx_cq == cq) {
            REQUIRE(fi_ep_bind(endpoint, &cq->fid, FI_TRANSMIT | FI_RECV | setup.bind_flags) == 0);
        } else {
            REQUIRE(fi_ep_bind(endpoint, &cq->fid, FI_RECV | setup.bind_flags) == 0);
            REQUIRE(fi_ep_bind(endpoint, &tx_cq->fid, FI_TRANSMIT | setup.bind_flags) == 0);
        }
        if (srx)
            REQUIRE(fi_ep_bind(endpoint, &srx->fid, 0) == 0);
        if (setup.region)
            REQUIRE(fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &setup.region,
                              sizeof setup.region) == 0);
        return endpoint;
    }

    local::Endpoint &endpoint() const { return local::Endpoint::from(ep); }
    std::byte *region() const
    {
        fi_vma_region region{};
        std::size_t length = sizeof region;
        REQUIRE(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &region, &length) == 0);
        return static_cast<std::byte *>(region.base);
    }
};

// What each side shows of its memory: of a fork()'s two the same place.
inline const std::uint64_t g_mark = 0x1234'5678'9abc'def1;
inline const local::CmaMark kMark{reinterpret_cast<std::uintptr_t>(&g_mark), g_mark};

// As a link takes what came with an offer; the descriptors are used up. 0 or a negative fi_errno.
inline int attach(local::Endpoint &to, const local::EndpointOffer &offer, core::UniqueFd *fds,
                  const local::LinkPeer &peer)
{
    const local::DoorbellOwner owner{peer.pid, peer.guest_link};
    local::PeerParts parts;
    parts.segment = local::SegmentUse(std::move(fds[local::kFdSegment]));
    int error = local::open_peer_doorbell(owner, std::move(fds[local::kFdDoorbell]), std::move(fds[local::kFdWake]),
                                          parts.doorbell);
    if (error == 0)
        error = local::open_peer_doorbell(owner, std::move(fds[local::kFdTxDoorbell]), std::move(fds[local::kFdTxWake]),
                                          parts.tx_doorbell);
    return error != 0 ? error : to.attach(offer, std::move(parts), peer);
}

inline void join_one(local::Endpoint &to, local::Endpoint &offered, const local::LinkPeer &peer)
{
    local::EndpointOffer offer;
    int fds[local::kOfferFdCount];
    core::UniqueFd copies[local::kOfferFdCount];
    REQUIRE(offered.make_offer(offer, fds, peer.guest_link) == 0);
    for (unsigned i = 0; i < local::kOfferFdCount; ++i)
        copies[i] = core::duplicate_fd(fds[i]);
    REQUIRE(attach(to, offer, copies, peer) == 0);
}

inline void join(local::Endpoint &a, local::Endpoint &b, bool cma, bool guests = false)
{
    static std::uint64_t links = 0;
    const local::LinkPeer peer{getpid(), cma && !guests, guests ? ++links : 0, kMark};
    join_one(a, b, peer);
    join_one(b, a, peer);
}

// Both sides in this process.
struct Pair {
    Side a;
    Side b;

    explicit Pair(const Setup &setup = {}) : Pair(setup, setup) {}
    Pair(const Setup &setup_a, const Setup &setup_b) : a(setup_a), b(setup_b)
    {
        REQUIRE(fi_enable(a.ep) == 0);
        REQUIRE(fi_enable(b.ep) == 0);
        join(a.endpoint(), b.endpoint(), setup_a.cma, setup_a.guests);
    }
};

// Sends our offer and takes the peer's over a socket pair, as connection management does.
inline void join_over(int socket, Side &side, pid_t peer, bool cma)
{
    local::EndpointOffer offer;
    int fds[local::kOfferFdCount];
    REQUIRE(side.endpoint().make_offer(offer, fds, 0) == 0);
    iovec iov{&offer, sizeof offer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
    msghdr message{};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fds);
    std::memcpy(CMSG_DATA(header), fds, sizeof fds);
    REQUIRE(sendmsg(socket, &message, 0) == sizeof offer);
    REQUIRE(recvmsg(socket, &message, MSG_WAITALL) == sizeof offer);
    const cmsghdr *const passed = CMSG_FIRSTHDR(&message);
    REQUIRE(passed != nullptr);
    std::memcpy(fds, CMSG_DATA(passed), sizeof fds);
    core::UniqueFd owned[local::kOfferFdCount];
    for (unsigned i = 0; i < local::kOfferFdCount; ++i)
        owned[i] = core::UniqueFd(fds[i]);
    REQUIRE(attach(side.endpoint(), offer, owned, {peer, cma, 0, kMark}) == 0);
    char token = 0;
    REQUIRE(write(socket, &token, 1) == 1 && read(socket, &token, 1) == 1);
}

// One entry within a minute or so, or death: a lost wake-up must not hang the tests.
inline fi_cq_data_entry next_entry(fid_cq *cq)
{
    fi_cq_data_entry entry{};
    for (const patience::Deadline deadline;;) {
        const ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1)
            return entry;
        REQUIRE(got == -FI_EAGAIN);
        REQUIRE(!deadline.over());
        sched_yield(); // whom it waits for may want this processor
    }
}

inline fi_cq_err_entry next_error(fid_cq *cq)
{
    fi_cq_data_entry entry{};
    for (const patience::Deadline deadline;;) {
        const ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == -FI_EAVAIL)
            break;
        REQUIRE(got == -FI_EAGAIN);
        REQUIRE(!deadline.over());
        sched_yield(); // whom it waits for may want this processor
    }
    fi_cq_err_entry error{};
    REQUIRE(fi_cq_readerr(cq, &error, 0) == 1);
    return error;
}

inline bool no_entry(fid_cq *cq)
{
    fi_cq_data_entry entry{};
    for (int i = 0; i < 100; ++i) {
        if (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
            return false;
    }
    return true;
}

// Random numbers that can be had again: VMA_TEST_SEED in the environment, and printed.
class Random
{
public:
    Random()
    {
        const char *wanted = std::getenv("VMA_TEST_SEED");
        state_ = wanted ? std::strtoull(wanted, nullptr, 0) : static_cast<std::uint64_t>(getpid()) * 0x9e3779b97f4a7c15;
        std::printf("# VMA_TEST_SEED=%llu\n", static_cast<unsigned long long>(state_));
        std::fflush(stdout);
    }
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t operator()()
    {
        state_ += 0x9e3779b97f4a7c15;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    std::size_t below(std::size_t limit) { return static_cast<std::size_t>((*this)() % limit); }
    void fill(void *to, std::size_t length)
    {
        auto *bytes = static_cast<unsigned char *>(to);
        for (std::size_t i = 0; i < length; ++i)
            bytes[i] = static_cast<unsigned char>((*this)());
    }

private:
    std::uint64_t state_;
};

inline std::uint64_t hash(const void *data, std::size_t length, std::uint64_t from = 0xcbf29ce484222325)
{
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (std::size_t i = 0; i < length; ++i)
        from = (from ^ bytes[i]) * 0x100000001b3;
    return from;
}

} // namespace vma::test
