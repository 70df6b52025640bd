// SPDX-License-Identifier: BSD-2-Clause
// Passive endpoints: an address of librdmacm's port space, and what fi_listen makes of it.
#pragma once

#include <mutex>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "core/mutex.hpp"
#include "ofi/address.hpp"
#include "ofi/eq.hpp"
#include "ofi/info/info.hpp"
#include "verbs/manager.hpp"
#include "verbs/wire.hpp"

namespace vma::verbs {

struct PassiveEndpoint {
    fid_pep fid{}; // first
    Manager &manager;
    // Protected by the manager's mutex.
    ofi::Eq *eq = nullptr;
    ofi::InfoPtr info; // as it was opened: the model of its requests' infos
    IdPtr id;          // once it has an address
    CmHandler handler;
    ofi::Address address;
    int backlog = 128;
    bool listening = false;

    explicit PassiveEndpoint(Manager &owner) noexcept;

    // What ofi/passive_endpoint.hpp asks for; lock() is the manager's mutex.
    static constexpr std::size_t kMostData = kCmDataSize;
    static int close(fid_t fid);
    ofi::Fabric &fabric() const noexcept { return manager.fabric(); }
    std::unique_lock<core::Mutex> lock() const noexcept { return std::unique_lock(manager.mutex()); }
    int prepare() noexcept { return 0; }
    ofi::Address own_address() const noexcept { return address; }
    int get_option(int name, void *value, std::size_t *length) const noexcept;
    void set_backlog(int requests) noexcept { backlog = requests; }
    int listen() noexcept;
    int reject(fid_t handle, const void *param, std::size_t length) noexcept;

    // With the mutex held.
    int set_address(const ofi::Address &wanted) noexcept;
    void on_event(CmEvent &event) noexcept;
};

// The addresses of an id's connection or binding.
ofi::Address local_address(rdma_cm_id *id) noexcept;
ofi::Address peer_address(rdma_cm_id *id) noexcept;

int open_passive_endpoint(Manager &manager, fi_info *info, fid_pep **pep, void *context) noexcept;

} // namespace vma::verbs
