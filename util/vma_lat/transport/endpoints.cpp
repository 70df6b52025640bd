// SPDX-License-Identifier: BSD-2-Clause
// A domain with its memory and queues. How endpoints get connected is endpoints_connect.cpp.
#include "util/vma_lat/transport/endpoints.hpp"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace vma::lat {

namespace {

constexpr std::uint32_t kSpareReceives = 4; // beside those that data use up: for control messages

std::size_t round_up(std::size_t value, std::size_t to)
{
    return (value + to - 1) / to * to;
}

} // namespace

Failure Endpoints::find(const Address &address, std::uint64_t flags, Info &info) const
{
    Wanted wanted;
    wanted.provider = shape_.provider;
    wanted.domain = shape_.domain;
    wanted.caps = FI_MSG | FI_RMA;
    wanted.order = shape_.ordered ? FI_ORDER_SAW : 0;
    wanted.size = shape_.size;
    return find_endpoints(wanted, address, flags, info);
}

Failure Endpoints::open_fabric(const Info &info)
{
    if (fabric_)
        return {};
    if (auto failure = open_object("fi_fabric", fabric_, [&](fid_fabric **place) {
            return libfabric().fabric(info->fabric_attr, place, nullptr);
        }))
        return failure;
    fi_eq_attr attributes{};
    attributes.wait_obj = FI_WAIT_UNSPEC;
    return open_object("fi_eq_open", events_,
                       [&](fid_eq **place) { return fi_eq_open(fabric_.get(), &attributes, place, nullptr); });
}

Failure Endpoints::open_domain(fi_info *info)
{
    if (domain_)
        return {};
    if (shape_.operation == Operation::kWriteImm && info->domain_attr->cq_data_size < sizeof(std::uint32_t))
        return error(kExitFailed,
                     "provider %s carries %zu bytes of immediate data, and write-imm needs 4: leave it out of "
                     "--operations",
                     shape_.provider.c_str(), info->domain_attr->cq_data_size);
    if (auto failure = open_object("fi_domain", domain_,
                                   [&](fid_domain **place) { return fi_domain(fabric_.get(), info, place, nullptr); }))
        return failure;
    takes_receives_ = ((info->mode | info->rx_attr->mode) & FI_RX_CQ_DATA) != 0;
    choose_slots(*info);
    if (auto failure = register_memory(*info))
        return failure;
    return open_queues();
}

void Endpoints::choose_slots(const fi_info &info)
{
    const bool messages = shape_.operation == Operation::kSend;
    stride_ = round_up(shape_.size, 64);
    receive_stride_ = messages ? std::max(stride_, round_up(kControlBytes, 64)) : round_up(kControlBytes, 64);
    const std::uint32_t spare = messages ? 0 : kSpareReceives;
    const std::size_t per_slot = (stride_ + std::max(stride_, receive_stride_)) * shape_.connections;
    std::size_t most = std::min<std::size_t>(shape_.window, kStepMemory / per_slot);
    most = std::min(most, info.tx_attr->size > kControls ? info.tx_attr->size - kControls : 1);
    most = std::min(most, info.rx_attr->size > spare ? info.rx_attr->size - spare : 1);
    slots_ = static_cast<std::uint32_t>(std::max<std::size_t>(most, 1));
    receives_ = slots_ + spare;
    each_ = slots_ * stride_ + receives_ * receive_stride_ + kControls * round_up(kControlBytes, 64);
}

Failure Endpoints::register_memory(const fi_info &info)
{
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t own = round_up(each_ * shape_.connections, page);
    const std::size_t theirs = round_up(stride_ * slots_ * shape_.connections, page);
    private_.reset(static_cast<std::byte *>(std::aligned_alloc(page, own)));
    exposed_.reset(static_cast<std::byte *>(std::aligned_alloc(page, theirs)));
    if (!private_ || !exposed_)
        return error(kExitFailed, "there is no memory for %zu bytes of windows: use a smaller --window", own + theirs);
    std::memset(private_.get(), 0, own);
    std::memset(exposed_.get(), 0, theirs);
    const int mode = info.domain_attr->mr_mode;
    virtual_ = (mode & FI_MR_VIRT_ADDR) != 0;
    constexpr std::uint64_t kExposedKey = 1; // where keys are the program's to choose
    const auto enroll = [&](std::byte *memory, std::size_t length, std::uint64_t access, std::uint64_t key,
                            Fid<fid_mr> &region) {
        return open_object("fi_mr_reg", region, [&](fid_mr **place) {
            return fi_mr_reg(domain_.get(), memory, length, access, 0, (mode & FI_MR_PROV_KEY) != 0 ? 0 : key, 0, place,
                             nullptr);
        });
    };
    if (auto failure = enroll(exposed_.get(), theirs, FI_REMOTE_READ | FI_REMOTE_WRITE, kExposedKey, exposed_region_))
        return failure;
    if (fi_mr_key(exposed_region_.get()) == FI_KEY_NOTAVAIL)
        return error(kExitFailed, "provider %s gives a key of no 8 bytes, which vma_lat does not use",
                     shape_.provider.c_str());
    if ((mode & FI_MR_LOCAL) == 0)
        return {};
    if (auto failure =
            enroll(private_.get(), own, FI_SEND | FI_RECV | FI_READ | FI_WRITE, kExposedKey + 1, private_region_))
        return failure;
    descriptor_ = fi_mr_desc(private_region_.get());
    return {};
}

Failure Endpoints::open_queues()
{
    const std::uint32_t count = shape_.progress.shared ? 1 : shape_.connections;
    fi_cq_attr attributes{};
    // Operations, control messages, receives, and what the peer's operations tell without a receive.
    attributes.size = (std::size_t{slots_} + kControls + receives_ + kMaxWindow) * (shape_.connections / count);
    attributes.format = FI_CQ_FORMAT_DATA;
    attributes.wait_obj = shape_.progress.wait == Model::kPoll ? FI_WAIT_NONE : FI_WAIT_FD;
    queues_.resize(count);
    for (Fid<fid_cq> &queue : queues_) {
        if (auto failure = open_object("fi_cq_open", queue, [&](fid_cq **place) {
                return fi_cq_open(domain_.get(), &attributes, place, nullptr);
            }))
            return failure;
    }
    return {};
}

std::string Endpoints::name(std::uint32_t connection) const
{
    return connection < shape_.names.size() ? shape_.names[connection] : format("connection %u", connection);
}

std::byte *Endpoints::at(std::uint32_t connection, std::size_t offset) const
{
    return private_.get() + connection * each_ + offset;
}

std::span<std::byte> Endpoints::source(std::uint32_t connection, std::uint32_t slot) const
{
    return {at(connection, slot * stride_), shape_.size};
}

std::span<std::byte> Endpoints::received(std::uint32_t connection, std::uint32_t slot) const
{
    return {at(connection, slots_ * stride_ + slot * receive_stride_), receive_stride_};
}

std::span<std::byte> Endpoints::control(std::uint32_t connection, std::uint32_t slot) const
{
    return {at(connection, slots_ * stride_ + receives_ * receive_stride_ + slot * round_up(kControlBytes, 64)),
            kControlBytes};
}

std::span<std::byte> Endpoints::exposed(std::uint32_t connection, std::uint32_t slot) const
{
    return {exposed_.get() + (std::size_t{connection} * slots_ + slot) * stride_, shape_.size};
}

Region Endpoints::region(std::uint32_t connection) const
{
    const std::size_t offset = std::size_t{connection} * slots_ * stride_;
    return {virtual_ ? reinterpret_cast<std::uintptr_t>(exposed_.get() + offset) : offset,
            fi_mr_key(exposed_region_.get()), slots_};
}

ssize_t Endpoints::post_receive(Posted &receive) const
{
    const auto place = received(receive.connection, receive.slot);
    return fi_recv(endpoint(receive.connection), place.data(), place.size(), descriptor_, FI_ADDR_UNSPEC,
                   &receive.context);
}

} // namespace vma::lat
