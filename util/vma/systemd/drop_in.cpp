// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/systemd/drop_in.hpp"

#include <cinttypes>
#include <cstdio>

#include "util/vma/systemd/unit.hpp"

namespace vma::command {

namespace {

constexpr std::string_view kHead = "# Written by `vma enable`; `vma disable` takes it away. ";
constexpr std::string_view kFolder = "# The folder is its own, too.\n";

// FNV-1a: it tells a slip of the hand, no more.
std::string sum_of(std::string_view text)
{
    std::uint64_t sum = 0xcbf29ce484222325;
    for (const char c : text)
        sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016" PRIx64, sum);
    return digits;
}

} // namespace

std::string drop_in_text(const std::string &preload, const std::vector<Setting> &variables,
                         const std::vector<std::string> &more, bool made_folder)
{
    std::string body(made_folder ? kFolder : "");
    body += "[Service]\nEnvironment=" + quoted("LD_PRELOAD=" + preload) + "\n";
    for (const Setting &one : variables)
        body += "Environment=" + quoted(one.name + "=" + one.value) + "\n";
    for (const std::string &setting : more)
        body.append(setting).append("\n");
    return std::string(kHead) + sum_of(body) + "\n" + body;
}

Author author_of(std::string_view text)
{
    const std::size_t end = text.find('\n');
    if (!text.starts_with(kHead) || end == std::string_view::npos)
        return Author::kOther;
    return text.substr(kHead.size(), end - kHead.size()) == sum_of(text.substr(end + 1)) ? Author::kUs
                                                                                         : Author::kEdited;
}

bool made_folder(std::string_view text)
{
    const std::size_t end = text.find('\n');
    return end != std::string_view::npos && text.substr(end + 1).starts_with(kFolder);
}

} // namespace vma::command
