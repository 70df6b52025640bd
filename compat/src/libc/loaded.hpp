// SPDX-License-Identifier: BSD-2-Clause
// This library's place in memory, and what the dynamic loader's list says of an object.
#pragma once

#include <link.h>

// From this library's first byte to behind its last one, and where its zeroes begin; the linker's names.
extern "C" [[gnu::visibility("hidden")]] const char __ehdr_start[];
extern "C" [[gnu::visibility("hidden")]] char __bss_start[];
extern "C" [[gnu::visibility("hidden")]] char _end[];

namespace vma::libc {

// Of an entry of the object's dynamic section: the loader adds the object's base to it, but not in each object.
inline ElfW(Addr) address_in(const link_map &object, ElfW(Addr) value)
{
    return value < object.l_addr ? object.l_addr + value : value;
}

} // namespace vma::libc
