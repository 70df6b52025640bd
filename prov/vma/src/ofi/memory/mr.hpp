// SPDX-License-Identifier: BSD-2-Clause
// Memory registrations of a domain: keys, bounds and access rights of what a peer may read or write. Nothing is pinned;
// a device asks here for each access that a peer wants, and is told when an access that it granted ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <sys/uio.h>
#include <unordered_map>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "core/mutex.hpp"
#include "ofi/cntr.hpp"
#include "ofi/info/attr.hpp"

namespace vma::ofi {

struct Domain;

struct Mr {
    fid_mr fid{}; // first
    Domain &domain;
    iovec iov[kMrIovLimit]{};
    unsigned iov_count = 0;
    std::uint64_t length = 0;
    std::uint64_t access = 0;
    std::uint64_t base = 0; // what a peer's addresses count from
    bool granted = false;   // described to a peer, which may access it on its own
    // fi_mr_bind(): of the accesses by peers, FI_RMA_EVENT.
    Cntr *write_counter = nullptr;
    Cntr *read_counter = nullptr;

    bool counts() const noexcept { return write_counter != nullptr || read_counter != nullptr; }

    explicit Mr(Domain &owner) noexcept : domain(owner) {}
};

// Who accesses memory on a peer's behalf without asking each time. Linked into the table while it has such grants.
struct MrObserver {
    // Ends all grants; after it no access by an old one begins, and none is under way.
    void (*revoke)(void *object) noexcept = nullptr;
    void *object = nullptr;
    MrObserver *next = nullptr;
    bool linked = false;
};

// Who has to know that there is memory which peers may access, when there was none before.
struct MrWatcher {
    void (*exposed)(void *object) noexcept = nullptr; // only attends to it soon, and takes no lock for it
    void *object = nullptr;
};

class MrTable
{
public:
    // Copies within one registration after all checks. 0, or a positive fi_errno for the peer: FI_ENOKEY, FI_EACCES
    // (rights), FI_EINVAL (bounds).
    int write(std::uint64_t key, std::uint64_t address, const std::byte *from, std::uint64_t length) noexcept;
    int read(std::uint64_t key, std::uint64_t address, std::byte *to, std::uint64_t length) noexcept;
    // After the same checks, with `rights` those that it takes, calls use(iovec *parts, unsigned count) with the memory
    // itself, in kMrIovLimit pieces at most; of no bytes, none. The table is locked meanwhile, so that the registration
    // can't be closed, and `use` must not come back to it. Gives what `use` does, 0 or a positive fi_errno.
    template <typename Use>
    int access(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights, Use &&use) noexcept
    {
        const std::lock_guard guard(mutex_);
        iovec parts[kMrIovLimit];
        unsigned count = 0;
        if (const int error = locate(key, address, length, rights, parts, count))
            return error;
        return use(parts, count);
    }
    // Only the checks.
    int check(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights) noexcept;

    // An access has ended, FI_REMOTE_READ or FI_REMOTE_WRITE, of which this was the last registration: for its counter.
    void count(std::uint64_t key, std::uint64_t access) noexcept
    {
        if (counted_.load(std::memory_order_relaxed)) [[unlikely]]
            count_in(key, access);
    }
    // From now on `counter` counts accesses to the registration. Those that were granted end.
    void bind(Mr &mr, Cntr &counter, std::uint64_t accesses) noexcept;
    // What carries accesses out in this domain: reading a registration's counter makes progress on it.
    void add_source(const ProgressSource &source) noexcept;
    void remove_source(const ProgressSource &source) noexcept;

    // Whether there is memory that peers may access. Who asks, and is to be told when it changes to that, has the
    // answer before or the call after.
    bool exposes() const noexcept { return exposed_.load(std::memory_order_seq_cst) != 0; }
    void watch(const MrWatcher &watcher) noexcept;
    void unwatch(const void *object) noexcept;

    // Calls describe(const Mr &) with the registration, under the table's lock, and notes that `observer` knows it.
    template <typename Describe> int grant(std::uint64_t key, MrObserver &observer, Describe &&describe) noexcept
    {
        const std::lock_guard guard(mutex_);
        Mr *mr = find(key);
        if (!mr)
            return FI_ENOKEY;
        mr->granted = true;
        if (!observer.linked) {
            observer.next = observers_;
            observers_ = &observer;
            observer.linked = true;
        }
        describe(*mr);
        return 0;
    }
    void forget(MrObserver &observer) noexcept;

    // -FI_ENOKEY when the key is taken. With `choose` the table finds a free one.
    int add(Mr &mr, std::uint64_t key, bool choose) noexcept;
    void remove(Mr &mr) noexcept;
    // The registered memory may have been mapped anew.
    void refresh(Mr &mr) noexcept;

private:
    Mr *find(std::uint64_t key) noexcept;
    int locate(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights,
               iovec (&parts)[kMrIovLimit], unsigned &count) noexcept;
    void revoke_all() noexcept;
    void count_in(std::uint64_t key, std::uint64_t access) noexcept;
    void release(Cntr *counter) noexcept;
    void tell_watchers() noexcept;

    core::Mutex mutex_; // held while a peer's access is carried out, so that fi_close() waits for it
    std::unordered_map<std::uint64_t, Mr *> by_key_;
    MrObserver *observers_ = nullptr;
    std::uint64_t next_key_ = 1;
    std::atomic<bool> counted_{false};    // a registration has had a counter
    std::atomic<std::size_t> exposed_{0}; // registrations that peers may access
    // Never taken with the other one, under which a counter's progress may be.
    core::Mutex counters_mutex_;
    std::vector<Cntr *> counters_; // one for each binding
    std::vector<ProgressSource> sources_;
    std::vector<MrWatcher> watchers_;
};

// The domain's table, made at the first use; nullptr without memory.
MrTable *mr_table(Domain &domain) noexcept;
void destroy_mr_table(Domain &domain) noexcept;

extern fi_ops_mr mr_ops;

} // namespace vma::ofi
