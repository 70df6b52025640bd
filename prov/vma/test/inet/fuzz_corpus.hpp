// SPDX-License-Identifier: BSD-2-Clause
// Runs a fuzzer's entry point over its corpus in a unit test, so that what it once found stays mended whichever
// compiler there is. The program is linked with the fuzzer's source, which defines the entry point.
#pragma once

#include "fabtests/unit.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace fuzz {

// `make check` names the source folder; by hand, it is where the compiler found this file.
inline std::filesystem::path corpus(const char *name, const char *folder)
{
    const char *const srcdir = std::getenv("srcdir");
    const std::filesystem::path tests = srcdir ? std::filesystem::path(srcdir) / "prov/vma/test"
                                               : std::filesystem::path(__FILE__).parent_path().parent_path();
    return tests / folder / "corpus" / name;
}

inline void run_corpus(const char *name, const char *folder = "inet")
{
    unsigned files = 0;
    for (const auto &entry : std::filesystem::directory_iterator(corpus(name, folder))) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
        assert_false(bytes.empty());
        assert_int_equal(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t *>(bytes.data()), bytes.size()), 0);
        ++files;
    }
    std::printf("# %u files\n", files);
    assert_true(files >= 10);
}

} // namespace fuzz
