// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/av.hpp"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <netdb.h>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "core/quoted.hpp"
#include "ofi/domain.hpp"
#include "ofi/ops.hpp"

namespace vma::ofi {
bool Av::address_of(fi_addr_t place, Address &address) const noexcept
{
    const std::lock_guard guard(mutex_);
    const Entry *entry = find(place);
    if (entry == nullptr || (entry->generation.load(std::memory_order_relaxed) & 1) == 0)
        return false;
    address = entry->address;
    return true;
}

// Of an address that was inserted more than once, the oldest.
fi_addr_t Av::place_of(const Address &address) const noexcept
{
    const std::lock_guard guard(mutex_);
    const auto found = by_address_.find(address.key());
    return found != by_address_.end() ? find(found->second)->user_id : FI_ADDR_NOTAVAIL;
}

int Av::insert(const Address &address, fi_addr_t &place, const fi_addr_t *user_id) noexcept
{
    const std::lock_guard guard(mutex_);
    if (!free_.empty()) {
        place = free_.back();
        free_.pop_back();
    } else {
        if (used_ == kChunk * kChunks)
            return FI_ENOSPC;
        if (used_ % kChunk == 0) {
            std::unique_ptr<Entry[]> chunk(new (std::nothrow) Entry[kChunk]);
            if (!chunk)
                return FI_ENOMEM;
            chunks_[used_ / kChunk].store(chunk.get(), std::memory_order_release);
            owned_.push_back(std::move(chunk));
        }
        place = used_++;
    }
    Entry &entry = const_cast<Entry &>(*find(place));
    entry.address = address;
    entry.user_id = user_id != nullptr ? *user_id : user_ids ? FI_ADDR_NOTAVAIL : place;
    by_address_.emplace(address.key(), place);
    entry.generation.fetch_add(1, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_release);
    return 0;
}

int Av::remove(fi_addr_t place) noexcept
{
    const std::lock_guard guard(mutex_);
    Entry *entry = const_cast<Entry *>(find(place));
    if (entry == nullptr || (entry->generation.load(std::memory_order_relaxed) & 1) == 0)
        return -FI_EINVAL;
    const auto [first, last] = by_address_.equal_range(entry->address.key());
    for (auto at = first; at != last; ++at) {
        if (at->second == place) {
            by_address_.erase(at);
            break;
        }
    }
    entry->generation.fetch_add(1, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_release);
    free_.push_back(place);
    return 0;
}

// The address stays, and so does the place's generation: what was found out of it holds on.
int Av::set_user_id(fi_addr_t place, fi_addr_t user_id) noexcept
{
    const std::lock_guard guard(mutex_);
    Entry *entry = const_cast<Entry *>(find(place));
    if (!user_ids || entry == nullptr || (entry->generation.load(std::memory_order_relaxed) & 1) == 0)
        return -FI_EINVAL;
    entry->user_id = user_id;
    generation.fetch_add(1, std::memory_order_release);
    return 0;
}

void Av::watch(const Watcher &watcher) noexcept
{
    const std::lock_guard guard(watchers_mutex_);
    watchers_.push_back(watcher);
}

void Av::unwatch(const Watcher &watcher) noexcept
{
    const std::lock_guard guard(watchers_mutex_);
    std::erase(watchers_, watcher);
}

void Av::tell_watchers() noexcept
{
    const std::lock_guard guard(watchers_mutex_);
    for (const Watcher &watcher : watchers_)
        watcher.named(watcher.object);
}

namespace {

constexpr std::uint64_t kInsertFlags = FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID;

int close_av(fid_t fid)
{
    Av &av = av_of(fid);
    if (av.domain.fabric.orphaned())
        return 0;
    if (av.refs.load(std::memory_order_acquire) != 0)
        return -FI_EBUSY;
    av.domain.refs.fetch_sub(1, std::memory_order_release);
    delete &av;
    return 0;
}

// Where the answers of one call go.
struct Answers {
    fi_addr_t *places; // or nullptr
    int *errors;       // with FI_SYNC_ERR, else nullptr
    bool user_ids;     // the places are the program's numbers, before they are answers
    int inserted = 0;

    void add(std::size_t index, int error, fi_addr_t place)
    {
        if (places != nullptr)
            places[index] = error == 0 ? place : FI_ADDR_NOTAVAIL;
        if (errors != nullptr)
            errors[index] = error;
        inserted += error == 0 ? 1 : 0;
    }
};

int start(const Av &av, std::uint64_t flags, void *context, fi_addr_t *places, Answers &answers)
{
    if ((flags & ~kInsertFlags) != 0)
        return -FI_EBADFLAGS;
    if ((flags & FI_SYNC_ERR) != 0 && context == nullptr)
        return -FI_EINVAL;
    // Where the vector as a whole has such numbers, fi_av_set_user_id() tells them.
    const bool user_ids = (flags & FI_AV_USER_ID) != 0;
    if (user_ids && (places == nullptr || av.user_ids))
        return -FI_EINVAL;
    answers = {places, (flags & FI_SYNC_ERR) != 0 ? static_cast<int *>(context) : nullptr, user_ids};
    return 0;
}

// The next of an array of socket addresses, or of pointers to strings; false, behind it, if it is none.
bool take_next(const AddressFormat &format, const std::byte *&from, Address &address)
{
    if (format.is_text()) {
        const char *text;
        std::memcpy(&text, from, sizeof text);
        from += sizeof text;
        return format.read_whole(text, address);
    }
    sa_family_t family;
    std::memcpy(&family, from, sizeof family);
    const std::size_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const bool fits = address.assign(from, length);
    // One that is none of ours tells no length: the first's family is that of all.
    from += length;
    return fits;
}

int insert_addresses(fid_av *fid, const void *addresses, std::size_t count, fi_addr_t *places, std::uint64_t flags,
                     void *context)
{
    Av &av = av_of(&fid->fid);
    Answers answers{};
    if (const int error = start(av, flags, context, places, answers))
        return error;
    if (addresses == nullptr && count != 0)
        return -FI_EINVAL;
    const auto *from = static_cast<const std::byte *>(addresses);
    for (std::size_t i = 0; i < count; ++i) {
        Address address;
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        const bool fits = take_next(av.domain.addresses, from, address);
        const int error = fits ? av.insert(address, place, answers.user_ids ? &places[i] : nullptr) : FI_EINVAL;
        answers.add(i, error, place);
    }
    av.tell_watchers();
    return answers.inserted;
}

int resolve(const char *node, const char *service, int family, Address &address)
{
    addrinfo wanted{};
    wanted.ai_family = family;
    wanted.ai_socktype = SOCK_DGRAM;
    addrinfo *list = nullptr;
    if (::getaddrinfo(node, service, &wanted, &list) != 0)
        return FI_ENODATA;
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
    return address.assign(list->ai_addr, list->ai_addrlen) ? 0 : FI_ENODATA;
}

// A string that names host and port, in whichever format the vector has.
int resolve_string(const char *node, Address &address)
{
    AddressParts parts;
    if (const char *wrong = split_address_string(node, parts)) {
        VMA_WARN(av, "the address %s is refused: %s", core::quoted(node).c_str(), wrong);
        return FI_EINVAL;
    }
    return resolve(parts.host.empty() ? nullptr : parts.host.c_str(), parts.service.c_str(), parts.family, address);
}

int insert_service(fid_av *fid, const char *node, const char *service, fi_addr_t *place, std::uint64_t flags,
                   void *context)
{
    Av &av = av_of(&fid->fid);
    Answers answers{};
    if (const int error = start(av, flags, context, place, answers))
        return error;
    const bool whole = is_address_string(node);
    if (node == nullptr || whole != (service == nullptr))
        return -FI_EINVAL;
    Address address;
    fi_addr_t inserted = FI_ADDR_NOTAVAIL;
    int error = whole ? resolve_string(node, address) : resolve(node, service, AF_UNSPEC, address);
    if (error == 0)
        error = av.insert(address, inserted, answers.user_ids ? place : nullptr);
    answers.add(0, error, inserted);
    av.tell_watchers();
    return error == 0 ? 1 : -error;
}

int remove_addresses(fid_av *fid, fi_addr_t *places, std::size_t count, std::uint64_t flags)
{
    if (flags != 0)
        return -FI_EBADFLAGS;
    if (places == nullptr && count != 0)
        return -FI_EINVAL;
    int result = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (const int error = av_of(&fid->fid).remove(places[i]))
            result = error;
    }
    return result;
}

int look_up(fid_av *fid, fi_addr_t place, void *out, std::size_t *length)
{
    Address address;
    const Av &av = av_of(&fid->fid);
    if (length == nullptr || !av.address_of(place, address))
        return -FI_EINVAL;
    // Unlike fi_getname's, what is too long is cut without an error.
    const int result = av.domain.addresses.copy(address, out, length);
    return result == -FI_ETOOSMALL ? 0 : result;
}

int set_user_id(fid_av *fid, fi_addr_t place, fi_addr_t user_id, std::uint64_t flags)
{
    Av &av = av_of(&fid->fid);
    if (flags != 0)
        return -FI_EBADFLAGS;
    const int error = av.set_user_id(place, user_id);
    if (error == 0)
        av.tell_watchers();
    return error;
}

const char *address_text(fid_av *fid, const void *addr, char *out, std::size_t *length)
{
    Address address;
    if (!av_of(&fid->fid).domain.addresses.read_whole(addr, address))
        return nullptr;
    std::size_t none = 0;
    AddressFormat(FI_ADDR_STR).copy(address, out, length != nullptr ? length : &none);
    return out;
}

constinit fi_ops g_fid_ops = FidOps{
    .close = close_av,
    .bind = no_op, // answers come at once: FI_EVENT is refused
};

// fi_ops_av has grown: older libraries and programs don't look behind `av_set`, and those since 1.20 look at the size.
struct AvOps {
    decltype(fi_ops_av::size) size;
    decltype(fi_ops_av::insert) insert;
    decltype(fi_ops_av::insertsvc) insertsvc;
    decltype(fi_ops_av::insertsym) insertsym;
    decltype(fi_ops_av::remove) remove;
    decltype(fi_ops_av::lookup) lookup;
    decltype(fi_ops_av::straddr) straddr;
    decltype(fi_ops_av::av_set) av_set;
    int (*insert_auth_key)(fid_av *av, const void *key, std::size_t size, fi_addr_t *place, std::uint64_t flags);
    int (*lookup_auth_key)(fid_av *av, fi_addr_t place, void *key, std::size_t *size);
    int (*set_user_id)(fid_av *av, fi_addr_t place, fi_addr_t user_id, std::uint64_t flags);
};
static_assert(offsetof(AvOps, av_set) == offsetof(fi_ops_av, av_set) && sizeof(AvOps) >= sizeof(fi_ops_av));

constinit AvOps g_av_ops = {
    .size = sizeof(AvOps),
    .insert = insert_addresses,
    .insertsvc = insert_service,
    .insertsym = no_op,
    .remove = remove_addresses,
    .lookup = look_up,
    .straddr = address_text,
    .av_set = no_op,
    .insert_auth_key = no_op,
    .lookup_auth_key = no_op,
    .set_user_id = set_user_id,
};

} // namespace

int open_av(fid_domain *fid, fi_av_attr *attr, fid_av **av, void *context) noexcept
{
    Domain &domain = domain_of(fid);
    if (attr == nullptr || av == nullptr || attr->type > FI_AV_TABLE || attr->rx_ctx_bits != 0)
        return -FI_EINVAL;
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    // An owner has numbers of its own for addresses, and tells us by FI_AV_USER_ID; only offload providers share its
    // vector.
    if ((attr->flags & FI_PEER) != 0) {
        VMA_WARN(av, "addresses are inserted into a vector of ours: one with FI_PEER is refused");
        return -FI_EINVAL;
    }
    if ((attr->flags & FI_AV_USER_ID) != 0 && (domain.caps & FI_AV_USER_ID) == 0)
        return -FI_EINVAL;
    // A vector shared between processes, symmetric numbers, and answers through an event queue.
    if (attr->name != nullptr || attr->map_addr != nullptr || (attr->flags & ~(FI_SYMMETRIC | FI_AV_USER_ID)) != 0)
        return -FI_ENOSYS;
    std::unique_ptr<Av> opened(new (std::nothrow) Av(domain));
    if (!opened)
        return -FI_ENOMEM;
    if (attr->type == FI_AV_UNSPEC)
        attr->type = FI_AV_TABLE;
    opened->type = attr->type;
    opened->user_ids = (attr->flags & FI_AV_USER_ID) != 0;
    opened->fid.fid = {FI_CLASS_AV, context, &g_fid_ops};
    opened->fid.ops = reinterpret_cast<fi_ops_av *>(&g_av_ops);
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *av = &opened.release()->fid;
    return 0;
}

} // namespace vma::ofi
