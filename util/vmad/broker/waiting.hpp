// SPDX-License-Identifier: BSD-2-Clause
// Questions whose other end hasn't asked yet, and what each user has of the broker. Pure: no descriptor, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <sys/types.h>
#include <unordered_map>

#include "inet/wire/types.hpp"
#include "pair_table.hpp"

namespace vma::guard {

using inet::Nanos;

struct Question {
    std::uint64_t client = 0; // the broker's number of who asks
    std::uint32_t id = 0;     // and his of the question
    uid_t user = 0;
    PairedEnd end;
    std::uint64_t socket = 0; // cookies: its own, and that of its network namespace
    std::uint64_t network = 0;
};

class Waiting
{
public:
    struct Limits {
        std::size_t total = 65536;
        std::size_t of_user = 16384;
        Nanos patience = 2000 * inet::kMillisecond;
        Nanos brief = 20 * inet::kMillisecond; // where the other end isn't here: it may be under way
    };
    explicit Waiting(const Limits &limits) : limits_(limits) {}

    enum class Taken : std::uint8_t {
        kWaits,
        kMeets, // `out`: the other end's question, which waits no more
        kFull,
    };
    // The caller has removed the question of the same end.
    Taken take(const Question &question, Nanos now, Question &out);

    // The question of the end that has these numbers, which waits no more. False: none does.
    bool remove(const PairNumbers &numbers, Question &out);
    // One whose time is over. Where its other end was not here it may be now.
    bool expire(Nanos now, Question &out);
    Nanos due() const; // of the next one, or kNever

    std::size_t size() const { return places_.size(); }
    std::size_t size_of(uid_t user) const;

private:
    struct Waits {
        Question question;
        Nanos until;
    };
    using Line = std::list<Waits>; // all in it wait equally long: the first to come is the first to go

    static std::uint64_t key_of(const PairNumbers &numbers);
    Line &line_of(const Question &question);
    void drop(Line::iterator place, Question &out);

    Limits limits_;
    Line line_;
    Line brief_;                                               // of those whose other end isn't here
    std::unordered_map<std::uint64_t, Line::iterator> places_; // by numbers
    std::unordered_map<uid_t, std::size_t> users_;
};

} // namespace vma::guard
