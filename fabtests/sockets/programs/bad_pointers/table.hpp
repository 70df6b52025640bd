// SPDX-License-Identifier: BSD-2-Clause
// What libvma.so exports, with the arguments of each: the table of which every call with a bad pointer is made.
#pragma once

#include <string>
#include <vector>

namespace fabtest {

// Arguments are words: a number; `fd`, the descriptor that is tried; `set`, `pipe`, `into`, `file`: others; and
// pointers, each with the name of what stands there (contents.cpp): i:what is read, o:what is written, b:what is both,
// w:the same where none at all would be waited for for ever, p:what only libc knows. A row of "-" has no pointer among
// its arguments, or none of memory; "=" is called once as it stands.
struct Row {
    enum class Gives { kValue, kDescriptor, kPointer };
    std::string name;
    std::string arguments;
    Gives gives = Gives::kValue;
    long number = -1; // of a system call, by syscall()
};

const std::vector<Row> &rows();

} // namespace fabtest
