// SPDX-License-Identifier: BSD-2-Clause
#include "waiting.hpp"

#include <algorithm>
#include <iterator>

namespace vma::guard {

std::uint64_t Waiting::key_of(const PairNumbers &numbers)
{
    return std::uint64_t{numbers.sent} << 32 | numbers.received;
}

Waiting::Line &Waiting::line_of(const Question &question)
{
    return question.end.other == PairedEnd::Other::kNotHere ? brief_ : line_;
}

Waiting::Taken Waiting::take(const Question &question, Nanos now, Question &out)
{
    if (remove(exchanged(question.end.numbers), out))
        return Taken::kMeets;
    if (places_.size() >= limits_.total || size_of(question.user) >= limits_.of_user)
        return Taken::kFull;
    Line &line = line_of(question);
    line.push_back({question, now + (&line == &brief_ ? limits_.brief : limits_.patience)});
    places_[key_of(question.end.numbers)] = std::prev(line.end());
    ++users_[question.user];
    return Taken::kWaits;
}

bool Waiting::remove(const PairNumbers &numbers, Question &out)
{
    const auto place = places_.find(key_of(numbers));
    if (place == places_.end())
        return false;
    drop(place->second, out);
    return true;
}

bool Waiting::expire(Nanos now, Question &out)
{
    for (Line *const line : {&brief_, &line_}) {
        if (!line->empty() && line->front().until <= now) {
            drop(line->begin(), out);
            return true;
        }
    }
    return false;
}

Nanos Waiting::due() const
{
    Nanos first = inet::kNever;
    for (const Line *const line : {&brief_, &line_}) {
        if (!line->empty())
            first = std::min(first, line->front().until);
    }
    return first;
}

std::size_t Waiting::size_of(uid_t user) const
{
    const auto found = users_.find(user);
    return found == users_.end() ? 0 : found->second;
}

void Waiting::drop(Line::iterator place, Question &out)
{
    out = place->question;
    places_.erase(key_of(out.end.numbers));
    line_of(out).erase(place);
    if (--users_[out.user] == 0)
        users_.erase(out.user);
}

} // namespace vma::guard
