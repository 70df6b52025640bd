// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/registrations.hpp"

#include <errno.h>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::sock {

[[VMA_TABLE]] constinit EngineTables g_engine_tables;

namespace {

template <typename Take> bool each_region(const void *address, std::size_t length, Take take)
{
    bool any = false;
    for (Region &r : g_engine_tables.regions) {
        if (r.mr == nullptr || r.address != address || r.length != length)
            continue;
        any = true;
        take(r);
    }
    return any;
}

void drop(Region &r)
{
    fi_close(&r.mr->fid);
    r = Region{};
}

Region *free_place()
{
    for (Region &r : g_engine_tables.regions)
        if (r.mr == nullptr)
            return &r;
    return nullptr;
}

// 0, or a positive errno; EOPNOTSUPP: the device has no keys.
int register_on(const Device &d, void *address, std::size_t length)
{
    Region *const place = free_place();
    if (place == nullptr)
        return ENOMEM;
    fid_mr *mr = nullptr;
    const int result = fi_mr_reg(d.domain, address, length, FI_SEND | FI_RECV, 0, 0, 0, &mr, nullptr);
    if (result != 0)
        return -result;
    std::uint32_t key = 0;
    if (fi_control(&mr->fid, static_cast<int>(FI_VMA_LOCAL_KEY), &key) != 0) {
        fi_close(&mr->fid);
        return EOPNOTSUPP;
    }
    *place = {address, length, &d, mr, key, 1};
    return 0;
}

int register_on_all(void *address, std::size_t length)
{
    int error = 0;
    bool any = false;
    each_remote_device([&](const Device &d) {
        const int result = error == 0 && !d.failed ? register_on(d, address, length) : EOPNOTSUPP;
        any |= result == 0;
        if (result != 0 && result != EOPNOTSUPP)
            error = result;
    });
    if (error != 0)
        each_region(address, length, drop);
    return error != 0 ? error : any ? 0 : EOPNOTSUPP;
}

} // namespace

int register_memory(void *address, std::size_t length, std::uint32_t &key)
{
    const LockGuard guard(g_offload.lock);
    if (!each_region(address, length, [](Region &r) { ++r.users; }))
        if (const int error = register_on_all(address, length); error != 0)
            return error;
    const Region *first = nullptr;
    each_region(address, length, [&first](const Region &r) { first = first == nullptr ? &r : first; });
    key = first->key;
    return 0;
}

int deregister_memory(void *address, std::size_t length)
{
    const LockGuard guard(g_offload.lock);
    const bool any = each_region(address, length, [](Region &r) {
        if (--r.users == 0)
            drop(r);
    });
    return any ? 0 : ENOENT;
}

void forget_registrations(const Device &d)
{
    for (Region &r : g_engine_tables.regions)
        if (r.mr != nullptr && r.device == &d)
            drop(r);
}

void registrations_after_fork_in_child()
{
    for (Region &r : g_engine_tables.regions)
        r = Region{};
}

} // namespace vma::sock
