// SPDX-License-Identifier: BSD-2-Clause
// The grammar of one line, by hand: it is small, and each error names the column and what was expected there.
#include "compat/src/rules/parser.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "compat/src/config/privileged.hpp"

namespace vma::rules {

namespace {

constexpr std::string_view kBlank = " \t\r\f\v";
constexpr unsigned kMostPort = 65535;

// Where the parser is in a line, and what it reports there.
class Line
{
public:
    Line(std::string_view text, unsigned number, Reporter &reporter)
        : text_(text.substr(0, text.find('#'))), number_(number), reporter_(reporter)
    {
        skip_blanks();
    }

    bool at_end() const { return at_ == text_.size(); }
    char next() const { return at_end() ? '\0' : text_[at_]; }

    bool take(char c) // a token of one character
    {
        if (next() != c || at_end())
            return false;
        ++at_;
        skip_blanks();
        return true;
    }

    // Up to a blank.
    std::string_view take_word()
    {
        const std::string_view found = rest().substr(0, rest().find_first_of(kBlank));
        pass(found.size());
        return found;
    }

    std::string_view take_while(bool (*belongs)(char))
    {
        const auto *const end = std::find_if_not(rest().begin(), rest().end(), belongs);
        const std::string_view found = rest().substr(0, static_cast<std::size_t>(end - rest().begin()));
        pass(found.size());
        return found;
    }

    std::size_t place() const { return at_; }
    std::string_view since(std::size_t start) const
    {
        const std::string_view all = text_.substr(start, at_ - start);
        return all.substr(0, all.find_last_not_of(kBlank) + 1);
    }

    // False, so that a parser can return it.
    bool expected(const char *what) { return expected(what, at_); }
    bool expected(const char *what, std::size_t place)
    {
        const std::string_view found = text_.substr(place, text_.substr(place).find_first_of(kBlank));
        const int length = static_cast<int>(std::min<std::size_t>(found.size(), 40));
        if (found.empty())
            return report(place, true, "expected %s, found the end of the line", what);
        return report(place, true, "expected %s, found \"%.*s\"", what, length, found.data());
    }
    void note(std::size_t place, const char *what) { report(place, false, "%s", what); }

private:
    std::string_view rest() const { return text_.substr(at_); }
    void pass(std::size_t count)
    {
        at_ += count;
        skip_blanks();
    }
    void skip_blanks() { at_ = std::min(text_.find_first_not_of(kBlank, at_), text_.size()); }

    template <typename... Values> bool report(std::size_t place, bool is_error, const char *format, Values... values)
    {
        Problem problem;
        problem.line = number_;
        problem.column = static_cast<unsigned>(place + 1);
        problem.is_error = is_error;
        std::snprintf(problem.text, sizeof problem.text, format,
                      values...); // NOLINT(cppcoreguidelines-pro-type-vararg)
        for (char &c : problem.text)
            if ((c > 0 && c < ' ') || c == 0x7f)
                c = '?'; // terminals
        reporter_.report(problem);
        return false;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    unsigned number_;
    Reporter &reporter_;
};

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_dotted(char c)
{
    return is_digit(c) || c == '.';
}

bool is_ipv6(char c)
{
    return is_dotted(c) || c == ':' || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Without leading zeros.
bool take_number(Line &line, unsigned most, unsigned &out)
{
    const std::string_view digits = line.take_while(is_digit);
    if (digits.empty() || digits.size() > 9 || (digits.size() > 1 && digits[0] == '0'))
        return false;
    out = 0;
    for (const char c : digits)
        out = out * 10 + static_cast<unsigned>(c - '0');
    return out <= most;
}

// Longer prefixes than an address has are cut, as libvma cuts them.
bool take_prefix(Line &line, unsigned width, Range &out)
{
    out.bits = 128;
    const std::size_t place = line.place() + 1;
    unsigned bits = 0;
    if (!line.take('/'))
        return true;
    if (!take_number(line, 999999999, bits))
        return line.expected("the length of a prefix", place);
    if (bits > width)
        line.note(place, width == 32 ? "a prefix of IPv4 has 32 bits at most: 32 is taken"
                                     : "a prefix of IPv6 has 128 bits at most: 128 is taken");
    out.bits = 128 - width + std::min(bits, width);
    return true;
}

bool take_ipv4(Line &line, Range &out)
{
    const std::size_t place = line.place();
    const std::string text(line.take_while(is_dotted));
    in_addr address = {};
    if (::inet_pton(AF_INET, text.c_str(), &address) != 1)
        return line.expected("an address (1.2.3.4, [2001:db8::1] or *)", place);
    out.address.s6_addr[10] = out.address.s6_addr[11] = 0xff;
    std::memcpy(&out.address.s6_addr[12], &address, sizeof address);
    return take_prefix(line, 32, out);
}

bool take_ipv6(Line &line, Range &out)
{
    line.take('[');
    const std::size_t place = line.place();
    const std::string text(line.take_while(is_ipv6));
    if (::inet_pton(AF_INET6, text.c_str(), &out.address) != 1)
        return line.expected("an IPv6 address", place);
    const bool inside = line.next() == '/';
    if (inside && !take_prefix(line, 128, out))
        return false;
    if (!line.take(']'))
        return line.expected("\"]\"");
    return inside || take_prefix(line, 128, out);
}

bool take_address(Line &line, Range &out)
{
    out.any_address = line.take('*');
    if (out.any_address)
        return true;
    return line.next() == '[' ? take_ipv6(line, out) : take_ipv4(line, out);
}

bool take_ports(Line &line, Range &out)
{
    constexpr const char *kWanted = "a port (0-65535), a range of ports (5000-5010) or *";
    unsigned first = 0;
    unsigned last = 0;
    const std::size_t place = line.place();
    if (line.take('*'))
        return true;
    if (!take_number(line, kMostPort, first))
        return line.expected(kWanted, place);
    last = first;
    const std::size_t second = line.place() + 1;
    if (line.take('-') && (!take_number(line, kMostPort + 1, last) || last < first))
        return line.expected("the last port of the range, not less than the first", second);
    out.first_port = static_cast<std::uint16_t>(first);
    out.last_port = static_cast<std::uint16_t>(std::min(last, kMostPort)); // VMA's manual writes all ports as 0-65536
    return true;
}

bool take_range(Line &line, Range &out)
{
    if (!take_address(line, out))
        return false;
    if (!line.take(':'))
        return line.expected("\":\" and a port");
    return take_ports(line, out);
}

template <typename Name, std::size_t Count>
bool take_name(Line &line, const char *const (&names)[Count], const char *what, Name &out)
{
    const std::size_t place = line.place();
    const std::string_view word = line.take('*') ? "*" : line.take_while(is_letter);
    for (std::size_t i = 0; i < Count; ++i) {
        if (word == names[i]) {
            out = static_cast<Name>(i);
            return true;
        }
    }
    return line.expected(what, place);
}

bool parse_rule(Line &line, Rule &rule)
{
    if (!take_name(line, kTransportNames, "a transport (vma, os or *)", rule.transport) ||
        !take_name(line, kRoleNames, "a role (tcp_server, tcp_client, udp_receiver, udp_sender or udp_connect)",
                   rule.role) ||
        !take_range(line, rule.first))
        return false;
    const std::size_t place = line.place();
    Range second;
    if (line.take(':')) {
        if (!take_range(line, second))
            return false;
        if (has_second(rule.role))
            rule.second = second;
        else
            line.note(place, "this role has one address: the second one is not looked at");
    }
    return line.at_end() || line.expected("the end of the line");
}

bool parse_application(Line &line, Statement &out)
{
    out.program = line.take_word();
    if (out.program.empty())
        return line.expected("the name of a program, or *");
    out.id = line.take_word();
    if (out.id.empty())
        return line.expected("an application id, or *");
    return line.at_end() || line.expected("the end of the line");
}

// Taken, and of no effect: VMA_LOG_FILE and VMA_TRACELEVEL say where the log goes and what is in it.
bool parse_log(Line &line)
{
    unsigned level = 0;
    const std::size_t start = line.place();
    while (!line.at_end()) {
        const std::size_t place = line.place();
        const std::string_view what = line.take_word();
        const std::size_t argument = line.place();
        if (what == "min-level") {
            if (!take_number(line, 999999999, level))
                return line.expected("a number", argument);
        } else if (what == "destination") {
            const std::string_view where = line.take_word();
            const bool file = where == "file" || where == "yfile";
            if (where != "stderr" && where != "ystderr" && where != "syslog" && !file)
                return line.expected("stderr, syslog or file", argument);
            if (file && line.take_word().empty())
                return line.expected("the name of a file");
        } else {
            return line.expected("destination or min-level", place);
        }
    }
    line.note(start, "has no effect: see VMA_LOG_FILE and VMA_TRACELEVEL");
    return true;
}

// What it means is in config/privileged.hpp.
bool parse_privileged(Line &line)
{
    std::size_t place = line.place();
    if (!line.take_word().starts_with('/'))
        return line.expected("the path of a program", place);
    while (!line.at_end()) {
        place = line.place();
        const std::string_view value = line.take_word();
        if (!value.starts_with("VMA_") || value.find('=') == std::string_view::npos)
            return line.expected("VMA_NAME=VALUE", place);
    }
    return true;
}

} // namespace

Statement parse_line(std::string_view text, unsigned number, Reporter &reporter)
{
    Line line(text, number, reporter);
    Statement out;
    if (line.at_end())
        return out;
    const std::size_t place = line.place();
    const std::string_view word = line.take_word();
    out.rule.line = number;
    if (word == "use")
        out.kind = parse_rule(line, out.rule) ? Kind::kRule : Kind::kWrong;
    else if (word == "application-id")
        out.kind = parse_application(line, out) ? Kind::kApplication : Kind::kWrong;
    else if (word == "log")
        out.kind = parse_log(line) ? Kind::kLog : Kind::kWrong;
    else if (word == config::kPrivilegedWord)
        out.kind = parse_privileged(line) ? Kind::kPrivileged : Kind::kWrong;
    else
        out.kind = line.expected("use, application-id, privileged or log", place) ? Kind::kNothing : Kind::kWrong;
    return out;
}

bool parse_range(std::string_view text, Range &out, std::string &why)
{
    class Keep final : public Reporter
    {
    public:
        explicit Keep(std::string &text) : text_(text) {}
        void report(const Problem &problem) override { text_ = problem.text; }

    private:
        std::string &text_;
    } keep(why);
    Line line(text, 1, keep);
    return take_range(line, out) && (line.at_end() || line.expected("nothing more"));
}

} // namespace vma::rules
