// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/preload.hpp"

#include "util/vma/files.hpp"

namespace vma::command {

namespace {

constexpr std::string_view kSeparators = " :";

bool is_library(std::string_view entry)
{
    std::string_view name = entry.substr(entry.rfind('/') + 1);
    if (!name.starts_with(kLibraryName))
        return false;
    name.remove_prefix(kLibraryName.size());
    return name.empty() || name.front() == '.';
}

} // namespace

std::string preload_value(std::string_view library, std::string_view before)
{
    std::string value(library);
    for (const std::string_view entry : split(before, kSeparators))
        if (!is_library(entry))
            value.append(" ").append(entry);
    return value;
}

bool can_be_preloaded(std::string_view library)
{
    return library.find_first_of(kSeparators) == std::string_view::npos;
}

bool names_library(std::string_view value)
{
    for (const std::string_view entry : split(value, kSeparators))
        if (is_library(entry))
            return true;
    return false;
}

std::vector<std::string> paths_in_cache(std::string_view cache, std::string_view name)
{
    std::vector<std::string> paths;
    const std::string wanted = "/" + std::string(name) + '\0';
    for (std::size_t at = cache.find(wanted); at != std::string_view::npos; at = cache.find(wanted, at + 1)) {
        const std::size_t before = cache.rfind('\0', at);
        const std::size_t first = before == std::string_view::npos ? 0 : before + 1;
        const std::string_view path = cache.substr(first, at + wanted.size() - 1 - first);
        if (path.front() == '/')
            paths.emplace_back(path);
    }
    return paths;
}

} // namespace vma::command
