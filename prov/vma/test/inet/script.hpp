// SPDX-License-Identifier: BSD-2-Clause
// Scripts that play one TCP engine's peer, its program and its clock, line by line (doc/inet-scripts.md). Here is
// what a line is made of: words, and segments as scripts write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prov/vma/src/inet/tcp/segment.hpp"

namespace vma::inet::script {

// A line's words. Brackets and `=` are words of their own, commas only part others, `#` begins a comment.
class Words
{
public:
    explicit Words(std::string_view line);

    bool empty() const { return at_ == words_.size(); }
    std::string_view peek() const { return empty() ? std::string_view() : words_[at_]; }
    std::string_view next() { return empty() ? std::string_view() : words_[at_++]; }
    bool take(std::string_view word); // steps over it, if it is the next

private:
    std::vector<std::string_view> words_; // of the line
    std::size_t at_ = 0;
};

std::optional<std::int64_t> parse_number(std::string_view word);
std::optional<Nanos> parse_seconds(std::string_view word); // decimal, to the nanosecond
std::string write_seconds(Nanos time);

// A segment, or what is expected of one: numbers are relative, what has no value is not compared.
struct Pattern {
    std::uint8_t flags = 0;
    std::optional<std::uint32_t> seq; // relative to the SYN's of who sends it
    std::uint32_t length = 0;         // bytes of data
    std::uint32_t each = 0;           // written once for several, of so many bytes each; 0: one
    bool together = false;            // which come before the engine may send
    std::optional<std::uint32_t> ack;
    std::optional<std::uint32_t> window; // as it stands in the header
    std::optional<std::uint8_t> ecn;     // the IP header's
    bool listed = false;                 // options are: without a list, time stamps may be there and nothing else
    bool any_options = false;
    std::optional<std::uint16_t> mss;
    std::optional<std::uint8_t> scale;
    bool sack_ok = false;
    bool stamps = false;
    std::optional<std::uint32_t> stamp; // the engine's: in ms since its first
    std::optional<std::uint32_t> echo;
    std::vector<SeqRange> sacks;
};

// The words of a segment. Not empty: what is wrong with them.
std::string parse_pattern(Words &words, Pattern &pattern);
std::string write_pattern(const Pattern &pattern);
bool matches(const Pattern &wanted, const Pattern &came);

// Runs a script. Empty: it came as written; else file, line, what was expected, what came.
std::string run_file(const std::string &path);
std::string run_text(const std::string &name, std::string_view text);

} // namespace vma::inet::script
