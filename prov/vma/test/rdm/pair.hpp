// SPDX-License-Identifier: BSD-2-Clause
// Reliable-datagram endpoints of the local device for tests, any number in one process, or one each side of a fork().
// Everything goes through the fi_* calls, but for switching single copy off, and for taking others for remote ones.
#pragma once

#include "prov/vma/test/local/dgram_pair.hpp"

#include <dlfcn.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif
#include <vector>

#include <rdma/fi_atomic.h>
#include <rdma/fi_tagged.h>

#include "ofi/libfabric.hpp"
#include "rdm/endpoint.hpp"

namespace vma::test {

struct RdmSetup {
    const char *port = "0";
    fi_threading threading = FI_THREAD_SAFE;
    std::size_t cq_size = 4096;
    std::size_t tx_size = 0; // what is offered
    std::size_t rx_size = 0;
    std::uint64_t bind_flags = 0;
    bool two_queues = false;
    bool queue = true; // bound; else counters alone
    bool single_copy = true;
    fi_wait_obj wait = FI_WAIT_FD; // of the queues
    bool network = false;          // as if the others were on other hosts, by libfabric's tcp;ofi_rxm
};

// libfabric itself, through which the provider reaches others: tests call the provider without it.
inline void attach_real_libfabric()
{
#if defined(__SANITIZE_ADDRESS__)
    const __lsan::ScopedDisabler disabler; // what libfabric keeps of a provider's parameters it forgets at its end
#endif
    void *const library = ::dlopen("libfabric.so.1", RTLD_NOW);
    REQUIRE(library != nullptr);
    ofi::attach_libfabric(fi_prov_ini(), ::dlsym(library, "fi_getinfo"));
    REQUIRE(ofi::libfabric_calls() != nullptr);
}

struct Rdm {
    ofi::InfoPtr info;
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_cq *cq = nullptr;    // receives, and sends unless there are two
    fid_cq *tx_cq = nullptr; // the same, or another one
    fid_av *av = nullptr;
    fid_cntr *counter = nullptr; // of remote writes
    fid_cntr *sends = nullptr;
    fid_cntr *receives = nullptr;
    fid_ep *ep = nullptr;
    sockaddr_in name{};

    explicit Rdm(const RdmSetup &setup = {})
    {
        const ofi::InfoPtr hints = ofi::make_info(ofi::kRdmOffer);
        info = ask("127.0.0.1", setup.port, FI_SOURCE, hints.get());
        REQUIRE(info->ep_attr->type == FI_EP_RDM);
        info->domain_attr->threading = setup.threading;
        info->tx_attr->size = setup.tx_size != 0 ? setup.tx_size : info->tx_attr->size;
        info->rx_attr->size = setup.rx_size != 0 ? setup.rx_size : info->rx_attr->size;
        REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
        REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
        cq = open_queue(setup.cq_size, setup.wait);
        tx_cq = setup.two_queues ? open_queue(setup.cq_size, setup.wait) : cq;
        fi_av_attr av_attr{};
        av_attr.type = FI_AV_TABLE;
        REQUIRE(fi_av_open(domain, &av_attr, &av, nullptr) == 0);
        for (fid_cntr **one : {&counter, &sends, &receives})
            REQUIRE(fi_cntr_open(domain, nullptr, one, nullptr) == 0);
        REQUIRE(fi_endpoint(domain, info.get(), &ep, this) == 0);
        if (setup.two_queues) {
            REQUIRE(fi_ep_bind(ep, &cq->fid, FI_RECV | setup.bind_flags) == 0);
            REQUIRE(fi_ep_bind(ep, &tx_cq->fid, FI_TRANSMIT | setup.bind_flags) == 0);
        } else if (setup.queue) {
            REQUIRE(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | setup.bind_flags) == 0);
        }
        REQUIRE(fi_ep_bind(ep, &counter->fid, FI_REMOTE_WRITE) == 0);
        REQUIRE(fi_ep_bind(ep, &sends->fid, FI_SEND) == 0);
        REQUIRE(fi_ep_bind(ep, &receives->fid, FI_RECV) == 0);
        REQUIRE(fi_ep_bind(ep, &av->fid, 0) == 0);
        if (!setup.single_copy)
            rdm::RdmEndpoint::from(ep).forbid_single_copy();
        if (setup.network) {
            attach_real_libfabric();
            rdm::RdmEndpoint::from(ep).take_all_for_remote();
        }
        REQUIRE(fi_enable(ep) == 0);
        REQUIRE(rdm::RdmEndpoint::from(ep).has_network() == setup.network);
        std::size_t length = sizeof name;
        REQUIRE(fi_getname(&ep->fid, &name, &length) == 0 && length == sizeof name);
    }
    Rdm(const Rdm &) = delete;
    Rdm &operator=(const Rdm &) = delete;
    ~Rdm()
    {
        REQUIRE(fi_close(&ep->fid) == 0);
        for (fid_cntr *one : {counter, sends, receives})
            REQUIRE(fi_close(&one->fid) == 0);
        REQUIRE(fi_close(&av->fid) == 0);
        if (tx_cq != cq)
            REQUIRE(fi_close(&tx_cq->fid) == 0);
        REQUIRE(fi_close(&cq->fid) == 0);
        REQUIRE(fi_close(&domain->fid) == 0);
        REQUIRE(fi_close(&fabric->fid) == 0);
    }

    fid_cq *open_queue(std::size_t size, fi_wait_obj wait)
    {
        fi_cq_attr attr{};
        attr.format = FI_CQ_FORMAT_TAGGED;
        attr.size = size;
        attr.wait_obj = wait;
        fid_cq *queue = nullptr;
        REQUIRE(fi_cq_open(domain, &attr, &queue, nullptr) == 0);
        return queue;
    }
    fi_addr_t insert(const sockaddr_in &address)
    {
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        REQUIRE(fi_av_insert(av, &address, 1, &place, 0, nullptr) == 1);
        return place;
    }
    fid_mr *expose(void *memory, std::size_t length, std::uint64_t key,
                   std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE)
    {
        fid_mr *mr = nullptr;
        REQUIRE(fi_mr_reg(domain, memory, length, access, 0, key, 0, &mr, nullptr) == 0);
        return mr;
    }
};

// An entry of a queue, of either kind.
struct Entry {
    fi_cq_tagged_entry told{};
    fi_cq_err_entry error{}; // err is 0 for a good one
    fi_addr_t source = FI_ADDR_NOTAVAIL;
};

inline bool read_entry(fid_cq *cq, Entry &entry)
{
    entry = {};
    const ssize_t result = fi_cq_readfrom(cq, &entry.told, 1, &entry.source);
    if (result == 1)
        return true;
    if (result == -FI_EAVAIL) {
        REQUIRE(fi_cq_readerr(cq, &entry.error, 0) == 1);
        return true;
    }
    REQUIRE(result == -FI_EAGAIN);
    return false;
}

// The next entry of `cq`, while the others make progress too.
inline Entry next_of(fid_cq *cq, std::initializer_list<fid_cq *> others = {})
{
    Entry entry;
    for (std::uint64_t i = 0; !read_entry(cq, entry); ++i) {
        REQUIRE(i < 100'000'000);
        for (fid_cq *other : others)
            REQUIRE(fi_cq_read(other, nullptr, 0) <= 0);
    }
    return entry;
}

// A call that may be too early is made again, while the queues make progress.
template <typename Call> ssize_t again(Call &&call, std::initializer_list<fid_cq *> queues)
{
    for (std::uint64_t i = 0;; ++i) {
        const ssize_t result = call();
        if (result != -FI_EAGAIN)
            return result;
        REQUIRE(i < 100'000'000);
        for (fid_cq *queue : queues)
            static_cast<void>(fi_cq_read(queue, nullptr, 0));
    }
}

inline fi_addr_t to(Rdm &from, const Rdm &peer)
{
    return from.insert(peer.name);
}

inline ssize_t send_tagged(Rdm &a, fi_addr_t peer, const std::vector<std::byte> &bytes, std::uint64_t tag,
                           void *context, const Rdm &other)
{
    return again([&] { return fi_tsend(a.ep, bytes.data(), bytes.size(), nullptr, peer, tag, context); },
                 {a.cq, other.cq});
}

// Nobody leaves before the other has its answers.
inline void leave_together(int socket, fid_cq *cq)
{
    char done = 'x';
    REQUIRE(write(socket, &done, 1) == 1);
    while (recv(socket, &done, 1, MSG_DONTWAIT) != 1) {
        REQUIRE(errno == EAGAIN);
        REQUIRE(fi_cq_read(cq, nullptr, 0) <= 0);
    }
}

inline std::vector<std::byte> pattern(std::size_t length, std::uint64_t seed)
{
    std::vector<std::byte> bytes(length);
    for (std::size_t i = 0; i < length; ++i)
        bytes[i] = static_cast<std::byte>((seed + i) * 2654435761U >> 13);
    return bytes;
}

} // namespace vma::test
