// SPDX-License-Identifier: BSD-2-Clause
// The address vector: a program's numbers for socket addresses. A table and a map are the same here: an fi_addr_t is
// the place in the vector. What is behind an address is the device's business.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "core/mutex.hpp"
#include "ofi/address.hpp"
#include "ofi/address_format.hpp"

namespace vma::ofi {

struct Domain;

struct Av {
    fid_av fid{}; // first
    Domain &domain;
    fi_av_type type = FI_AV_TABLE;
    std::atomic<int> refs{0};                 // endpoints
    std::atomic<std::uint32_t> generation{1}; // goes up with every change
    bool user_ids = false;                    // FI_AV_USER_ID: what completions call an address is set for each

    explicit Av(Domain &owner) noexcept : domain(owner) {}

    // Goes up whenever the place is given to another address: even numbers mean that it is empty. Without a lock.
    std::uint32_t generation_of(fi_addr_t place) const noexcept
    {
        const Entry *entry = find(place);
        return entry != nullptr ? entry->generation.load(std::memory_order_acquire) : 0;
    }
    // False where the place is empty.
    bool address_of(fi_addr_t place, Address &address) const noexcept;
    // What completions call it: its place, or the program's own number for it (FI_AV_USER_ID). FI_ADDR_NOTAVAIL for one
    // that was not inserted.
    fi_addr_t place_of(const Address &address) const noexcept;

    // 0 or a positive fi_errno. `address` must be an IPv4 or IPv6 one. `user_id` is the program's number, or nullptr.
    int insert(const Address &address, fi_addr_t &place, const fi_addr_t *user_id) noexcept;
    // Both: 0 or a negative fi_errno.
    int remove(fi_addr_t place) noexcept;
    int set_user_id(fi_addr_t place, fi_addr_t user_id) noexcept;

    // Who hears of each call that has named addresses, before it returns; without the vector's lock, and not after
    // unwatch().
    struct Watcher {
        void *object;
        void (*named)(void *object) noexcept;

        friend bool operator==(const Watcher &, const Watcher &) = default;
    };
    void watch(const Watcher &watcher) noexcept;
    void unwatch(const Watcher &watcher) noexcept;
    void tell_watchers() noexcept;

private:
    static constexpr std::size_t kChunk = 1024;
    static constexpr std::size_t kChunks = 1024;
    struct Entry {
        std::atomic<std::uint32_t> generation{0};
        Address address;                      // protected by mutex
        fi_addr_t user_id = FI_ADDR_NOTAVAIL; // likewise
    };
    const Entry *find(fi_addr_t place) const noexcept
    {
        if (place >= kChunk * kChunks)
            return nullptr;
        const Entry *chunk = chunks_[place / kChunk].load(std::memory_order_acquire);
        return chunk != nullptr ? &chunk[place % kChunk] : nullptr;
    }

    mutable core::Mutex mutex_;
    std::array<std::atomic<Entry *>, kChunks> chunks_{}; // an entry never moves
    std::vector<std::unique_ptr<Entry[]>> owned_;
    std::vector<fi_addr_t> free_;
    std::multimap<std::string, fi_addr_t> by_address_;
    fi_addr_t used_ = 0; // places that were ever taken
    core::Mutex watchers_mutex_;
    std::vector<Watcher> watchers_;
};

inline Av &av_of(struct fid *fid) noexcept
{
    return *reinterpret_cast<Av *>(fid);
}

int open_av(fid_domain *domain, fi_av_attr *attr, fid_av **av, void *context) noexcept;

} // namespace vma::ofi
