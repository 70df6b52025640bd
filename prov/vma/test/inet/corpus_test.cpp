// SPDX-License-Identifier: BSD-2-Clause
// The fuzzer's corpus, run as a unit test: what it once found stays mended, whichever compiler there is. And every
// answer that the wire layer can give occurs in it, so that a fuzzer that starts from it starts from everywhere.
#include "fabtests/unit.hpp"

#include <cstdio>

#include "prov/vma/test/inet/fuzz_corpus.hpp"
#include "prov/vma/test/inet/fuzz_frame.hpp"

namespace {

template <typename Counts> void assert_all_reached(const char *what, const Counts &counts)
{
    for (std::size_t i = 0; i < counts.size(); ++i)
        if (counts[i] == 0) {
            std::printf("# no file of the corpus leads to %s %zu\n", what, i);
            UNIT_FAIL("the corpus has a gap");
        }
}

void every_file(void **)
{
    fuzz::run_corpus("frame");
}

void every_answer(void **)
{
    assert_all_reached("Parsed", fuzz_reached().parsed);
    assert_all_reached("Joined", fuzz_reached().joined);
    assert_all_reached("IcmpParsed", fuzz_reached().icmp);
    assert_all_reached("UdpParsed", fuzz_reached().udp);
    assert_all_reached("GRO", fuzz_reached().gro);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_file),
        cmocka_unit_test(every_answer),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
