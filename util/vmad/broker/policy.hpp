// SPDX-License-Identifier: BSD-2-Clause
// vmad.conf: who may meet whom.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "request.hpp"

namespace vma::guard {

class Policy
{
public:
    // A file, or its text. An empty text, or what is wrong: file, line, and what was expected. Then it is unchanged.
    std::string read(const std::string &path);
    std::string parse(std::string_view text, const std::string &path);

    std::size_t size() const { return rules_.size(); } // rules
    // The first rule that fits decides; where none does, whether both are of one user. `port`: the acceptor's own.
    bool allows(const Person &a, const Person &b, std::uint16_t port) const;

private:
    struct Side {
        bool any = true;
        uid_t user = 0;
        std::string cgroup; // a pattern of fnmatch(3); empty: any
    };
    struct Rule {
        bool allow = false;
        Side sides[2];
        std::uint16_t first_port = 0;
        std::uint16_t last_port = 65535;
    };
    class Reader;

    static bool fits(const Side &side, const Person &person, bool allow);

    std::vector<Rule> rules_;
};

} // namespace vma::guard
