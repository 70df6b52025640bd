// SPDX-License-Identifier: BSD-2-Clause
#include "contrib/bench/fi_pair.hpp"

#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace vma::bench {

namespace {

constexpr std::uint32_t kApi = FI_VERSION(1, 17);
constexpr const char *kNode = "127.0.0.1";

[[noreturn]] void fail(const char *what, long error)
{
    std::fprintf(stderr, "fi_bench: %s: %s\n", what, fi_strerror(static_cast<int>(error < 0 ? -error : error)));
    std::exit(1);
}

void check(const char *what, long result)
{
    if (result < 0)
        fail(what, result);
}

Info find(const std::string &provider, fi_ep_type type, const char *node, const char *service, std::uint64_t flags)
{
    const Info hints(fi_allocinfo());
    const bool datagrams = type == FI_EP_DGRAM;
    hints->caps = datagrams ? FI_MSG : FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = type;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = datagrams ? 0 : FI_ORDER_SAW | FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    fi_info *found = nullptr;
    const int result = fi_getinfo(kApi, node, service, flags, hints.get(), &found);
    if (result != 0 && result != -FI_ENODATA)
        fail("fi_getinfo", result);
    return Info(found);
}

// Opens an object whose call takes the place for its pointer last but one.
template <typename T, typename Open> Fid<T> open(const char *what, Open &&call)
{
    T *object = nullptr;
    check(what, call(&object));
    return Fid<T>(object);
}

} // namespace

void pin(int cpu)
{
    if (cpu < 0)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        fail("sched_setaffinity", errno);
}

bool Pair::has(const std::string &provider, Kind kind)
{
    return kind == Kind::messages || find(provider, FI_EP_DGRAM, nullptr, nullptr, 0);
}

Pair::Pair(const std::string &provider, Kind kind, bool client, int channel)
    : channel_(channel), memory_(std::make_unique<std::byte[]>(3 * kBuffer))
{
    if (kind == Kind::datagrams)
        info_ = find(provider, FI_EP_DGRAM, nullptr, nullptr, 0);
    else if (info_ = find(provider, FI_EP_MSG, kNode, "0", client ? 0 : FI_SOURCE); !info_)
        info_ = find(provider, FI_EP_RDM, nullptr, nullptr, 0);
    if (!info_)
        fail(("provider " + provider + " with FI_EP_MSG or FI_EP_RDM, and RMA").c_str(), FI_ENODATA);
    if (info_->ep_attr->type != FI_EP_MSG) {
        connectionless();
    } else if (client) {
        connect_to_server(provider);
    } else {
        accept_client();
    }
    exchange_keys();
}

void Pair::open_fabric()
{
    fabric_ = open<fid_fabric>("fi_fabric",
                               [&](fid_fabric **place) { return fi_fabric(info_->fabric_attr, place, nullptr); });
    fi_eq_attr attributes{};
    attributes.wait_obj = FI_WAIT_UNSPEC;
    events_ = open<fid_eq>("fi_eq_open",
                           [&](fid_eq **place) { return fi_eq_open(fabric_.get(), &attributes, place, nullptr); });
}

void Pair::open_domain()
{
    domain_ = open<fid_domain>(
        "fi_domain", [&](fid_domain **place) { return fi_domain(fabric_.get(), info_.get(), place, nullptr); });
    register_memory();
}

void Pair::register_memory()
{
    // Nobody writes to it then, and a provider may have no memory registration at all.
    if (info_->ep_attr->type == FI_EP_DGRAM && (info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0)
        return;
    const std::uint64_t access = FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE;
    region_ = open<fid_mr>("fi_mr_reg", [&](fid_mr **place) {
        return fi_mr_reg(domain_.get(), memory_.get(), 3 * kBuffer, access, 0, 1, 0, place, nullptr);
    });
    descriptor_ = fi_mr_desc(region_.get());
}

void Pair::open_endpoint(fi_info *info)
{
    fi_cq_attr attributes{};
    attributes.format = FI_CQ_FORMAT_CONTEXT;
    attributes.wait_obj = FI_WAIT_NONE;
    for (auto *queue : {&sent_, &received_})
        *queue = open<fid_cq>("fi_cq_open",
                              [&](fid_cq **place) { return fi_cq_open(domain_.get(), &attributes, place, nullptr); });
    endpoint_ =
        open<fid_ep>("fi_endpoint", [&](fid_ep **place) { return fi_endpoint(domain_.get(), info, place, nullptr); });
    check("fi_ep_bind", fi_ep_bind(endpoint_.get(), &sent_->fid, FI_TRANSMIT));
    check("fi_ep_bind", fi_ep_bind(endpoint_.get(), &received_->fid, FI_RECV));
    if (info->ep_attr->type == FI_EP_MSG) {
        check("fi_ep_bind", fi_ep_bind(endpoint_.get(), &events_->fid, 0));
    } else {
        fi_av_attr table{};
        addresses_ = open<fid_av>("fi_av_open",
                                  [&](fid_av **place) { return fi_av_open(domain_.get(), &table, place, nullptr); });
        check("fi_ep_bind", fi_ep_bind(endpoint_.get(), &addresses_->fid, 0));
    }
}

// ---- FI_EP_MSG: connect ---------------------------------------------------------------------------------------------

void Pair::accept_client()
{
    open_fabric();
    const auto listener = open<fid_pep>(
        "fi_passive_ep", [&](fid_pep **place) { return fi_passive_ep(fabric_.get(), info_.get(), place, nullptr); });
    check("fi_pep_bind", fi_pep_bind(listener.get(), &events_->fid, 0));
    check("fi_listen", fi_listen(listener.get()));
    sockaddr_in name{};
    std::size_t length = sizeof name;
    check("fi_getname", fi_getname(&listener->fid, &name, &length));
    tell(&name.sin_port, sizeof name.sin_port);

    fi_eq_cm_entry entry{};
    std::uint32_t event = 0;
    ssize_t got = 0;
    while ((got = fi_eq_sread(events_.get(), &event, &entry, sizeof entry, 100, 0)) == -FI_EAGAIN) {
    }
    check("fi_eq_sread", got);
    if (event != FI_CONNREQ)
        fail("a connection request", FI_EOTHER);
    info_.reset(entry.info);
    open_domain();
    open_endpoint(info_.get());
    check("fi_accept", fi_accept(endpoint_.get(), nullptr, 0));
    wait_connected();
}

void Pair::connect_to_server(const std::string &provider)
{
    in_port_t port = 0;
    hear(&port, sizeof port);
    info_ = find(provider, FI_EP_MSG, kNode, std::to_string(ntohs(port)).c_str(), 0);
    if (!info_)
        fail("fi_getinfo for the server's port", FI_ENODATA);
    open_fabric();
    open_domain();
    open_endpoint(info_.get());
    check("fi_connect", fi_connect(endpoint_.get(), info_->dest_addr, nullptr, 0));
    wait_connected();
}

void Pair::wait_connected()
{
    fi_eq_cm_entry entry{};
    std::uint32_t event = 0;
    ssize_t got = 0;
    while ((got = fi_eq_sread(events_.get(), &event, &entry, sizeof entry, 100, 0)) == -FI_EAGAIN) {
    }
    check("connecting", got);
    if (event != FI_CONNECTED)
        fail("being connected", FI_EOTHER);
}

// ---- FI_EP_RDM, FI_EP_DGRAM: addresses ------------------------------------------------------------------------------

void Pair::connectionless()
{
    open_fabric();
    open_domain();
    open_endpoint(info_.get());
    check("fi_enable", fi_enable(endpoint_.get()));
    char mine[256] = {};
    char other[256] = {};
    std::size_t length = sizeof mine;
    check("fi_getname", fi_getname(&endpoint_->fid, mine, &length));
    tell(mine, sizeof mine);
    hear(other, sizeof other);
    if (fi_av_insert(addresses_.get(), other, 1, &peer_, 0, nullptr) != 1)
        fail("fi_av_insert", FI_EINVAL);
}

void Pair::exchange_keys()
{
    auto *target = memory_.get() + 2 * kBuffer;
    const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    const std::uint64_t mine[2] = {region_ ? fi_mr_key(region_.get()) : 0,
                                   by_address ? reinterpret_cast<std::uintptr_t>(target) : 2 * kBuffer};
    std::uint64_t other[2] = {};
    tell(mine, sizeof mine);
    hear(other, sizeof other);
    remote_key_ = other[0];
    remote_address_ = other[1];
    post_receive();
    barrier();
}

// ---- data -----------------------------------------------------------------------------------------------------------

void Pair::progress()
{
    fi_cq_entry entries[16];
    for (auto [queue, sign] : {std::pair{sent_.get(), -1}, std::pair{received_.get(), 1}}) {
        const ssize_t got = fi_cq_read(queue, entries, std::size(entries));
        if (got == -FI_EAGAIN)
            continue;
        if (got < 0) {
            fi_cq_err_entry error{};
            fi_cq_readerr(queue, &error, 0);
            fail("an operation", error.err != 0 ? error.err : -got);
        }
        (sign < 0 ? under_way_ : arrived_) += sign * static_cast<int>(got);
    }
}

void Pair::post_receive()
{
    ssize_t result = 0;
    while ((result = fi_recv(endpoint_.get(), memory_.get() + kBuffer, kBuffer, descriptor_, FI_ADDR_UNSPEC,
                             next_context())) == -FI_EAGAIN)
        progress();
    check("fi_recv", result);
}

void Pair::deepen(int receives)
{
    for (int i = 0; i < receives; ++i)
        post_receive();
}

void Pair::receive()
{
    while (arrived_ == 0)
        progress();
    --arrived_;
    post_receive();
}

void Pair::send(std::size_t size)
{
    ssize_t result = 0;
    if (size <= info_->tx_attr->inject_size) {
        while ((result = fi_inject(endpoint_.get(), memory_.get(), size, peer_)) == -FI_EAGAIN)
            progress();
        return check("fi_inject", result);
    }
    while ((result = fi_send(endpoint_.get(), memory_.get(), size, descriptor_, peer_, next_context())) == -FI_EAGAIN)
        progress();
    check("fi_send", result);
    ++under_way_;
    while (under_way_ > 0)
        progress();
}

void Pair::write(std::size_t size, int window)
{
    while (under_way_ >= window)
        progress();
    ssize_t result = 0;
    while ((result = fi_write(endpoint_.get(), memory_.get(), size, descriptor_, peer_, remote_address_, remote_key_,
                              next_context())) == -FI_EAGAIN)
        progress();
    check("fi_write", result);
    ++under_way_;
}

void Pair::finish_writes()
{
    while (under_way_ > 0)
        progress();
}

// ---- the channel beside ---------------------------------------------------------------------------------------------

void Pair::tell(const void *data, std::size_t size) const
{
    if (::send(channel_, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
        fail("telling the other side", errno);
}

// Goes on making progress: the other side may need it before it can answer.
void Pair::hear(void *data, std::size_t size)
{
    auto *place = static_cast<char *>(data);
    while (size > 0) {
        const ssize_t got = recv(channel_, place, size, MSG_DONTWAIT);
        if (got == 0)
            fail("the other side", FI_ECONNRESET);
        if (got < 0 && errno != EAGAIN)
            fail("hearing the other side", errno);
        if (got > 0) {
            place += got;
            size -= static_cast<std::size_t>(got);
        } else if (endpoint_) {
            progress();
        } else {
            sched_yield();
        }
    }
}

void Pair::barrier()
{
    char byte = 1;
    tell(&byte, 1);
    hear(&byte, 1);
}

} // namespace vma::bench
