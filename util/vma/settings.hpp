// SPDX-License-Identifier: BSD-2-Clause
// The options that `vma run` and `vma enable` have in common: each is a variable of libvma(7).
#pragma once

#include <getopt.h>

#include <string>
#include <string_view>
#include <vector>

namespace vma::command {

struct Setting {
    std::string name;
    std::string value;
};

struct Settings {
    std::vector<Setting> variables; // in the order in which they were given; a later one of a name replaces the first
    std::string library;            // --library: which libvma.so
};

inline constexpr char kSettingLetters[] = "lp:e:s:";
inline constexpr int kLibraryOption = 0x100; // what getopt_long() returns for --library
inline constexpr int kLogOption = 0x101;     // and --log
#define VMA_SETTING_OPTIONS                                                                                            \
    {"latency", no_argument, nullptr, 'l'}, {"profile", required_argument, nullptr, 'p'},                              \
        {"ethernet", required_argument, nullptr, 'e'}, {"set", required_argument, nullptr, 's'},                       \
        {"log", required_argument, nullptr, ::vma::command::kLogOption},                                               \
    {                                                                                                                  \
        "library", required_argument, nullptr, ::vma::command::kLibraryOption                                          \
    }

// One option that getopt_long() has found. False: it is none of these, or `error` says what was wrong with it.
bool take_setting(int found, const char *argument, Settings &out, std::string &error);

// "latency, ultra-latency, ...": the words that a parameter takes.
std::string words_of(std::string_view parameter);

} // namespace vma::command
