// SPDX-License-Identifier: BSD-2-Clause
// Commands on standard input, one a line, for the programs of this folder, and the words in them.
#pragma once

#include <functional>
#include <string>

#include "inet/wire/types.hpp"

namespace fabtest {

class Commands
{
public:
    // Calls `obey` for each line that has arrived; waits for none. False at the end of the input.
    bool take(const std::function<void(const std::string &line)> &obey);

private:
    std::string input_;
};

// "ok", or errno's name.
void answer(int status);

bool parse_address(const std::string &text, vma::inet::IpAddress &address);
std::string text_of(const vma::inet::IpAddress &address);

[[noreturn]] void die(const char *what, int error); // exit status 3

} // namespace fabtest
