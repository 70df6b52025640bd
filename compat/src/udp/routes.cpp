// SPDX-License-Identifier: BSD-2-Clause
// An open hash table. A socket with more destinations than it may hold forgets them all, and looks them up again.
#include "compat/src/udp/routes.hpp"

#include <new>

namespace vma::sock::udp {

namespace {

constexpr std::uint32_t kFirst = 4;
constexpr std::uint32_t kMost = 1 << 16;

std::uint32_t hash(const Destination &to)
{
    std::uint64_t h = 0;
    for (const std::uint64_t word : to.words)
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return static_cast<std::uint32_t>(h >> 32);
}

} // namespace

Route &Routes::place_of(const Destination &to)
{
    std::uint32_t at = hash(to) & (capacity_ - 1);
    while (table_[at].used && table_[at].to != to)
        at = (at + 1) & (capacity_ - 1);
    return table_[at];
}

Route *Routes::peek(const Destination &to)
{
    if (capacity_ == 0)
        return nullptr;
    Route &route = place_of(to);
    return route.used ? &route : nullptr;
}

Route *Routes::add(const Destination &to)
{
    if (count_ == kMost / 2)
        clear();
    if (count_ * 2 >= capacity_) {
        Routes bigger;
        bigger.capacity_ = capacity_ != 0 ? capacity_ * 2 : kFirst;
        bigger.table_.reset(new (std::nothrow) Route[bigger.capacity_]);
        if (!bigger.table_)
            return nullptr;
        each([&bigger](Route &route) { bigger.place_of(route.to) = std::move(route); });
        table_ = std::move(bigger.table_);
        capacity_ = bigger.capacity_;
    }
    Route &route = place_of(to);
    route.used = true;
    route.to = to;
    ++count_;
    last_ = &route;
    return last_;
}

void Routes::clear()
{
    each([](Route &route) {
        for (const Identity &who : route.wished)
            withdraw_wish(who);
    });
    table_.reset();
    capacity_ = count_ = 0;
    last_ = nullptr;
}

} // namespace vma::sock::udp
