// SPDX-License-Identifier: BSD-2-Clause
// A fuzzer of what users write: libvma.conf, and the values of VMA_* variables. An input's first byte says what the
// rest is: 0 a file of rules, and else as many variables, each a byte that chooses it, and its value up to a line's
// end.
//
// With clang: `make compat/test/config/fuzz_config`, then `compat/test/config/fuzz_config -max_total_time=60 FOUND
// CORPUS`, where FOUND is an empty folder and CORPUS is corpus/config beside this file.
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "compat/src/config/aliases.hpp"
#include "compat/src/config/cpu_list.hpp"
#include "compat/src/config/header.hpp"
#include "compat/src/config/table.hpp"
#include "compat/src/rules/parser.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

using namespace vma;

void promise(bool kept)
{
    if (!kept)
        __builtin_trap();
}

// ---- libvma.conf

class Lines final : public rules::Reporter
{
public:
    explicit Lines(std::string_view text) : text_(text) {}
    void report(const rules::Problem &problem) override
    {
        promise(problem.line >= 1 && problem.line <= 1 + text_.size());
        promise(problem.column <= 1 + text_.size());
        promise(memchr(problem.text, '\0', sizeof problem.text) != nullptr && problem.text[0] != '\0');
        for (const char *c = problem.text; *c != '\0'; ++c)
            promise(static_cast<unsigned char>(*c) >= ' ');
    }

private:
    std::string_view text_;
};

sockaddr_in6 address(const char *text, std::uint16_t port)
{
    sockaddr_in6 made{};
    made.sin6_family = AF_INET6;
    promise(inet_pton(AF_INET6, text, &made.sin6_addr) == 1);
    made.sin6_port = htons(port);
    return made;
}

void apply(const rules::Rule &rule)
{
    const sockaddr_in6 ends[] = {address("::ffff:10.1.2.3", 80), address("2001:db8::1", 65535), address("::", 0)};
    promise(rule.first.bits <= 128 && rule.second.bits <= 128);
    promise(rule.first.first_port <= rule.first.last_port && rule.second.first_port <= rule.second.last_port);
    promise(static_cast<std::size_t>(rule.role) < rules::kRoles &&
            static_cast<std::size_t>(rule.transport) < rules::kTransports);
    for (const sockaddr_in6 &one : ends) {
        static_cast<void>(rules::matches(rule, one, nullptr));
        for (const sockaddr_in6 &other : ends)
            static_cast<void>(rules::matches(rule, one, &other));
    }
    static_cast<void>(rules::means_kernel(rule));
}

void read_rules(std::string_view text)
{
    Lines lines(text);
    const rules::File file = rules::parse_text(text, lines);
    for (const rules::Section &section : file.sections)
        for (const rules::Rule &rule : section.rules)
            apply(rule);
    bool known = false;
    static_cast<void>(rules::section_of(file, "program", "id", known));
    static_cast<void>(rules::section_of(file, "", rules::kDefaultId, known));
}

// ---- variables

void check(const config::Params &params)
{
    for (const config::Row &row : config::parameters()) {
        char text[64];
        config::describe_value(params, row, text, sizeof text);
        promise(memchr(text, '\0', sizeof text) != nullptr);
        if (config::is_text(row))
            continue;
        const std::int64_t value = config::number_of(params, row);
        bool chosen = row.choices.empty();
        for (const auto &choice : row.choices)
            chosen = chosen || choice.value == value;
        promise(chosen);
    }
}

void forget(const config::Params &params)
{
    for (const config::Row &row : config::parameters())
        if (config::is_text(row))
            free(const_cast<char *>(config::text_of(params, row)));
}

void read_value(const char *value)
{
    const auto mask = std::make_unique<config::CpuMask>();
    static_cast<void>(config::parse_cpus(value, *mask));
    char text[32];
    if (!config::expand_process_id(value, text, sizeof text))
        promise(strlen(text) < sizeof text);
    std::string why;
    rules::Range range;
    if (!rules::parse_range(value, range, why))
        promise(!why.empty());
}

constexpr std::size_t kLongestName = 40;

void read_variables(std::string_view text, std::size_t count)
{
    const auto rows = config::parameters();
    std::string set[256];
    std::size_t used = 0;
    for (; used < count && !text.empty(); ++used) {
        const config::Row &row = rows[static_cast<std::uint8_t>(text.front()) % rows.size()];
        text.remove_prefix(1);
        const std::size_t length = std::min(text.find('\n'), text.size());
        const std::string value(text.substr(0, text.substr(0, length).find('\0')));
        text.remove_prefix(std::min(length + 1, text.size()));
        read_value(value.c_str());
        if (used == 0 && value.size() < kLongestName) // it takes long
            static_cast<void>(config::nearest_name(value.c_str()));
        set[used] = std::string(row.name) + "=" + value;
        putenv(set[used].data()); // setenv() keeps what it has copied for ever
    }
    config::Params params = config::g_params;
    const unsigned wrong = config::read_environment(params);
    promise(wrong <= used);
    check(params);
    forget(params);
    while (used != 0) {
        std::string &one = set[--used];
        unsetenv(one.substr(0, one.find('=')).c_str());
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0)
        return 0;
    // Memory of its own, so that AddressSanitizer sees what is read behind its end.
    const auto copy = std::make_unique<char[]>(size);
    memcpy(copy.get(), data + 1, size - 1);
    const std::string_view text(copy.get(), size - 1);
    if (data[0] == 0)
        read_rules(text);
    else
        read_variables(text, data[0]);
    return 0;
}
