// SPDX-License-Identifier: BSD-2-Clause
// The corpus of TCP's fuzzer, run as a unit test.
#include "prov/vma/test/inet/fuzz_corpus.hpp"

namespace {

void every_file(void **)
{
    fuzz::run_corpus("tcp");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_file),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
