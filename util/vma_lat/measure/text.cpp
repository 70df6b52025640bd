// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/text.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace vma::lat {

namespace {

std::string format_list(const char *form, va_list list)
{
    va_list again;
    va_copy(again, list);
    const int length = std::vsnprintf(nullptr, 0, form, again);
    va_end(again);
    std::string text(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
    std::vsnprintf(text.data(), text.size() + 1, form, list);
    return text;
}

} // namespace

std::string format(const char *form, ...)
{
    va_list list;
    va_start(list, form);
    std::string text = format_list(form, list);
    va_end(list);
    return text;
}

Error error(int status, const char *form, ...)
{
    va_list list;
    va_start(list, form);
    Error made{status, format_list(form, list)};
    va_end(list);
    return made;
}

Error system_error(const std::string &what)
{
    return {kExitFailed, what + ": " + std::strerror(errno)};
}

} // namespace vma::lat
