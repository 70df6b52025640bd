// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/settings.hpp"

#include <strings.h>

#include <algorithm>

#include "compat/src/config/aliases.hpp"
#include "compat/src/config/table.hpp"

namespace vma::command {

namespace {

const config::Row *row_of(std::string_view name)
{
    for (const config::Row &row : config::parameters())
        if (name == row.name.c_str())
            return &row;
    return nullptr;
}

bool is_word_of(const config::Row &row, const char *word)
{
    return std::any_of(row.choices.begin(), row.choices.end(),
                       [&](const auto &choice) { return ::strcasecmp(choice.word, word) == 0; });
}

void set(Settings &out, const std::string &name, const std::string &value)
{
    const auto same =
        std::find_if(out.variables.begin(), out.variables.end(), [&](const Setting &one) { return one.name == name; });
    if (same != out.variables.end())
        same->value = value;
    else
        out.variables.push_back({name, value});
}

bool set_word(Settings &out, const char *name, const char *word, std::string &error)
{
    const config::Row *const row = row_of(name);
    if (row == nullptr || !is_word_of(*row, word)) {
        error = std::string("'") + word + "' is not known (expected one of " + words_of(name) + ")";
        return false;
    }
    set(out, name, word);
    return true;
}

bool set_any(Settings &out, const std::string &text, std::string &error)
{
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals == std::string::npos || equals == 0) {
        error = "--set " + text + ": expected NAME=VALUE";
        return false;
    }
    if (row_of(name) == nullptr && !name.starts_with("FI_")) {
        const char *const nearest = config::nearest_name(name.c_str());
        error = name + " is not a parameter of libvma(7)";
        error += nearest != nullptr ? std::string("; is ") + nearest + " meant?" : "; vma_stats --explain lists them";
        return false;
    }
    if (text.find_first_of("\n\r") != std::string::npos) {
        error = name + ": its value has an end of line";
        return false;
    }
    set(out, name, text.substr(equals + 1));
    return true;
}

} // namespace

std::string words_of(std::string_view parameter)
{
    std::string words;
    const config::Row *const row = row_of(parameter);
    if (row == nullptr)
        return words;
    for (const auto &choice : row->choices)
        words.append(words.empty() ? "" : ", ").append(choice.word.c_str());
    return words;
}

bool take_setting(int found, const char *argument, Settings &out, std::string &error)
{
    error.clear();
    switch (found) {
    case 'l':
        return set_word(out, "VMA_SPEC", "latency", error);
    case 'p':
        return set_word(out, "VMA_SPEC", argument, error);
    case 'e':
        return set_any(out, std::string("VMA_ETHERNET=") + argument, error);
    case 's':
        return set_any(out, argument, error);
    case kLogOption:
        return set_word(out, "VMA_TRACELEVEL", argument, error);
    case kLibraryOption:
        out.library = argument;
        return true;
    default:
        return false;
    }
}

} // namespace vma::command
