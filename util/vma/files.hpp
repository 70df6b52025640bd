// SPDX-License-Identifier: BSD-2-Clause
// Small files, as /proc has them, read whole. Nothing is kept; errors are values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vma::command {

inline constexpr std::size_t kMostText = std::size_t{16} << 20;

// At most `most` bytes of a file that can be read to its end without waiting; nothing: errno says why not.
std::optional<std::string> read_file(const std::string &path, std::size_t most = kMostText);

// Where a symbolic link leads; "" if it is none or can't be read.
std::string read_link(const std::string &path);

// As one.
std::string join(std::initializer_list<std::string_view> parts);

// The first number of a file. Nothing: it has none.
std::optional<std::uint64_t> read_number(const std::string &path);

// Parts between separators; those that are empty are left out.
std::vector<std::string_view> split(std::string_view text, std::string_view separators);
std::string_view trim(std::string_view text);

// What a process is called; "?" if it can't be told.
std::string name_of_process(int pid);

// The part behind the last slash.
std::string base_name(const std::string &path);

// A whole number of decimal digits that is not above `most`.
std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t most = UINT64_MAX);

} // namespace vma::command
