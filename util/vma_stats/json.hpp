// SPDX-License-Identifier: BSD-2-Clause
// JSON to stdout, as it is made: vma_stats --json and vma list --json. Who writes it sees to it that brackets match.
#pragma once

#include <stdio.h>

#include <cstdint>
#include <string>

namespace vma_stats {

// Writes members of objects and arrays, with the commas between.
class Json
{
public:
    void begin(const char *name, char bracket)
    {
        start(name);
        fputc(bracket, stdout);
        first_ = true;
    }
    void end(char bracket)
    {
        fputc(bracket, stdout);
        first_ = false;
    }
    void number(const char *name, std::uint64_t value)
    {
        start(name);
        printf("%llu", static_cast<unsigned long long>(value));
    }
    void truth(const char *name, bool value)
    {
        start(name);
        fputs(value ? "true" : "false", stdout);
    }
    void text(const char *name, const std::string &value)
    {
        start(name);
        quote(value);
    }

private:
    void start(const char *name)
    {
        if (!first_)
            fputc(',', stdout);
        first_ = false;
        if (name != nullptr)
            printf("\"%s\":", name);
    }
    static void quote(const std::string &value)
    {
        fputc('"', stdout);
        for (const char c : value) {
            const auto byte = static_cast<unsigned char>(c);
            if (c == '"' || c == '\\')
                printf("\\%c", c);
            else if (byte < ' ' || byte >= 0x7f) // the file's bytes may be no UTF-8
                printf("\\u%04x", byte);
            else
                fputc(c, stdout);
        }
        fputc('"', stdout);
    }
    bool first_ = true;
};

} // namespace vma_stats
