// SPDX-License-Identifier: BSD-2-Clause
// Protection domains, memory regions, device memory and address handles of the simulated NIC.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>

namespace vma::sim {
namespace {

constexpr unsigned kRemoteWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

bool access_fits(unsigned access)
{
    return (access & kRemoteWrites) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

Mr *add(ibv_pd *pd, void *addr, std::size_t length, unsigned access)
{
    World &w = world();
    auto *made = new Mr;
    made->context = pd->context;
    made->pd = pd;
    made->addr = addr;
    made->length = length;
    made->access = access;
    // The low byte is the user's part of a key, as on real devices; neighbours do not have neighbouring keys.
    made->lkey = made->rkey = w.next_key;
    made->handle = w.next_key >> 8;
    w.next_key += 0x1300;
    w.mrs[made->lkey] = made;
    ++of(pd)->users;
    return made;
}

std::byte *bytes(const ibv_pd &pd, std::uint32_t key, std::uint64_t addr, std::uint64_t length, unsigned access,
                 bool *from_dm)
{
    const auto found = world().mrs.find(key);
    if (found == world().mrs.end())
        return nullptr;
    const Mr &mr = *found->second;
    if (mr.pd != &pd || (mr.access & access) != access || addr < mr.iova || length > mr.length ||
        addr - mr.iova > mr.length - length)
        return nullptr;
    if (from_dm != nullptr && mr.dm != nullptr)
        *from_dm = true;
    return mr.start + (addr - mr.iova);
}

int to_dm(ibv_dm *dm, std::uint64_t offset, const void *from, std::size_t length)
{
    const std::lock_guard guard(world().mutex);
    auto &all = of(dm)->bytes;
    if (length > all.size() || offset > all.size() - length)
        return EFAULT;
    std::memcpy(all.data() + offset, from, length);
    return 0;
}

int from_dm(void *to, ibv_dm *dm, std::uint64_t offset, std::size_t length)
{
    const std::lock_guard guard(world().mutex);
    const auto &all = of(dm)->bytes;
    if (length > all.size() || offset > all.size() - length)
        return EFAULT;
    std::memcpy(to, all.data() + offset, length);
    return 0;
}

} // namespace

std::byte *local_bytes(const Pd &pd, const ibv_sge &sge, unsigned access, bool *from_dm)
{
    return bytes(pd, sge.lkey, sge.addr, sge.length, access, from_dm);
}

std::byte *remote_bytes(const Qp &qp, std::uint32_t rkey, std::uint64_t addr, std::uint64_t length, unsigned access)
{
    return bytes(*qp.pd, rkey, addr, length, access, nullptr);
}

ibv_dm *alloc_dm(ibv_context *context, ibv_alloc_dm_attr *attr)
{
    const std::lock_guard guard(world().mutex);
    Device &device = nic(context);
    if (const int error = take_fault("alloc_dm"))
        return null_errno(error);
    if (device.removed)
        return null_errno(EIO);
    if (attr->comp_mask != 0 || attr->length == 0 || attr->log_align_req > 12)
        return null_errno(EINVAL);
    if (device.config.dm_size == 0)
        return null_errno(EOPNOTSUPP);
    if (attr->length > device.config.dm_size - device.dm_used)
        return null_errno(ENOMEM);
    auto *made = new Dm;
    static_cast<ibv_dm &>(*made) = {};
    made->context = context;
    made->memcpy_to_dm = to_dm;
    made->memcpy_from_dm = from_dm;
    made->bytes.resize(attr->length);
    device.dm_used += attr->length;
    world().dms.insert(made);
    return made;
}

int free_dm(ibv_dm *dm)
{
    const std::lock_guard guard(world().mutex);
    Dm *freed = of(dm);
    if (freed->users != 0)
        return EBUSY;
    nic(dm->context).dm_used -= freed->bytes.size();
    world().dms.erase(freed);
    delete freed;
    return 0;
}

ibv_mr *reg_dm_mr(ibv_pd *pd, ibv_dm *dm, std::uint64_t offset, std::size_t length, unsigned access)
{
    const std::lock_guard guard(world().mutex);
    if (const int error = take_fault("reg_dm_mr"))
        return null_errno(error);
    if (nic(pd->context).removed)
        return null_errno(EIO);
    Dm *memory = of(dm);
    const bool inside = length <= memory->bytes.size() && offset <= memory->bytes.size() - length;
    if (&nic(pd->context) != &nic(dm->context) || (access & IBV_ACCESS_ZERO_BASED) == 0 || !access_fits(access) ||
        !inside)
        return null_errno(EINVAL);
    Mr *made = add(pd, nullptr, length, access);
    made->start = memory->bytes.data() + offset;
    made->dm = memory;
    ++memory->users;
    return made;
}

namespace calls {

ibv_pd *alloc_pd(ibv_context *context)
{
    const std::lock_guard guard(world().mutex);
    if (nic(context).removed)
        return null_errno(EIO);
    auto *made = new Pd;
    made->context = context;
    made->handle = world().next_key++;
    world().pds.insert(made);
    return made;
}

int dealloc_pd(ibv_pd *pd)
{
    const std::lock_guard guard(world().mutex);
    if (of(pd)->users != 0)
        return EBUSY;
    world().pds.erase(of(pd));
    delete of(pd);
    return 0;
}

ibv_mr *reg_mr(ibv_pd *pd, void *addr, std::size_t length, int access)
{
    const std::lock_guard guard(world().mutex);
    const Device &device = nic(pd->context);
    if (device.removed)
        return null_errno(EIO);
    const auto start = reinterpret_cast<std::uintptr_t>(addr);
    if (!access_fits(static_cast<unsigned>(access)) || length == 0 || start + length < start)
        return null_errno(EINVAL);
    if (world().mrs.size() >= static_cast<std::size_t>(device.config.max_mr))
        return null_errno(ENOMEM);
    Mr *made = add(pd, addr, length, static_cast<unsigned>(access));
    made->start = static_cast<std::byte *>(addr);
    made->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : start;
    return made;
}

int dereg_mr(ibv_mr *mr)
{
    const std::lock_guard guard(world().mutex);
    Mr *gone = of(mr);
    world().mrs.erase(gone->lkey);
    --of(gone->pd)->users;
    if (gone->dm != nullptr)
        --gone->dm->users;
    delete gone;
    return 0;
}

ibv_ah *create_ah(ibv_pd *pd, ibv_ah_attr *attr)
{
    const std::lock_guard guard(world().mutex);
    const Device &device = nic(pd->context);
    if (device.removed)
        return null_errno(EIO);
    // RoCE has no other way to name a port than its GID.
    if (attr->port_num != 1 || attr->is_global == 0 || attr->grh.sgid_index >= device.gids.size())
        return null_errno(EINVAL);
    auto *made = new Ah;
    made->context = pd->context;
    made->pd = pd;
    made->attr = *attr;
    ++of(pd)->users;
    world().ahs.insert(made);
    return made;
}

int destroy_ah(ibv_ah *ah)
{
    const std::lock_guard guard(world().mutex);
    --of(ah->pd)->users;
    world().ahs.erase(of(ah));
    delete of(ah);
    return 0;
}

} // namespace calls
} // namespace vma::sim
