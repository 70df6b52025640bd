// SPDX-License-Identifier: BSD-2-Clause
// A fuzzer of the provider's configuration file, and through it of the filters that its values are.
//
// With clang: `make prov/vma/test/core/fuzz_config_file`, then `prov/vma/test/core/fuzz_config_file -max_total_time=60
// FOUND CORPUS`, where FOUND is an empty folder and CORPUS is corpus/config_file beside this file.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "core/config_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

using namespace vma::core;

void promise(bool kept)
{
    if (!kept)
        __builtin_trap();
}

void check_problems(const std::vector<ConfigProblem> &problems, std::string_view text)
{
    promise(problems.size() <= kMostConfigProblems + 1);
    for (const ConfigProblem &problem : problems) {
        promise(problem.line <= 1 + text.size() && !problem.text.empty() && problem.text.size() < 1024);
        for (const char c : problem.text)
            promise(static_cast<unsigned char>(c) >= ' ' && static_cast<unsigned char>(c) < 0x7f);
    }
}

void check_sections(const ConfigFile &file)
{
    const in6_addr any{};
    promise(file.sections().size() <= kMostConfigSections);
    for (const ConfigSection &section : file.sections()) {
        promise(section.priority <= kFirst && !section.name.empty());
        const auto priority = file.priority_of(section.kind, "mlx5_0", "ib0", any);
        promise(!priority || *priority <= kFirst);
        if (const auto ports = file.ports_of(section.kind, "mlx5_0", "ib0", any))
            promise(ports->low >= 1 && ports->low <= ports->high && section.kind == DeviceKind::rdma);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    // Memory of its own, so that AddressSanitizer sees what is read behind its end.
    const auto copy = std::make_unique<char[]>(size + 1);
    if (size != 0)
        std::memcpy(copy.get(), data, size);
    const std::string_view text(copy.get(), size);
    std::vector<ConfigProblem> problems;
    const ConfigFile file = parse_config(text, problems);
    check_problems(problems, text);
    check_sections(file);
    return 0;
}
