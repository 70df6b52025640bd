// SPDX-License-Identifier: BSD-2-Clause
// --explain: the parameters of libvma.so, out of the one table that it reads them by.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "compat/src/config/header.hpp"
#include "compat/src/config/table.hpp"
#include "util/tool/arguments.hpp"
#include "util/vma_stats/options.hpp"

namespace vma_stats {

namespace {

using namespace vma::config;

constexpr std::size_t kWidth = 100;

// Indented, and broken between words.
void print_text(const char *text)
{
    std::size_t column = kWidth;
    while (*text != '\0') {
        const std::size_t length = strcspn(text, " ");
        if (column + 1 + length > kWidth) {
            fputs(column == kWidth ? "    " : "\n    ", stdout);
            column = 4;
        } else {
            fputc(' ', stdout);
            ++column;
        }
        printf("%.*s", static_cast<int>(length), text);
        column += length;
        text += length + (text[length] == ' ' ? 1 : 0);
    }
    fputs("\n\n", stdout);
}

void print_range(const Row &row)
{
    if (is_text(row)) {
        fputs("text", stdout);
    } else if (is_bool(row)) {
        fputs("0 or 1", stdout);
    } else if (row.choices.empty()) {
        printf("%lld to %lld%s", static_cast<long long>(row.min), static_cast<long long>(row.max),
               row.power_of_two ? ", a power of two" : "");
    } else {
        const char *between = "";
        for (const auto &choice : row.choices) {
            printf("%s%s", between, choice.word.c_str());
            between = ", ";
        }
    }
}

void print_row(const Row &row)
{
    char value[256];
    describe_value(g_params, row, value, sizeof value); // of the defaults: nobody has read the environment
    printf("%s (%s)%s\n    default %s; ", row.name.c_str(), row.label.c_str(), row.idle ? ", no effect" : "",
           value[0] != '\0' ? value : "none");
    print_range(row);
    fputs("\n", stdout);
    print_text(row.text);
}

bool is_asked(const Row &row, const std::string &name)
{
    return name.empty() || strcasecmp(row.name, name.c_str()) == 0 ||
           strcasecmp(row.name, ("VMA_" + name).c_str()) == 0;
}

} // namespace

bool read_level(const std::string &word, int &level)
{
    long number = 0;
    if (vma::tool::read_number(word.c_str(), 1, 7, number)) {
        level = static_cast<int>(number);
        return true;
    }
    for (const Row &row : parameters())
        for (const auto &choice : row.choices)
            if (strcmp(row.name, "VMA_TRACELEVEL") == 0 && strcasecmp(choice.word, word.c_str()) == 0 &&
                (word[0] < '0' || word[0] > '9')) {
                level = static_cast<int>(choice.value);
                return true;
            }
    return false;
}

bool explain(const std::string &name)
{
    bool found = false;
    for (const Row &row : parameters()) {
        if (!is_asked(row, name))
            continue;
        print_row(row);
        found = true;
    }
    return found;
}

} // namespace vma_stats
