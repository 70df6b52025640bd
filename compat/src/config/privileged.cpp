// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/privileged.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::config {

[[VMA_TABLE]] constinit Texts g_texts = {};

namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view take_word(std::string_view &line)
{
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    const std::string_view word = line.substr(0, line.find_first_of(kBlank));
    line.remove_prefix(word.size());
    return word;
}

void keep_values(std::string_view line, char *out, std::size_t size)
{
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
        if (word.find('=') == std::string_view::npos || word.size() + 2 > size)
            continue;
        std::memcpy(out, word.data(), word.size());
        out[word.size()] = '\0';
        out += word.size() + 1;
        size -= word.size() + 1;
    }
    *out = '\0';
}

bool is_roots_alone(const struct stat &st)
{
    return st.st_uid == 0 && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Whoever may write to a folder on the way can put another of root's files in this one's place.
bool are_folders_roots_alone()
{
    char path[] = LIBVMA_CONF;
    struct stat st = {};
    if (::stat("/", &st) != 0 || !is_roots_alone(st))
        return false;
    for (char *slash = path; (slash = std::strchr(slash + 1, '/')) != nullptr; *slash = '/') {
        *slash = '\0';
        if (::stat(path, &st) != 0 || !is_roots_alone(st))
            return false;
    }
    return true;
}

// Whose the file and its folders are, and that nobody else writes to them, decides whether it says anything.
std::string_view read_text()
{
    const int fd = libc::real.open(kPrivilegedFile, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return {};
    struct stat st = {};
    std::size_t length = 0;
    if (::fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && is_roots_alone(st) && are_folders_roots_alone())
        for (ssize_t n = 0;
             length < kMostText && (n = libc::real.read(fd, g_texts.text + length, kMostText - length)) > 0;)
            length += static_cast<std::size_t>(n);
    libc::real.close(fd);
    return {g_texts.text, length};
}

} // namespace

[[VMA_AT_STARTUP]] bool is_privileged()
{
    return ::getauxval(AT_SECURE) != 0;
}

bool find_permission(std::string_view text, std::string_view file, char *out, std::size_t size)
{
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        line = line.substr(0, line.find('#'));
        if (take_word(line) != kPrivilegedWord || take_word(line) != file)
            continue;
        keep_values(line, out, size);
        return true;
    }
    return false;
}

// By the file that runs: the name in argv[0] is the stranger's choice.
[[VMA_AT_STARTUP]] void read_permission()
{
    if (!is_privileged())
        return;
    char(&file)[PATH_MAX] = g_texts.provider; // not named yet
    const ssize_t length = ::readlink("/proc/self/exe", file, sizeof file);
    const auto known = static_cast<std::size_t>(std::max<ssize_t>(length, 0));
    g_config.refused = known == 0 || known == sizeof file ||
                       !find_permission(read_text(), {file, known}, g_texts.granted, sizeof g_texts.granted);
    file[0] = '\0';
}

const char *granted(const char *name)
{
    const std::size_t length = std::strlen(name);
    for (const char *entry = g_texts.granted; *entry != '\0'; entry += std::strlen(entry) + 1)
        if (std::strncmp(entry, name, length) == 0 && entry[length] == '=')
            return entry + length + 1;
    return nullptr;
}

} // namespace vma::config
