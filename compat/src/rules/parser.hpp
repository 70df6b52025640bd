// SPDX-License-Identifier: BSD-2-Clause
// Reads libvma.conf, a line at a time. A line that is wrong is told with its column and left out; the others count.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config.h"

#include "compat/src/rules/rule.hpp"

namespace vma::rules {

struct Problem {
    unsigned line = 0;    // from 1
    unsigned column = 0;  // from 1, in bytes; 0: of the whole file
    bool is_error = true; // else the line counts, but not as it stands
    char text[200] = "";
};

// Gets each problem as it is found.
class Reporter
{
public:
    virtual void report(const Problem &problem) = 0;

protected:
    ~Reporter() = default;
};

enum class Kind { kNothing, kRule, kApplication, kLog, kPrivileged, kWrong };

struct Statement {
    Kind kind = Kind::kNothing;
    Rule rule;           // kRule
    std::string program; // kApplication
    std::string id;
};

// One line, without its end. What is wrong with it is reported.
Statement parse_line(std::string_view text, unsigned line, Reporter &reporter);

// "1.2.3.4/24:80-90" and "[2001:db8::1]:*" alone, as a rule has it. False: `why` says what was expected; what follows
// it counts as wrong too.
bool parse_range(std::string_view text, Range &out, std::string &why);

// The rules that follow an application-id.
struct Section {
    std::string program = "*";
    std::string id = "*";
    unsigned line = 0; // 0: those before any
    std::vector<Rule> rules;
};

struct File {
    std::vector<Section> sections; // those with the same program and id are one
};

File parse_text(std::string_view text, Reporter &reporter);

// 0, or the errno of what went wrong: EISDIR and EINVAL for what is not a regular file, EFBIG for one of over 1 MiB.
int read_file(const char *path, File &out, Reporter &reporter);

// The section of a program, as program_invocation_short_name has it, and of a VMA_APPLICATION_ID: the first that
// matches; nullptr: none. `id_is_known`: some section names the id, or there is none to name.
const Section *section_of(const File &file, const char *program, const char *id, bool &id_is_known);

inline constexpr const char *kDefaultId = "VMA_DEFAULT_APPLICATION_ID";
inline constexpr const char *kDefaultPath = LIBVMA_CONF; // where `make install` puts it

} // namespace vma::rules
