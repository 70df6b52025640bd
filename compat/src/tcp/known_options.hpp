// SPDX-License-Identifier: BSD-2-Clause
// What becomes of an accelerated stream with setsockopt(): the lists of what it follows or has no part in, as of Linux
// 6.18. What is on none may change what the kernel does with bytes that it does not see, so the stream goes back to it.
#pragma once

#include "compat/src/table/socket.hpp"

namespace vma::sock::tcp {

struct OptionRule {
    bool known;             // the kernel's setsockopt() is to get it without a word
    const char *reason;     // why only the kernel can follow it, of man/libvma.7; nullptr: no reason is known
    Heir heir;              // of what is unread
    bool is_switch = false; // 0 is off
};

OptionRule rule_of_option(int level, int name);

} // namespace vma::sock::tcp
