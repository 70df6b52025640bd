// SPDX-License-Identifier: BSD-2-Clause
// The behaviour suite against rdma-core and the device that has an address: `behaviour --address A [CASE...]`. It
// prints TAP and exits 1 if a case fails; cases in which rxe is right to do otherwise are skipped, with the reason.
#include "contrib/lab/sim/behaviour.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>

using namespace vma;
using namespace vma::sim;

int main(int argc, char **argv)
{
    if (argc < 3 || std::string_view(argv[1]) != "--address") {
        std::fprintf(stderr, "usage: %s --address ADDRESS [CASE...]\n", argv[0]);
        return 2;
    }
    const verbs::Table *table = verbs::table();
    if (table == nullptr) {
        std::fprintf(stderr, "rdma-core is not installed\n");
        return 2;
    }
    const std::vector<behaviour::Case> all = behaviour::cases();
    const auto chosen = [&](const behaviour::Case &one) {
        return argc == 3 ||
               std::any_of(argv + 3, argv + argc, [&](const char *name) { return std::string_view(name) == one.name; });
    };
    int number = 0;
    int failures = 0;
    for (const behaviour::Case &one : all) {
        if (!chosen(one))
            continue;
        ++number;
        if (one.not_on_rxe != nullptr && argc == 3) {
            std::printf("ok %d - %s # SKIP %s\n", number, one.name, one.not_on_rxe);
            continue;
        }
        const std::string failure = behaviour::run(*table, argv[2], one);
        std::printf("%sok %d - %s\n", failure.empty() ? "" : "not ", number, one.name);
        if (!failure.empty())
            std::printf("# %s\n", failure.c_str());
        failures += failure.empty() ? 0 : 1;
        std::fflush(stdout);
    }
    std::printf("1..%d\n", number);
    return failures == 0 ? 0 : 1;
}
