// SPDX-License-Identifier: BSD-2-Clause
// The seed of a test's random numbers: printed, so that VMA_TEST_SEED repeats a run. What is made of it stands with the
// test.
#pragma once

#include "fabtests/unit.hpp"

#include <stdlib.h>

#include <random>

namespace vma::test {

inline unsigned seed()
{
    const char *const given = ::getenv("VMA_TEST_SEED");
    const unsigned value =
        given != nullptr ? static_cast<unsigned>(::strtoul(given, nullptr, 0)) : std::random_device{}();
    print_message("# VMA_TEST_SEED=%u\n", value);
    return value;
}

} // namespace vma::test
