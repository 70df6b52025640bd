// SPDX-License-Identifier: BSD-2-Clause
// The behaviour suite against rdma-core and the device that has an address: `behaviour --address A [CASE...]`. It
// prints TAP and exits 1 if a case fails; cases in which rxe is right to do otherwise are skipped, with the reason.
#include "contrib/lab/sim/behaviour.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

using namespace vma;
using namespace vma::sim;

namespace {

// In a process of its own, which may crash or hang: the other cases run all the same. Prints what failed.
bool passes(const verbs::Table &table, const char *address, const behaviour::Case &one)
{
    constexpr unsigned kMostSeconds = 30;
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(kMostSeconds);
        const std::string failure = behaviour::run(table, address, one);
        if (!failure.empty())
            std::printf("# %s\n", failure.c_str());
        std::fflush(stdout);
        ::_exit(failure.empty() ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child)
        return false;
    if (WIFSIGNALED(status))
        std::printf("# ended by signal %d\n", WTERMSIG(status));
    return status == 0;
}

} // namespace

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
        const bool passed = passes(*table, argv[2], one);
        std::printf("%sok %d - %s\n", passed ? "" : "not ", number, one.name);
        failures += passed ? 0 : 1;
    }
    std::printf("1..%d\n", number);
    return failures == 0 ? 0 : 1;
}
