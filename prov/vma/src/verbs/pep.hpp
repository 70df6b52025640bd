// SPDX-License-Identifier: BSD-2-Clause
// Passive endpoints: an address of librdmacm's port space, and what fi_listen makes of it.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "ofi/address.hpp"
#include "ofi/eq.hpp"
#include "ofi/info/info.hpp"
#include "verbs/manager.hpp"

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

    // With the mutex held.
    int set_address(const ofi::Address &wanted) noexcept;
    void on_event(CmEvent &event) noexcept;
};

// The addresses of an id's connection or binding.
ofi::Address local_address(rdma_cm_id *id) noexcept;
ofi::Address peer_address(rdma_cm_id *id) noexcept;

int open_passive_endpoint(Manager &manager, fi_info *info, fid_pep **pep, void *context) noexcept;

} // namespace vma::verbs
