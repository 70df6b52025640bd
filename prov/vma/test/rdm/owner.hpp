// SPDX-License-Identifier: BSD-2-Clause
// An owner (fi_peer(3)) for tests: a completion queue, and a shared receive context that matches, in the layout of one
// of four ages of libfabric. The structures are as libfabric's own headers have them, and not the provider's.
#pragma once

#include "prov/vma/test/rdm/pair.hpp"

#include <deque>
#include <functional>
#include <list>
#include <mutex>

#include "rdm/peer_srx.hpp"

namespace vma::test {

struct OwnersSrx {
    fid_ep ep_fid;
    void *owner_ops;
    ofi::peer::SrxPeerOps *peer_ops;
};

struct Entry17 { // to 1.18
    Entry17 *next, *prev;
    OwnersSrx *srx;
    fi_addr_t addr;
    size_t size;
    uint64_t tag;
    uint64_t flags;
    void *context;
    size_t count;
    void **desc;
    void *peer_context;
    void *owner_context;
    iovec *iov;
};
struct Entry19 { // to 2.2
    Entry19 *next, *prev;
    OwnersSrx *srx;
    fi_addr_t addr;
    size_t size;
    uint64_t tag;
    uint64_t cq_data;
    uint64_t flags;
    void *context;
    size_t count;
    void **desc;
    void *peer_context;
    void *owner_context;
    iovec *iov;
};
struct Entry23 {
    OwnersSrx *srx;
    fi_addr_t addr;
    size_t size;
    uint64_t tag;
    uint64_t cq_data;
    uint64_t flags;
    void *context;
    size_t count;
    void **desc;
    void *peer_context;
    void *owner_context;
    iovec *iov;
};
struct Match20 {
    fi_addr_t addr;
    size_t msg_size;
    uint64_t tag;
};
template <typename Entry> struct Ops17 {
    size_t size;
    int (*get_msg)(OwnersSrx *, fi_addr_t, size_t, Entry **);
    int (*get_tag)(OwnersSrx *, fi_addr_t, uint64_t, Entry **);
    int (*queue_msg)(Entry *);
    int (*queue_tag)(Entry *);
    void (*free_entry)(Entry *);
};
template <typename Entry> struct Ops19 {
    size_t size;
    int (*get_msg)(OwnersSrx *, fi_addr_t, size_t, Entry **);
    int (*get_tag)(OwnersSrx *, fi_addr_t, uint64_t, Entry **);
    int (*queue_msg)(Entry *);
    int (*queue_tag)(Entry *);
    void (*foreach_unspec_addr)(OwnersSrx *, fi_addr_t (*)(Entry *));
    void (*free_entry)(Entry *);
};
template <typename Entry> struct Ops20 {
    size_t size;
    int (*get_msg)(OwnersSrx *, Match20 *, Entry **);
    int (*get_tag)(OwnersSrx *, Match20 *, Entry **);
    int (*queue_msg)(Entry *);
    int (*queue_tag)(Entry *);
    void (*foreach_unspec_addr)(OwnersSrx *, fi_addr_t (*)(Entry *));
    void (*free_entry)(Entry *);
};

// The ages, each by its first version.
struct Age17 {
    using Entry = Entry17;
    using Ops = Ops17<Entry>;
    static constexpr std::uint32_t version = FI_VERSION(1, 17);
};
struct Age19 {
    using Entry = Entry19;
    using Ops = Ops19<Entry>;
    static constexpr std::uint32_t version = FI_VERSION(1, 19);
};
struct Age20 {
    using Entry = Entry19;
    using Ops = Ops20<Entry>;
    static constexpr std::uint32_t version = FI_VERSION(2, 0);
};
struct Age23 {
    using Entry = Entry23;
    using Ops = Ops20<Entry>;
    static constexpr std::uint32_t version = FI_VERSION(2, 3);
};

struct OwnersQueue {
    ofi::peer::Cq cq{};
    ofi::peer::CqOwnerOps ops{sizeof ops, write, writeerr};
    std::mutex mutex;
    std::deque<Entry> told;

    OwnersQueue()
    {
        cq.id.context = this;
        cq.owner_ops = &ops;
    }
    OwnersQueue(const OwnersQueue &) = delete;
    OwnersQueue &operator=(const OwnersQueue &) = delete;

    static OwnersQueue &of(const ofi::peer::Cq *cq) { return *static_cast<OwnersQueue *>(cq->id.context); }
    static ssize_t write(ofi::peer::Cq *cq, void *context, std::uint64_t flags, std::size_t length, void *buffer,
                         std::uint64_t data, std::uint64_t tag, fi_addr_t source)
    {
        const std::lock_guard guard(of(cq).mutex);
        Entry entry;
        entry.told = {context, flags, length, buffer, data, tag};
        entry.source = source;
        of(cq).told.push_back(entry);
        return 0;
    }
    static ssize_t writeerr(ofi::peer::Cq *cq, const ofi::peer::CqError *error)
    {
        const std::lock_guard guard(of(cq).mutex);
        Entry entry;
        std::memcpy(&entry.error, error, offsetof(fi_cq_err_entry, err_data));
        entry.source = error->source;
        of(cq).told.push_back(entry);
        return 0;
    }
    bool take(Entry &entry)
    {
        const std::lock_guard guard(mutex);
        if (told.empty())
            return false;
        entry = told.front();
        told.pop_front();
        return true;
    }
};

// Matching as fi_recv() and fi_trecv() have it, by lists.
template <typename Age> class Owner
{
public:
    using RxEntry = typename Age::Entry;
    struct Slot {
        RxEntry entry{}; // first
        iovec iov[4]{};
        std::uint64_t ignore = 0;
        bool tagged = false;
    };

    OwnersSrx srx{};
    OwnersQueue queue;
    std::list<Slot *> posted;
    std::list<Slot *> unexpected;
    std::uint64_t live = 0;    // entries that exist
    std::uint64_t started = 0; // of those that had waited
    int get_answer = 0;        // what get_msg() and get_tag() say, of so many calls
    int get_refusals = 0;
    int queue_answer = 0; // likewise queue_msg() and queue_tag()
    int queue_refusals = 0;
    std::function<void()> in_a_call; // from within queue_msg() and queue_tag(), when the entry is there

    Owner()
    {
        srx.ep_fid.fid.context = this;
        srx.owner_ops = &ops_;
        ops_.size = sizeof ops_;
        ops_.get_msg = [](OwnersSrx *its, auto... rest) { return get(its, false, rest...); };
        ops_.get_tag = [](OwnersSrx *its, auto... rest) { return get(its, true, rest...); };
        ops_.queue_msg = queue_entry;
        ops_.queue_tag = queue_entry;
        ops_.free_entry = free_entry;
        if constexpr (requires { ops_.foreach_unspec_addr; })
            ops_.foreach_unspec_addr = for_each;
    }
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
    ~Owner()
    {
        for (Slot *slot : posted)
            give_back(slot);
        REQUIRE(live == 0);
    }

    void receive(bool tagged, const std::vector<iovec> &iov, fi_addr_t from, std::uint64_t tag, std::uint64_t ignore,
                 void *context)
    {
        for (auto at = unexpected.begin(); at != unexpected.end(); ++at) {
            Slot *const slot = *at;
            if (!fits(*slot, tagged, from, tag, ignore))
                continue;
            unexpected.erase(at);
            fill(*slot, iov, context);
            ++started;
            REQUIRE((tagged ? srx.peer_ops->start_tag : srx.peer_ops->start_msg)(entry_of(slot)) == 0);
            return;
        }
        Slot *const slot = make(tagged, from, tag);
        slot->ignore = ignore;
        fill(*slot, iov, context);
        posted.push_back(slot);
    }
    // What waits in front is dropped, as FI_DISCARD has it: the entry stays ours.
    void discard()
    {
        Slot *const slot = unexpected.front();
        unexpected.pop_front();
        REQUIRE((slot->tagged ? srx.peer_ops->discard_tag : srx.peer_ops->discard_msg)(entry_of(slot)) == 0);
        give_back(slot);
    }

private:
    static ofi::peer::RxEntry *entry_of(Slot *slot) { return reinterpret_cast<ofi::peer::RxEntry *>(&slot->entry); }
    static Owner &of(const OwnersSrx *srx) { return *static_cast<Owner *>(srx->ep_fid.fid.context); }
    static bool fits(const Slot &slot, bool tagged, fi_addr_t from, std::uint64_t tag, std::uint64_t ignore)
    {
        return slot.tagged == tagged && ((slot.entry.tag ^ tag) & ~ignore) == 0 &&
               (from == FI_ADDR_UNSPEC || from == slot.entry.addr);
    }
    void fill(Slot &slot, const std::vector<iovec> &iov, void *context)
    {
        std::copy(iov.begin(), iov.end(), slot.iov);
        slot.entry.iov = slot.iov;
        slot.entry.count = iov.size();
        slot.entry.context = context;
    }
    Slot *make(bool tagged, fi_addr_t addr, std::uint64_t tag)
    {
        auto *const slot = new Slot;
        slot->tagged = tagged;
        slot->entry.srx = &srx;
        slot->entry.addr = addr;
        slot->entry.tag = tag;
        slot->entry.flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
        ++live;
        return slot;
    }
    void give_back(Slot *slot)
    {
        --live;
        delete slot;
    }

    static int get(OwnersSrx *srx, bool tagged, fi_addr_t addr, std::uint64_t number, RxEntry **entry)
    {
        return of(srx).match(tagged, addr, tagged ? 0 : number, tagged ? number : 0, entry);
    }
    static int get(OwnersSrx *srx, bool tagged, Match20 *match, RxEntry **entry)
    {
        return of(srx).match(tagged, match->addr, match->msg_size, match->tag, entry);
    }
    int match(bool tagged, fi_addr_t addr, std::size_t size, std::uint64_t tag, RxEntry **entry)
    {
        if (get_refusals != 0) {
            --get_refusals;
            return get_answer;
        }
        for (auto at = posted.begin(); at != posted.end(); ++at) {
            Slot *const slot = *at;
            const bool from = slot->entry.addr == FI_ADDR_UNSPEC || slot->entry.addr == addr;
            if (slot->tagged != tagged || ((slot->entry.tag ^ tag) & ~slot->ignore) != 0 || !from)
                continue;
            posted.erase(at);
            *entry = &slot->entry;
            return 0;
        }
        Slot *const slot = make(tagged, addr, tag);
        slot->entry.size = size;
        *entry = &slot->entry;
        return -FI_ENOENT;
    }
    static int queue_entry(RxEntry *entry)
    {
        Owner &owner = of(entry->srx);
        if (owner.queue_refusals != 0) {
            --owner.queue_refusals;
            return owner.queue_answer;
        }
        owner.unexpected.push_back(reinterpret_cast<Slot *>(entry));
        if (owner.in_a_call)
            owner.in_a_call();
        return 0;
    }
    static void for_each(OwnersSrx *srx, fi_addr_t (*source_of)(RxEntry *))
    {
        for (Slot *slot : of(srx).unexpected) {
            if (slot->entry.addr == FI_ADDR_UNSPEC)
                slot->entry.addr = source_of(&slot->entry);
        }
    }
    static void free_entry(RxEntry *entry)
    {
        Owner &owner = of(entry->srx);
        auto *const slot = reinterpret_cast<Slot *>(entry);
        owner.unexpected.remove(slot); // of an endpoint that is closed
        owner.give_back(slot);
    }

    typename Age::Ops ops_{};
};

// A peer of it.
template <typename Age> struct PeerRdm {
    Owner<Age> owner;
    ofi::InfoPtr info;
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_cq *cq = nullptr;
    fid_av *av = nullptr;
    fid_ep *srx = nullptr;
    fid_ep *ep = nullptr;
    sockaddr_in name{};

    explicit PeerRdm(const RdmSetup &setup = {})
    {
        const ofi::InfoPtr hints = ofi::make_info(ofi::kRdmOffer);
        hints->caps |= FI_PEER | FI_AV_USER_ID;
        info = ask("127.0.0.1", setup.port, FI_SOURCE, hints.get());
        info->domain_attr->threading = setup.threading;
        REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
        REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
        fi_cq_attr attr{};
        attr.flags = FI_PEER;
        ofi::peer::CqContext queue_context{sizeof queue_context, &owner.queue.cq};
        REQUIRE(fi_cq_open(domain, &attr, &cq, &queue_context) == 0);
        fi_av_attr av_attr{};
        REQUIRE(fi_av_open(domain, &av_attr, &av, nullptr) == 0);
        REQUIRE(fi_endpoint(domain, info.get(), &ep, this) == 0);
        REQUIRE(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | setup.bind_flags) == 0);
        REQUIRE(fi_ep_bind(ep, &av->fid, 0) == 0);
        ofi::peer::SrxContext context{sizeof context, reinterpret_cast<ofi::peer::Srx *>(&owner.srx)};
        REQUIRE(rdm::open_peer_srx(*reinterpret_cast<ofi::Domain *>(domain), Age::version, &srx, &context) == 0);
        REQUIRE(fi_ep_bind(ep, &srx->fid, 0) == 0);
        if (!setup.single_copy)
            rdm::RdmEndpoint::from(ep).forbid_single_copy();
        if (setup.network) {
            attach_real_libfabric();
            rdm::RdmEndpoint::from(ep).take_all_for_remote();
        }
        REQUIRE(fi_enable(ep) == 0);
        REQUIRE(rdm::RdmEndpoint::from(ep).has_network() == setup.network);
        std::size_t length = sizeof name;
        REQUIRE(fi_getname(&ep->fid, &name, &length) == 0);
    }
    PeerRdm(const PeerRdm &) = delete;
    PeerRdm &operator=(const PeerRdm &) = delete;
    ~PeerRdm()
    {
        REQUIRE(fi_close(&srx->fid) == -FI_EBUSY);
        REQUIRE(fi_close(&ep->fid) == 0);
        REQUIRE(fi_close(&srx->fid) == 0);
        REQUIRE(fi_close(&av->fid) == 0);
        REQUIRE(fi_close(&cq->fid) == 0);
        REQUIRE(fi_close(&domain->fid) == 0);
        REQUIRE(fi_close(&fabric->fid) == 0);
    }

    // With a number of ours for completions. What is sent to, is returned.
    fi_addr_t insert(const sockaddr_in &address, fi_addr_t user_id)
    {
        fi_addr_t place = user_id;
        REQUIRE(fi_av_insert(av, &address, 1, &place, FI_AV_USER_ID, nullptr) == 1);
        return place;
    }
    void progress() { REQUIRE(fi_cq_read(cq, nullptr, 0) == 0); }
    // The next completion, while others make progress too.
    Entry next(std::initializer_list<fid_cq *> others = {})
    {
        Entry entry;
        for (std::uint64_t i = 0; !owner.queue.take(entry); ++i) {
            REQUIRE(i < 100'000'000);
            progress();
            for (fid_cq *other : others)
                REQUIRE(fi_cq_read(other, nullptr, 0) <= 0);
        }
        return entry;
    }
    // Until so many messages wait.
    void wait_for_unexpected(std::size_t count, std::initializer_list<fid_cq *> others = {})
    {
        progress_until([&] { return owner.unexpected.size() >= count; }, others);
    }
    template <typename Condition>
    void progress_until(Condition &&condition, std::initializer_list<fid_cq *> others = {})
    {
        for (std::uint64_t i = 0; !condition(); ++i) {
            REQUIRE(i < 100'000'000);
            progress();
            for (fid_cq *other : others)
                REQUIRE(fi_cq_read(other, nullptr, 0) <= 0);
        }
    }
    bool nothing()
    {
        for (int i = 0; i < 100; ++i)
            progress();
        Entry entry;
        return !owner.queue.take(entry);
    }
};

} // namespace vma::test
