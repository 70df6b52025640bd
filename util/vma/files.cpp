// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/files.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace vma::command {

namespace {

constexpr std::string_view kBlank = " \t\r\n";

} // namespace

std::optional<std::string> read_file(const std::string &path, std::size_t most)
{
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return std::nullopt;
    std::string text;
    char part[16384];
    ssize_t n = 0;
    while (text.size() < most && (n = ::read(fd, part, std::min(sizeof part, most - text.size()))) > 0)
        text.append(part, static_cast<std::size_t>(n));
    const int error = errno;
    ::close(fd);
    errno = error;
    return n < 0 ? std::nullopt : std::optional(std::move(text));
}

std::string read_link(const std::string &path)
{
    char target[PATH_MAX];
    const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
    return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : std::string();
}

std::string join(std::initializer_list<std::string_view> parts)
{
    std::string all;
    for (const std::string_view part : parts)
        all.append(part);
    return all;
}

std::optional<std::uint64_t> read_number(const std::string &path)
{
    const std::optional<std::string> text = read_file(path, 64);
    const std::vector<std::string_view> words = text ? split(*text, kBlank) : std::vector<std::string_view>();
    return words.empty() ? std::nullopt : parse_number(words.front());
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators)
{
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const std::size_t length = std::min(text.find_first_of(separators), text.size());
        if (length != 0)
            parts.push_back(text.substr(0, length));
        text.remove_prefix(std::min(length + 1, text.size()));
    }
    return parts;
}

std::string_view trim(std::string_view text)
{
    const std::size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos)
        return {};
    return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string name_of_process(int pid)
{
    const std::string name(trim(read_file("/proc/" + std::to_string(pid) + "/comm", 64).value_or("")));
    return name.empty() ? "?" : name;
}

std::string base_name(const std::string &path)
{
    return path.substr(path.rfind('/') + 1);
}

std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t most)
{
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number > most)
        return std::nullopt;
    return number;
}

} // namespace vma::command
