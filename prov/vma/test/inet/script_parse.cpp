// SPDX-License-Identifier: BSD-2-Clause
// Words, numbers and segments of the TCP scripts, read and written: an error shows what came as one would have
// written it.
#include <charconv>

#include "prov/vma/test/inet/script.hpp"

namespace vma::inet::script {

namespace {

constexpr char kLetters[] = "FSRPAUEW"; // in the order of the header's bits
constexpr const char *kEcnNames[] = {"none", "ect1", "ect0", "ce"};

bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

bool is_mark(char c)
{
    return c == '[' || c == ']' || c == '=';
}

std::string relative(const std::optional<std::uint32_t> &number)
{
    return number ? std::to_string(static_cast<std::int32_t>(*number)) : "*";
}

// A number, or `*`: no value. False: neither.
template <typename Value> bool parse_or_any(std::string_view word, std::optional<Value> &value)
{
    value.reset();
    if (word == "*")
        return true;
    const std::optional<std::int64_t> number = parse_number(word);
    if (number)
        value = static_cast<Value>(*number);
    return number.has_value();
}

bool parse_flags(std::string_view word, std::uint8_t &flags)
{
    flags = 0;
    if (word == "-") // no flag at all
        return true;
    for (const char c : word) {
        const std::size_t bit = std::string_view(kLetters).find(c);
        if (bit == std::string_view::npos)
            return false;
        flags |= static_cast<std::uint8_t>(1U << bit);
    }
    return !word.empty();
}

// SEQ or SEQ+LENGTH.
bool parse_place(std::string_view word, Pattern &pattern)
{
    const std::size_t plus = word.find('+');
    if (plus != std::string_view::npos) {
        const std::optional<std::int64_t> length = parse_number(word.substr(plus + 1));
        if (!length)
            return false;
        pattern.length = static_cast<std::uint32_t>(*length);
    }
    return parse_or_any(word.substr(0, plus), pattern.seq);
}

bool parse_sack(std::string_view word, Pattern &pattern)
{
    const std::size_t minus = word.find('-', 1);
    if (minus == std::string_view::npos)
        return false;
    const std::optional<std::int64_t> left = parse_number(word.substr(0, minus));
    const std::optional<std::int64_t> right = parse_number(word.substr(minus + 1));
    if (!left || !right)
        return false;
    pattern.sacks.push_back({static_cast<Seq>(*left), static_cast<Seq>(*right)});
    return true;
}

bool parse_option(Words &words, Pattern &pattern)
{
    const std::string_view name = words.next();
    if (name == "*")
        return pattern.any_options = true;
    if (name == "mss")
        return parse_or_any(words.next(), pattern.mss) && pattern.mss;
    if (name == "wscale")
        return parse_or_any(words.next(), pattern.scale) && pattern.scale;
    if (name == "sackok")
        return pattern.sack_ok = true;
    if (name == "ts") {
        pattern.stamps = true;
        const std::string_view after = words.peek();
        if (after == "*" || parse_number(after))
            return parse_or_any(words.next(), pattern.stamp) && parse_or_any(words.next(), pattern.echo);
        return true;
    }
    if (name != "sack" || !parse_sack(words.next(), pattern))
        return false;
    while (!words.empty() && words.peek().find('-') != std::string_view::npos)
        if (!parse_sack(words.next(), pattern))
            return false;
    return true;
}

bool parse_ecn(std::string_view word, Pattern &pattern)
{
    for (std::size_t i = 0; i < std::size(kEcnNames); ++i)
        if (word == kEcnNames[i])
            pattern.ecn = static_cast<std::uint8_t>(i);
    return pattern.ecn.has_value();
}

bool parse_field(Words &words, Pattern &pattern)
{
    const std::string_view name = words.next();
    if (name == "ack")
        return parse_or_any(words.next(), pattern.ack);
    if (name == "win")
        return parse_or_any(words.next(), pattern.window);
    if (name == "ecn")
        return parse_ecn(words.next(), pattern);
    if (name == "each") {
        const std::optional<std::int64_t> each = parse_number(words.next());
        pattern.each = static_cast<std::uint32_t>(each.value_or(0));
        return pattern.each != 0;
    }
    if (name == "together")
        return pattern.together = true;
    if (name != "[")
        return false;
    pattern.listed = true;
    while (!words.take("]"))
        if (words.empty() || !parse_option(words, pattern))
            return false;
    return true;
}

} // namespace

Words::Words(std::string_view line)
{
    std::size_t i = 0;
    while (i < line.size() && line[i] != '#') {
        if (is_space(line[i])) {
            ++i;
            continue;
        }
        const std::size_t from = i++;
        while (!is_mark(line[from]) && i < line.size() && !is_space(line[i]) && !is_mark(line[i]) && line[i] != '#')
            ++i;
        words_.push_back(line.substr(from, i - from));
    }
}

bool Words::take(std::string_view word)
{
    if (empty() || words_[at_] != word)
        return false;
    ++at_;
    return true;
}

std::optional<std::int64_t> parse_number(std::string_view word)
{
    std::int64_t number = 0;
    const char *const end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || at != end)
        return std::nullopt;
    return number;
}

std::optional<Nanos> parse_seconds(std::string_view word)
{
    constexpr std::size_t kDigits = 9;
    const std::size_t dot = word.find('.');
    const std::optional<std::int64_t> whole = parse_number(word.substr(0, dot));
    if (!whole || *whole < 0)
        return std::nullopt;
    std::int64_t part = 0;
    if (dot != std::string_view::npos) {
        std::string digits(word.substr(dot + 1));
        if (digits.empty() || digits.size() > kDigits || digits[0] == '-')
            return std::nullopt;
        digits.resize(kDigits, '0');
        const std::optional<std::int64_t> number = parse_number(digits);
        if (!number)
            return std::nullopt;
        part = *number;
    }
    return static_cast<Nanos>(*whole) * kSecond + static_cast<Nanos>(part);
}

std::string write_seconds(Nanos time)
{
    std::string part = std::to_string(time % kSecond + kSecond).substr(1);
    part.erase(part.find_last_not_of('0') + 1);
    return std::to_string(time / kSecond) + (part.empty() ? "" : "." + part);
}

std::string parse_pattern(Words &words, Pattern &pattern)
{
    const std::string flags(words.next());
    if (!parse_flags(flags, pattern.flags))
        return "flags of " + std::string(kLetters) + " expected, not '" + flags + "'";
    const std::string place(words.next());
    if (!parse_place(place, pattern))
        return "a sequence number expected, not '" + place + "'";
    while (!words.empty()) {
        const std::string field(words.peek());
        if (!parse_field(words, pattern))
            return "'" + field + "' of a segment is not understood";
    }
    if (pattern.each != 0 && (!pattern.seq || pattern.length == 0))
        return "'each' needs a sequence number and a length";
    if (pattern.together && pattern.each == 0)
        return "'together' needs 'each'";
    return "";
}

std::string write_pattern(const Pattern &p)
{
    std::string out;
    for (unsigned bit = 0; bit < 8; ++bit)
        if ((p.flags & (1U << bit)) != 0)
            out += kLetters[bit];
    if (out.empty())
        out = "-";
    out += " " + relative(p.seq);
    if (p.length != 0)
        out += "+" + std::to_string(p.length);
    if (p.ack)
        out += " ack " + relative(p.ack);
    if (p.window)
        out += " win " + std::to_string(*p.window);
    if (p.ecn)
        out += std::string(" ecn ") + kEcnNames[*p.ecn];
    if (!p.listed)
        return out;
    std::string options;
    const auto add = [&options](const std::string &option) { options += (options.empty() ? "" : ", ") + option; };
    if (p.any_options)
        add("*");
    if (p.mss)
        add("mss " + std::to_string(*p.mss));
    if (p.scale)
        add("wscale " + std::to_string(*p.scale));
    if (p.sack_ok)
        add("sackok");
    if (p.stamps)
        add("ts " + relative(p.stamp) + " " + relative(p.echo));
    std::string sacks;
    for (const SeqRange &sack : p.sacks)
        sacks += " " + relative(sack.left) + "-" + relative(sack.right);
    if (!sacks.empty())
        add("sack" + sacks);
    return out + " [" + options + "]";
}

bool matches(const Pattern &wanted, const Pattern &came)
{
    const auto fits = [](const auto &want, const auto &is) { return !want || want == is; };
    const auto checked = static_cast<std::uint8_t>(~kPsh | wanted.flags); // PSH only where it is written
    if (((wanted.flags ^ came.flags) & checked) != 0 || !fits(wanted.seq, came.seq) || wanted.length != came.length ||
        !fits(wanted.ack, came.ack) || !fits(wanted.window, came.window) || !fits(wanted.ecn, came.ecn))
        return false;
    if (wanted.any_options)
        return true;
    return wanted.mss == came.mss && wanted.scale == came.scale && wanted.sack_ok == came.sack_ok &&
           wanted.sacks == came.sacks && (!wanted.listed || wanted.stamps == came.stamps) &&
           fits(wanted.stamp, came.stamp) && fits(wanted.echo, came.echo);
}

} // namespace vma::inet::script
