// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/library.hpp"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/vma/elf.hpp"
#include "util/vma/files.hpp"
#include "util/vma/preload.hpp"

namespace vma::command {

namespace {

constexpr char kCache[] = "/etc/ld.so.cache";

// One of this command's own architecture: libraries of others may lie beside it.
bool fits(const std::string &path)
{
    static const Image own = read_image(read_file("/proc/self/exe", kHeadSize).value_or(""));
    const std::optional<std::string> head = read_file(path, kHeadSize);
    if (!head)
        return false;
    const Image image = read_image(*head);
    return image.is_elf && image.bits == own.bits && image.machine == own.machine;
}

std::vector<std::string> matches(const std::string &pattern)
{
    std::vector<std::string> paths;
    glob_t found = {};
    if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
        paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    return paths;
}

bool take(const std::string &path, Library &out)
{
    out.looked.push_back(path);
    char real[PATH_MAX];
    if (!fits(path) || ::realpath(path.c_str(), real) == nullptr)
        return false;
    out.path = real;
    return true;
}

// Each of what a pattern names, or the pattern itself where it names nothing, so that it can be told.
bool take_any(const std::string &pattern, Library &out)
{
    const std::vector<std::string> paths = matches(pattern);
    for (const std::string &path : paths)
        if (take(path, out))
            return true;
    if (paths.empty())
        out.looked.push_back(pattern);
    return false;
}

} // namespace

std::string own_folder()
{
    const std::string path = read_link("/proc/self/exe");
    return path.substr(0, path.rfind('/'));
}

Library find_library(const std::string &wanted)
{
    Library out;
    const std::string name(kLibraryName);
    if (!wanted.empty()) {
        take(wanted, out);
        return out;
    }
    const std::string folder = own_folder();
    // A build tree; an installation, wherever it was moved to; Debian's, with the triple of the architecture.
    if (!folder.empty() && (take(folder + "/.libs/" + name, out) || take(folder + "/../lib/" + name, out) ||
                            take_any(folder + "/../lib/*/" + name, out) || take(folder + "/../lib64/" + name, out)))
        return out;
#ifdef VMA_LIBDIR
    std::string installed = VMA_LIBDIR "/";
    installed += name;
    if (take(installed, out))
        return out;
#endif
    for (const std::string &path : paths_in_cache(read_file(kCache).value_or(""), kLibraryName))
        if (take(path, out))
            return out;
    out.looked.push_back(kCache);
    return out;
}

} // namespace vma::command
