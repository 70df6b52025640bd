// SPDX-License-Identifier: BSD-2-Clause
// The options whose meaning depends on what vma_lat is to be, as they stood on the command line, and what a sweep and a
// mesh make of them.
#pragma once

#include "util/vma_lat/options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace vma::lat {

struct Texts {
    std::string wait;
    std::string sizes;
    std::string operations;
    std::string cq;
    std::string threads;
    std::string peers;
    std::string provider;
    std::optional<std::uint32_t> connections;
    std::optional<std::uint32_t> from;
    std::optional<std::uint32_t> to;
    std::optional<std::uint32_t> window;
    std::optional<std::uint32_t> stream;
    std::optional<std::uint64_t> warm_up;
    bool verify = false;
};

Failure finish_sweep(const Texts &texts, Options &options);
Failure finish_mesh(const Texts &texts, Options &options);

// A number from `least` to `most`, of option --`name`.
Failure parse_number(const char *name, std::string_view text, std::uint64_t &value, std::uint64_t least,
                     std::uint64_t most);

template <typename T>
Failure parse_number(const char *name, std::string_view text, T &value, std::uint64_t least, std::uint64_t most)
{
    std::uint64_t number = 0;
    auto failure = parse_number(name, text, number, least, most);
    if (!failure)
        value = static_cast<T>(number);
    return failure;
}
template <typename T>
Failure parse_number(const char *name, std::string_view text, std::optional<T> &value, std::uint64_t least,
                     std::uint64_t most)
{
    std::uint64_t number = 0;
    auto failure = parse_number(name, text, number, least, most);
    if (!failure)
        value = static_cast<T>(number);
    return failure;
}

std::vector<std::string_view> split(std::string_view text, char at);

// Numbers with commas between them; none if there is no text.
Failure parse_list(const char *name, std::string_view text, std::uint64_t least, std::uint64_t most,
                   std::vector<std::uint32_t> &numbers);

Error unknown(const char *name, std::string_view text, const char *names);

} // namespace vma::lat
