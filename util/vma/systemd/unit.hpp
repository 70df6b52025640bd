// SPDX-License-Identifier: BSD-2-Clause
// Units of systemd, as texts: what their settings are, in the order in which systemd reads a unit and its drop-ins.
// Pure but for the reading of files. systemd.syntax(7), systemd.unit(5).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vma::command {

struct Assignment {
    std::string section; // "Service"
    std::string key;
    std::string value; // lines that a backslash continues are one
};
std::vector<Assignment> parse_unit(std::string_view text);

class Unit
{
public:
    void add(std::vector<Assignment> more); // of a file that is read later

    // Of [Service]. The last one; "" if there is none.
    std::string last(std::string_view key) const;
    bool is_on(std::string_view key) const; // yes, true, on, 1
    // All of a list, where an empty one takes back those before it.
    std::vector<std::string> all(std::string_view key) const;

private:
    std::vector<Assignment> assignments_;
};

// A value's words; quotes and C's escapes are taken off.
std::vector<std::string> words_of_value(std::string_view value);
// So that systemd reads back what was given: quotes, and %% for %.
std::string quoted(std::string_view word);

// "redis" and "redis.service" are "redis.service". Nothing: it is no name of a service.
std::optional<std::string> service_name(std::string_view given);

// Below `root` ("" for this system): the unit's file, or that of its template. "": there is none.
std::string find_unit(const std::string &root, const std::string &name);
// The unit with its drop-ins, but for those whose file is called `but`.
Unit read_unit(const std::string &root, const std::string &name, const std::string &but);

} // namespace vma::command
