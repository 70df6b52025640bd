// SPDX-License-Identifier: BSD-2-Clause
#include "policy.hpp"

#include <fnmatch.h>
#include <pwd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "core/parse_number.hpp"

namespace vma::guard {

namespace {

constexpr std::size_t kMostText = 1 << 20;

std::vector<std::string_view> words_of(std::string_view line)
{
    constexpr std::string_view kBlank = " \t\r";
    std::vector<std::string_view> words;
    line = line.substr(0, line.find('#'));
    for (std::size_t at = 0; (at = line.find_first_not_of(kBlank, at)) != line.npos;) {
        const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
        words.push_back(line.substr(at, end - at));
        at = end;
    }
    return words;
}

bool to_number(std::string_view word, std::uint32_t most, std::uint32_t &out)
{
    return core::parse_number(word, most, out);
}

} // namespace

// A line's words, one after another. What is wrong is told once, by what was expected in its place.
class Policy::Reader
{
public:
    explicit Reader(std::vector<std::string_view> words) : words_(std::move(words)) {}

    // broker allow|deny user NAME [cgroup PATTERN] with user NAME [cgroup PATTERN] [port N[-M]]
    std::string read(Rule &rule)
    {
        const bool sound = keyword("broker") && decision(rule) && side(rule.sides[0]) && keyword("with") &&
                           side(rule.sides[1]) && ports(rule) && end(rule);
        if (sound)
            return "";
        return "expected " + expected_ + (at_ < words_.size() ? ", found \"" + std::string(words_[at_]) + '"' : "");
    }

private:
    bool is_next(std::string_view word) const { return at_ < words_.size() && words_[at_] == word; }

    bool expect(std::string what)
    {
        expected_ = std::move(what);
        return false;
    }

    bool keyword(std::string_view word)
    {
        if (!is_next(word))
            return expect('"' + std::string(word) + '"');
        ++at_;
        return true;
    }

    bool decision(Rule &rule)
    {
        rule.allow = is_next("allow");
        if (!rule.allow && !is_next("deny"))
            return expect("\"allow\" or \"deny\"");
        ++at_;
        return true;
    }

    bool side(Side &side)
    {
        if (!keyword("user") || !user(side))
            return false;
        if (!is_next("cgroup"))
            return true;
        ++at_;
        if (at_ == words_.size() || (words_[at_][0] != '/' && words_[at_][0] != '*'))
            return expect("a pattern of paths of control groups, which begins with / or *");
        side.cgroup = words_[at_++];
        return true;
    }

    bool user(Side &side)
    {
        if (at_ == words_.size())
            return expect("a user's name or number, or *");
        side.any = is_next("*");
        std::uint32_t number = 0;
        const std::string name(words_[at_]);
        if (!side.any && to_number(name, UINT_MAX - 1, number)) {
            side.user = number;
        } else if (!side.any) {
            const passwd *const known = getpwnam(name.c_str());
            if (known == nullptr)
                return expect("a user's name or number, or *");
            side.user = known->pw_uid;
        }
        ++at_;
        return true;
    }

    bool ports(Rule &rule)
    {
        if (!is_next("port"))
            return true;
        ++at_;
        const std::string_view word = at_ < words_.size() ? words_[at_] : "";
        const std::size_t dash = word.find('-');
        std::uint32_t first = 0;
        std::uint32_t last = 0;
        if (!to_number(word.substr(0, dash), 65535, first) ||
            !to_number(dash == word.npos ? word : word.substr(dash + 1), 65535, last) || first > last)
            return expect("a port, or two with a - between them, 0 to 65535");
        has_port_ = true;
        rule.first_port = static_cast<std::uint16_t>(first);
        rule.last_port = static_cast<std::uint16_t>(last);
        ++at_;
        return true;
    }

    bool end(const Rule &rule)
    {
        if (at_ == words_.size())
            return true;
        if (has_port_)
            return expect("the end of the line");
        const std::string cgroup = rule.sides[1].cgroup.empty() ? "\"cgroup\", " : "";
        return expect(cgroup + "\"port\" or the end of the line");
    }

    std::vector<std::string_view> words_;
    std::size_t at_ = 0;
    bool has_port_ = false;
    std::string expected_;
};

std::string Policy::read(const std::string &path)
{
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "re"), std::fclose);
    if (!file)
        return path + ": " + std::strerror(errno);
    std::string text(kMostText + 1, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
    if (std::ferror(file.get()) != 0)
        return path + ": can't be read";
    return text.size() > kMostText ? path + ": more than 1 MiB" : parse(text, path);
}

std::string Policy::parse(std::string_view text, const std::string &path)
{
    std::vector<Rule> rules;
    for (unsigned number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::vector<std::string_view> words = words_of(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (words.empty())
            continue;
        Rule rule;
        if (const std::string error = Reader(std::move(words)).read(rule); !error.empty()) {
            std::string where = path;
            return where.append(":").append(std::to_string(number)).append(": ").append(error);
        }
        rules.push_back(std::move(rule));
    }
    rules_ = std::move(rules);
    return "";
}

// A control group that isn't known may be any, for what denies, and none, for what allows.
bool Policy::fits(const Side &side, const Person &person, bool allow)
{
    if (!side.any && side.user != person.user)
        return false;
    if (side.cgroup.empty())
        return true;
    return person.cgroup.empty() ? !allow : fnmatch(side.cgroup.c_str(), person.cgroup.c_str(), 0) == 0;
}

bool Policy::allows(const Person &a, const Person &b, std::uint16_t port) const
{
    for (const Rule &rule : rules_) {
        if (port < rule.first_port || port > rule.last_port)
            continue;
        const auto fit = [&](const Person &first, const Person &second) {
            return fits(rule.sides[0], first, rule.allow) && fits(rule.sides[1], second, rule.allow);
        };
        if (fit(a, b) || fit(b, a))
            return rule.allow;
    }
    return a.user == b.user;
}

} // namespace vma::guard
