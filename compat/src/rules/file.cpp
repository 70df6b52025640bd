// SPDX-License-Identifier: BSD-2-Clause
// The file as a whole: its sections, and which of them is a program's.
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rules/parser.hpp"

namespace vma::rules {

namespace {

constexpr std::size_t kMostBytes = 1 << 20;

Section &section_named(File &file, const std::string &program, const std::string &id, unsigned line)
{
    const auto found = std::find_if(file.sections.begin(), file.sections.end(), [&](const Section &section) {
        return section.program == program && section.id == id;
    });
    if (found != file.sections.end())
        return *found;
    file.sections.push_back({program, id, line, {}});
    return file.sections.back();
}

// 0, or an errno.
int read_all(int fd, std::string &out)
{
    struct stat st = {};
    if (::fstat(fd, &st) != 0)
        return errno;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    char piece[1024];
    for (;;) {
        const ssize_t n = libc::real.read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? 0 : errno;
        out.append(piece, static_cast<std::size_t>(n));
        if (out.size() > kMostBytes)
            return EFBIG;
    }
}

} // namespace

File parse_text(std::string_view text, Reporter &reporter)
{
    File file;
    Section *here = &section_named(file, "*", "*", 0);
    unsigned number = 0;
    while (!text.empty()) {
        const std::size_t length = text.find('\n');
        const Statement statement = parse_line(text.substr(0, length), ++number, reporter);
        text.remove_prefix(length == std::string_view::npos ? text.size() : length + 1);
        if (statement.kind == Kind::kApplication)
            here = &section_named(file, statement.program, statement.id, number);
        else if (statement.kind == Kind::kRule)
            here->rules.push_back(statement.rule);
    }
    // Nothing stands before the first application-id: the section for that is not there to be matched.
    Section &first = file.sections.front();
    if (first.line == 0 && first.rules.empty() && file.sections.size() > 1)
        file.sections.erase(file.sections.begin());
    return file;
}

[[VMA_AT_STARTUP]] int read_file(const char *path, File &out, Reporter &reporter)
{
    const int fd = libc::real.open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return errno;
    std::string text;
    const int result = read_all(fd, text);
    libc::real.close(fd);
    if (result == 0)
        out = parse_text(text, reporter);
    return result;
}

const Section *section_of(const File &file, const char *program, const char *id, bool &id_is_known)
{
    const std::string wanted = id;
    id_is_known = wanted == kDefaultId || wanted == "*" ||
                  std::any_of(file.sections.begin(), file.sections.end(),
                              [&wanted](const Section &section) { return section.id == wanted; });
    for (const Section &section : file.sections)
        if (::fnmatch(section.program.c_str(), program, 0) == 0 &&
            (section.id == "*" || wanted == "*" || section.id == wanted))
            return &section;
    return nullptr;
}

} // namespace vma::rules
