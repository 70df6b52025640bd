// SPDX-License-Identifier: BSD-2-Clause
// Datagram endpoints of the local device for tests, in one process or one each side of a fork(). Everything goes
// through the fi_* calls.
#pragma once

#include "prov/vma/test/local/pair.hpp"

#include <sys/wait.h>

#include "ofi/address_format.hpp"

namespace vma::test {

struct DgramSetup {
    const char *port = "0";
    std::uint64_t bind_flags = 0; // FI_SELECTIVE_COMPLETION
    fi_threading threading = FI_THREAD_SAFE;
    std::size_t cq_size = 1024;
    const fi_vma_taker *taker = nullptr;
    std::uint64_t more_caps = 0;
    bool queue = true; // bound; else the counters are
    std::uint32_t addr_format = FI_SOCKADDR_IN;
};

// One endpoint with a domain, a queue and counters of its own.
struct Dgram {
    ofi::InfoPtr info;
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_cq *cq = nullptr;
    fid_av *av = nullptr;
    fid_ep *ep = nullptr;
    sockaddr_in name{};

    fid_cntr *sends = nullptr;
    fid_cntr *receives = nullptr;

    explicit Dgram(const char *port = "0", std::uint64_t bind_flags = 0, fi_threading threading = FI_THREAD_SAFE)
        : Dgram({.port = port, .bind_flags = bind_flags, .threading = threading})
    {
    }
    explicit Dgram(const DgramSetup &setup)
    {
        const ofi::InfoPtr hints = ofi::make_info(ofi::kDgramOffer);
        hints->caps |= setup.more_caps;
        hints->addr_format = setup.addr_format;
        info = ask("127.0.0.1", setup.port, FI_SOURCE, hints.get());
        REQUIRE(info->ep_attr->type == FI_EP_DGRAM);
        info->domain_attr->threading = setup.threading;
        info->rx_attr->size = ofi::kMaxQueueSize;
        REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
        REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
        fi_cq_attr cq_attr{};
        cq_attr.format = FI_CQ_FORMAT_DATA;
        cq_attr.size = setup.cq_size;
        cq_attr.wait_obj = FI_WAIT_FD;
        REQUIRE(fi_cq_open(domain, &cq_attr, &cq, nullptr) == 0);
        fi_av_attr av_attr{};
        av_attr.type = FI_AV_TABLE;
        REQUIRE(fi_av_open(domain, &av_attr, &av, nullptr) == 0);
        REQUIRE(fi_endpoint(domain, info.get(), &ep, this) == 0);
        REQUIRE(fi_cntr_open(domain, nullptr, &sends, nullptr) == 0);
        REQUIRE(fi_cntr_open(domain, nullptr, &receives, nullptr) == 0);
        if (setup.queue)
            REQUIRE(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | setup.bind_flags) == 0);
        REQUIRE(fi_ep_bind(ep, &sends->fid, FI_SEND) == 0);
        REQUIRE(fi_ep_bind(ep, &receives->fid, FI_RECV) == 0);
        REQUIRE(fi_ep_bind(ep, &av->fid, 0) == 0);
        if (setup.taker)
            REQUIRE(set_taker(setup.taker, sizeof *setup.taker) == 0);
        REQUIRE(fi_enable(ep) == 0);
        char written[128];
        std::size_t length = sizeof written;
        ofi::Address read;
        REQUIRE(fi_getname(&ep->fid, written, &length) == 0);
        REQUIRE(ofi::AddressFormat(info.get()).read(written, length, read) && read.size() == sizeof name);
        name = read.v4;
    }
    Dgram(const Dgram &) = delete;
    Dgram &operator=(const Dgram &) = delete;
    ~Dgram()
    {
        if (ep)
            REQUIRE(fi_close(&ep->fid) == 0);
        REQUIRE(fi_close(&sends->fid) == 0);
        REQUIRE(fi_close(&receives->fid) == 0);
        REQUIRE(fi_close(&av->fid) == 0);
        REQUIRE(fi_close(&cq->fid) == 0);
        REQUIRE(fi_close(&domain->fid) == 0);
        REQUIRE(fi_close(&fabric->fid) == 0);
    }

    fi_addr_t insert(const sockaddr_in &address)
    {
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        REQUIRE(fi_av_insert(av, &address, 1, &place, 0, nullptr) == 1);
        return place;
    }
    fi_addr_t insert(std::uint16_t port)
    {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return insert(address);
    }
    std::uint64_t drops(unsigned option) const
    {
        std::uint64_t count = 0;
        std::size_t length = sizeof count;
        REQUIRE(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(option), &count, &length) == 0);
        return count;
    }
    int set_taker(const fi_vma_taker *taker, std::size_t length) const
    {
        return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TAKER), taker, length);
    }
    // Reads nothing that it should not.
    void look() const { REQUIRE(fi_cq_read(cq, nullptr, 0) <= 0); }
};

// What the child does; it ends with status 0.
template <typename Action> pid_t child(Action &&action)
{
    std::fflush(stdout);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        action();
        std::fflush(stdout);
        _exit(0);
    }
    return pid;
}

inline void ends_well(pid_t pid)
{
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
}

} // namespace vma::test
