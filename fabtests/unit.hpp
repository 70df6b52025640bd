// SPDX-License-Identifier: BSD-2-Clause
// What every cmocka unit test includes: cmocka itself with the headers it wants before it, and its macros that C++
// can't have. It holds no fixture of any subsystem; those stand beside the tests that use them.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

// cmocka's fail() and skip() are macros that break the standard library's headers; these stand in for them. A skipped
// case is named, with the reason, by `make check` and `setup.sh check`.
#undef fail
#undef fail_msg
#undef skip

#define UNIT_FAIL(message)                                                                                             \
    do {                                                                                                               \
        print_error("%s\n", message);                                                                                  \
        _fail(__FILE__, __LINE__);                                                                                     \
    } while (0)

#define UNIT_SKIP(reason)                                                                                              \
    do {                                                                                                               \
        print_message("# SKIP: %s\n", reason);                                                                         \
        _skip(__FILE__, __LINE__);                                                                                     \
    } while (0)
