// SPDX-License-Identifier: BSD-2-Clause
// How the endpoints of a test are made and connected.
#include "util/vma_lat/transport/fabric.hpp"

#include "util/vma_lat/clock.hpp"

#include <algorithm>
#include <cstring>

namespace vma::lat {

namespace {

constexpr std::size_t kMostReceives = 256;      // posted a channel
constexpr std::size_t kMostMemory = 64UL << 20; // for all of them, if that leaves two each

} // namespace

std::unique_ptr<Transport> make_fabric_transport(const Plan &plan, const Local &local)
{
    return std::make_unique<FabricTransport>(plan, local);
}

Failure FabricTransport::find(const Address &address, std::uint64_t flags, Info &info) const
{
    Wanted wanted;
    wanted.provider = plan_.provider;
    wanted.domain = local_.domain.empty() ? plan_.domain : local_.domain;
    wanted.type = connected() ? FI_EP_MSG : FI_EP_DGRAM;
    wanted.size = plan_.size;
    return find_endpoints(wanted, address, flags, info);
}

Failure FabricTransport::prepare(Places &mine)
{
    if (auto failure = load_libfabric())
        return failure;
    if (auto failure = waiter_.open(plan_.wait))
        return failure;
    channels_.resize(plan_.sockets);
    if (connected())
        return local_.server ? listen(mine) : Failure();
    return open_datagram(mine);
}

Failure FabricTransport::open_fabric()
{
    if (auto failure = open_object("fi_fabric", fabric_, [&](fid_fabric **place) {
            return libfabric().fabric(info_->fabric_attr, place, nullptr);
        }))
        return failure;
    if (!connected())
        return {};
    fi_eq_attr attributes{};
    attributes.wait_obj = FI_WAIT_UNSPEC;
    return open_object("fi_eq_open", events_,
                       [&](fid_eq **place) { return fi_eq_open(fabric_.get(), &attributes, place, nullptr); });
}

Failure FabricTransport::open_domain()
{
    if (auto failure = open_object("fi_domain", domain_, [&](fid_domain **place) {
            return fi_domain(fabric_.get(), info_.get(), place, nullptr);
        }))
        return failure;
    stride_ = (plan_.size + 63UL) & ~63UL;
    depth_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(
        std::min({kMostReceives, info_->rx_attr->size, kMostMemory / stride_ / plan_.sockets}), 2, kMostReceives));
    if (auto failure = register_memory())
        return failure;
    if (auto failure = open_queue(64, false, sent_))
        return failure;
    if (auto failure = open_queue(std::size_t{depth_} * plan_.sockets + 64, true, received_))
        return failure;
    if (connected())
        return {};
    fi_av_attr table{};
    table.type = FI_AV_TABLE;
    return open_object("fi_av_open", addresses_,
                       [&](fid_av **place) { return fi_av_open(domain_.get(), &table, place, nullptr); });
}

Failure FabricTransport::register_memory()
{
    const std::size_t count = std::size_t{depth_} * plan_.sockets;
    memory_ = std::make_unique<std::byte[]>((count + 1) * stride_);
    buffers_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        buffers_[i].channel = static_cast<std::uint32_t>(i / depth_);
        buffers_[i].place = memory_.get() + (i + 1) * stride_;
    }
    if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0)
        return {};
    if (auto failure = open_object("fi_mr_reg", region_, [&](fid_mr **place) {
            return fi_mr_reg(domain_.get(), memory_.get(), (count + 1) * stride_, FI_SEND | FI_RECV, 0, 1, 0, place,
                             nullptr);
        }))
        return failure;
    descriptor_ = fi_mr_desc(region_.get());
    return {};
}

Failure FabricTransport::open_queue(std::uint64_t size, bool receives, Fid<fid_cq> &queue)
{
    const bool by_fd = plan_.wait != Wait::kSpin && plan_.wait != Wait::kRecvfrom;
    fi_cq_attr attributes{};
    attributes.size = size;
    attributes.format = FI_CQ_FORMAT_MSG;
    attributes.wait_obj = !receives || plan_.wait == Wait::kSpin ? FI_WAIT_NONE : by_fd ? FI_WAIT_FD : FI_WAIT_UNSPEC;
    if (auto failure = open_object("fi_cq_open", queue, [&](fid_cq **place) {
            return fi_cq_open(domain_.get(), &attributes, place, nullptr);
        }))
        return failure;
    if (!receives || !by_fd)
        return {};
    int fd = -1;
    if (const int result = fi_control(&queue->fid, FI_GETWAIT, &fd); result != 0)
        return fabric_error("the completion queue's descriptor", result);
    return waiter_.add(fd);
}

Failure FabricTransport::open_endpoint(Channel &channel, fi_info *info)
{
    if (auto failure = open_object("fi_endpoint", channel.endpoint,
                                   [&](fid_ep **place) { return fi_endpoint(domain_.get(), info, place, nullptr); }))
        return failure;
    fid *other = connected() ? &events_->fid : &addresses_->fid;
    int result = fi_ep_bind(channel.endpoint.get(), other, 0);
    if (result == 0)
        result = fi_ep_bind(channel.endpoint.get(), &sent_->fid, FI_TRANSMIT);
    if (result == 0)
        result = fi_ep_bind(channel.endpoint.get(), &received_->fid, FI_RECV);
    if (result != 0)
        return fabric_error("fi_ep_bind", result);
    result = fi_enable(channel.endpoint.get());
    return result != 0 ? fabric_error("fi_enable", result) : Failure();
}

Failure FabricTransport::post_receives(std::uint32_t number)
{
    for (std::uint32_t i = 0; i < depth_; ++i) {
        const ssize_t result = post(buffers_[std::size_t{number} * depth_ + i]);
        if (result == -FI_EAGAIN && i > 0)
            break; // it takes no more; receive() posts them one by one
        if (result != 0)
            return fabric_error("fi_recv", result);
    }
    return {};
}

// ---- FI_EP_DGRAM ----------------------------------------------------------------------------------------------------

Failure FabricTransport::open_datagram(Places &mine)
{
    Address address = local_.self;
    address.set_port(0);
    if (auto failure = find(address, FI_SOURCE, info_))
        return failure;
    if (auto failure = open_fabric())
        return failure;
    if (auto failure = open_domain())
        return failure;
    for (std::uint32_t i = 0; i < channels_.size(); ++i) {
        if (auto failure = open_endpoint(channels_[i], info_.get()))
            return failure;
        if (auto failure = post_receives(i))
            return failure;
        Bytes name(kMaxAddress);
        std::size_t length = name.size();
        if (const int result = fi_getname(&channels_[i].endpoint->fid, name.data(), &length); result != 0)
            return fabric_error("fi_getname", result);
        name.resize(length);
        mine.addresses.push_back(std::move(name));
    }
    return {};
}

Failure FabricTransport::establish(const Places &theirs, const std::function<bool()> &given_up)
{
    const std::size_t named = connected() ? theirs.ports.size() : theirs.addresses.size();
    const bool needed = !connected() || !local_.server;
    if (needed && named != channels_.size())
        return error(kExitServer, "the other side named %zu addresses for %zu endpoints; the test ends", named,
                     channels_.size());
    for (std::uint32_t i = 0; i < channels_.size(); ++i) {
        Channel &channel = channels_[i];
        Failure failure;
        if (connected()) {
            failure = local_.server ? accept(channel, i, given_up) : connect(channel, i, theirs.ports[i], given_up);
        } else {
            Bytes name = theirs.addresses[i];
            const std::size_t family = sizeof(sa_family_t);
            sa_family_t said = 0;
            std::memcpy(&said, name.data(), std::min(name.size(), family));
            const std::size_t length = said == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
            const bool internet = info_->addr_format == FI_SOCKADDR_IN || info_->addr_format == FI_SOCKADDR_IN6;
            name.resize(kMaxAddress); // a provider reads as much as its format has
            if (internet && theirs.addresses[i].size() < length)
                return error(kExitServer, "the other side named an endpoint by no address; the test ends");
            if (fi_av_insert(addresses_.get(), name.data(), 1, &channel.peer, 0, nullptr) != 1)
                return error(kExitFailed, "fi_av_insert: the other side's address is not taken");
        }
        if (failure)
            return failure;
    }
    return {};
}

// ---- FI_EP_MSG ------------------------------------------------------------------------------------------------------

Failure FabricTransport::listen(Places &mine)
{
    Address address = local_.self;
    address.set_port(0);
    if (auto failure = find(address, FI_SOURCE, info_))
        return failure;
    if (auto failure = open_fabric())
        return failure;
    for (Channel &channel : channels_) {
        if (auto failure = open_object("fi_passive_ep", channel.listener, [&](fid_pep **place) {
                return fi_passive_ep(fabric_.get(), info_.get(), place, nullptr);
            }))
            return failure;
        int result = fi_pep_bind(channel.listener.get(), &events_->fid, 0);
        if (result == 0)
            result = fi_listen(channel.listener.get());
        if (result != 0)
            return fabric_error("fi_listen", result);
        Address name;
        std::size_t length = sizeof name.storage;
        result = fi_getname(&channel.listener->fid, &name.storage, &length);
        if (result != 0)
            return fabric_error("fi_getname", result);
        mine.ports.push_back(name.port());
    }
    return {};
}

Failure FabricTransport::await_event(std::uint32_t wanted, fi_eq_cm_entry &entry, const std::function<bool()> &given_up)
{
    for (;;) {
        std::uint32_t event = 0;
        const ssize_t got = fi_eq_sread(events_.get(), &event, &entry, sizeof entry, kTickMs, 0);
        if (got == -FI_EAVAIL) {
            fi_eq_err_entry why{};
            fi_eq_readerr(events_.get(), &why, 0);
            return fabric_error("connecting an endpoint", why.err);
        }
        if (got >= 0 && event == wanted)
            return {};
        if (got >= 0)
            return error(kExitServer, "connecting an endpoint: event %u came instead of %u; the test ends", event,
                         wanted);
        if (got != -FI_EAGAIN && got != -FI_EINTR)
            return fabric_error("fi_eq_sread", got);
        if (given_up())
            return error(kExitServer, "the other side went away before all endpoints were connected; the test ends");
    }
}

// One after another, as the client connects them: the n-th request is for the n-th endpoint.
Failure FabricTransport::accept(Channel &channel, std::uint32_t number, const std::function<bool()> &given_up)
{
    fi_eq_cm_entry entry{};
    if (auto failure = await_event(FI_CONNREQ, entry, given_up))
        return failure;
    const Info request(entry.info);
    if (!domain_) {
        info_.reset(libfabric().dupinfo(request.get()));
        if (auto failure = open_domain())
            return failure;
    }
    if (auto failure = open_endpoint(channel, request.get()))
        return failure;
    if (auto failure = post_receives(number))
        return failure;
    if (const int result = fi_accept(channel.endpoint.get(), nullptr, 0); result != 0)
        return fabric_error("fi_accept", result);
    return await_event(FI_CONNECTED, entry, given_up);
}

Failure FabricTransport::connect(Channel &channel, std::uint32_t number, std::uint16_t port,
                                 const std::function<bool()> &given_up)
{
    Address address = local_.host;
    address.set_port(port);
    Info info;
    if (auto failure = find(address, 0, info))
        return failure;
    if (!domain_) {
        info_.reset(libfabric().dupinfo(info.get()));
        if (auto failure = open_fabric())
            return failure;
        if (auto failure = open_domain())
            return failure;
    }
    if (auto failure = open_endpoint(channel, info.get()))
        return failure;
    if (auto failure = post_receives(number))
        return failure;
    if (const int result = fi_connect(channel.endpoint.get(), info->dest_addr, nullptr, 0); result != 0)
        return fabric_error("fi_connect", result);
    fi_eq_cm_entry entry{};
    return await_event(FI_CONNECTED, entry, given_up);
}

} // namespace vma::lat
