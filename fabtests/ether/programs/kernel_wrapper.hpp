// SPDX-License-Identifier: BSD-2-Clause
// A library that is preloaded to stand between the provider and the kernel: it answers some system calls, or changes
// their arguments.
#pragma once

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>

// The library's own. True: `result` is the answer, with errno; else the kernel gets the arguments as they are then.
static bool answers(long number, long (&arguments)[6], long &result);

extern "C" [[gnu::visibility("default")]] long syscall(long number, ...) noexcept
{
    static const auto real = reinterpret_cast<decltype(&::syscall)>(::dlsym(RTLD_NEXT, "syscall"));
    va_list list;
    va_start(list, number);
    long a[6];
    for (long &argument : a)
        argument = va_arg(list, long);
    va_end(list);
    long result = 0;
    return answers(number, a, result) ? result : real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
