// SPDX-License-Identifier: BSD-2-Clause
// Passive endpoints: a port of the user's directory, and what fi_listen makes of it. A port may also be held without
// listening, and be handed on to an active endpoint (info->handle = &pep->fid).
#pragma once

#include <memory>
#include <mutex>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "core/mutex.hpp"
#include "local/cm/directory.hpp"
#include "local/cm/event_source.hpp"
#include "ofi/address.hpp"
#include "ofi/eq.hpp"
#include "ofi/info/info.hpp"

struct fi_vma_link;

namespace vma::local {

class ConnectionManager;
class PassiveEndpoint;

// The socket behind a port. Links that arrive while nobody listens are closed at once, which the peer takes as a
// refusal.
class Listener final : public EventSource
{
public:
    // nullptr with *error set, and a line logged, where the port cannot be had.
    static std::unique_ptr<Listener> open(ConnectionManager &manager, std::uint16_t port, int *error) noexcept;
    ~Listener();

    void on_ready(std::uint32_t events) noexcept override;
    // After a pause for want of descriptors.
    void resume() noexcept;

    std::uint16_t port() const noexcept { return name_.port(); }
    bool listening = false;

private:
    explicit Listener(ConnectionManager &manager) noexcept : manager_(manager) {}

    ConnectionManager &manager_;
    PortName name_;
    bool watched_ = false;
};

// A socket that listens for guests: links that come by it may ask for the passive endpoint that has it.
class GuestListener final : public EventSource
{
public:
    GuestListener(PassiveEndpoint &pep, core::UniqueFd socket, std::uint64_t id) noexcept
        : pep_(pep), socket_(std::move(socket)), id_(id)
    {
    }
    ~GuestListener();
    [[nodiscard]] bool start() noexcept;

    void on_ready(std::uint32_t events) noexcept override;
    std::uint64_t id() const noexcept { return id_; } // the program's

private:
    PassiveEndpoint &pep_;
    core::UniqueFd socket_;
    const std::uint64_t id_;
    bool watched_ = false;
};

class PassiveEndpoint
{
public:
    fid_pep fid{}; // first
    ConnectionManager &manager;
    ofi::Eq *eq = nullptr;
    ofi::InfoPtr info; // as it was opened: the model of its requests' infos
    ofi::Address address;
    std::unique_ptr<Listener> listener; // once the port is ours
    unsigned backlog;
    std::vector<std::unique_ptr<GuestListener>> guest_listeners; // FI_OPT_VMA_LINK
    unsigned waiting = 0;                                        // requests that the program has not answered

    explicit PassiveEndpoint(ConnectionManager &owner) noexcept;

    // What ofi/passive_endpoint.hpp asks for; lock() is the CM lock.
    static constexpr std::size_t kMostData = ofi::kCmDataSize;
    static int close(fid_t fid);
    ofi::Fabric &fabric() const noexcept;
    std::unique_lock<core::Mutex> lock() const noexcept;
    int prepare() noexcept { return 0; }
    ofi::Address own_address() const noexcept { return address; }
    int get_option(int name, void *value, std::size_t *length) const noexcept;
    int set_option(int name, const void *value, std::size_t length) noexcept;
    void set_backlog(int requests) noexcept;
    int listen() noexcept;
    int reject(fid_t handle, const void *param, std::size_t length) noexcept;

    // With the CM lock held.
    int set_address(const ofi::Address &wanted) noexcept;
    int add_link(const fi_vma_link &link) noexcept;
    int remove_link(std::uint64_t id) noexcept;
    bool accepts(const ofi::Address &destination) const noexcept;
    // The info of a FI_CONNREQ event. Empty without memory.
    ofi::InfoPtr request_info(const ofi::Address &own, const ofi::Address &peer, fid_t handle) const noexcept;
};

int open_passive_endpoint(ConnectionManager &manager, fi_info *info, fid_pep **pep, void *context) noexcept;

} // namespace vma::local
