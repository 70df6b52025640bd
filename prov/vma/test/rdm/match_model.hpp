// SPDX-License-Identifier: BSD-2-Clause
// What tests of tag matching compare with: plain lists that are walked. It also stands between the Matcher and its
// memory, of which it can be refused some; so each test program includes it once.
#pragma once

#include "fabtests/unit.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <list>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "rdm/match.hpp"

namespace {

unsigned refuse_of_eight = 0; // tables' allocations
unsigned allocated = 0;
unsigned refused = 0;

} // namespace

// What the Matcher takes memory by.
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept
{
    if (++allocated * 5 % 8 < refuse_of_eight) {
        ++refused;
        return nullptr;
    }
    return ::operator new[](size);
}

namespace {

using namespace vma::rdm;

constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr std::array<char, 5> kPlaces{};
constexpr const void *kAny = nullptr;
constexpr const void *kAnna = &kPlaces[0];
constexpr const void *kBert = &kPlaces[1];

// The Matcher, and what it must answer: its entries stand in two plain lists, in the same order.
struct Model {
    Matcher matcher;
    std::list<Posted> posted;
    std::list<Arrival> arrivals;

    Posted &post(const void *source, std::uint64_t tag, std::uint64_t ignore = 0)
    {
        Posted &one = posted.emplace_back();
        std::memset(one.links, 0xa5, sizeof one.links); // nobody may rely on what was there
        one.source = source;
        one.tag = tag;
        one.ignore = ignore;
        matcher.post(one);
        return one;
    }
    Arrival &keep(const void *source, std::uint64_t tag)
    {
        Arrival &one = arrivals.emplace_back();
        std::memset(one.links, 0xa5, sizeof one.links);
        one.source = source;
        one.tag = tag;
        matcher.keep(one);
        return one;
    }
    static bool fits(const void *source, std::uint64_t tag, std::uint64_t ignore, const Arrival &message)
    {
        if (source != kAny && source != message.source)
            return false;
        return (tag | ignore) == (message.tag | ignore);
    }
    // Each answer is compared.
    Posted *find_posted(const void *source, std::uint64_t tag)
    {
        Arrival message{};
        message.source = source;
        message.tag = tag;
        const auto wanted = std::find_if(posted.begin(), posted.end(), [&message](const Posted &one) {
            return fits(one.source, one.tag, one.ignore, message);
        });
        Posted *const found = matcher.find_posted(source, tag);
        assert_ptr_equal(found, wanted != posted.end() ? &*wanted : nullptr);
        return found;
    }
    Arrival *find_arrival(const void *source, std::uint64_t tag, std::uint64_t ignore = 0)
    {
        const auto wanted = std::find_if(arrivals.begin(), arrivals.end(),
                                         [=](const Arrival &one) { return fits(source, tag, ignore, one); });
        Arrival *const found = matcher.find_arrival(source, tag, ignore);
        assert_ptr_equal(found, wanted != arrivals.end() ? &*wanted : nullptr);
        return found;
    }
    void remove(Posted &gone)
    {
        matcher.remove(gone);
        posted.remove_if([&gone](const Posted &one) { return &one == &gone; });
    }
    void remove(Arrival &gone)
    {
        matcher.remove(gone);
        arrivals.remove_if([&gone](const Arrival &one) { return &one == &gone; });
    }
    void take_posted(Posted &wanted, const void *source, std::uint64_t tag)
    {
        assert_ptr_equal(find_posted(source, tag), &wanted);
        remove(wanted);
    }
    void take_arrival(Arrival &wanted, const void *source, std::uint64_t tag, std::uint64_t ignore = 0)
    {
        assert_ptr_equal(find_arrival(source, tag, ignore), &wanted);
        remove(wanted);
    }
    // Receives, or messages, that nothing else in a test matches.
    void pad_posted(unsigned count)
    {
        for (unsigned i = 0; i < count; ++i)
            post(&kPlaces[4], 1'000'000 + i);
    }
    void pad_arrivals(unsigned count)
    {
        for (unsigned i = 0; i < count; ++i)
            keep(&kPlaces[4], 1'000'000 + i);
    }
    void check_order()
    {
        Posted *receive = matcher.first_posted();
        for (Posted &one : posted) {
            assert_ptr_equal(receive, &one);
            receive = Matcher::next(one);
        }
        assert_null(receive);
        Arrival *message = matcher.first_arrival();
        for (Arrival &one : arrivals) {
            assert_ptr_equal(message, &one);
            message = Matcher::next(one);
        }
        assert_null(message);
        check_counts();
    }
    void check_counts()
    {
        assert_int_equal(matcher.posted_count(), posted.size());
        assert_int_equal(matcher.arrival_count(), arrivals.size());
        assert_int_equal(matcher.any_posted(), !posted.empty());
        assert_int_equal(matcher.any_arrival(), !arrivals.empty());
    }
};

} // namespace
