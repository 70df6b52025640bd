// SPDX-License-Identifier: BSD-2-Clause
// Where libvma-fi.so is: VMA_PROVIDER, or around the file that this code was loaded from, so that a build tree, an
// installation and a moved copy of it all find their own provider.
#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/config/state.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::config {

namespace {

// Relative to our own folder. A build tree has both libraries in one .libs, an installation the provider below libdir.
constexpr const char *kPlaces[] = {"", "libfabric/", "../libfabric/", ".libs/"};
constexpr const char *kProvider = "libvma-fi.so";

// 0: there is none, or no room for it.
std::size_t folder_of_this_library(char (&folder)[PATH_MAX])
{
    Dl_info info;
    if (::dladdr(reinterpret_cast<const void *>(&provider_path), &info) == 0 || info.dli_fname == nullptr ||
        ::realpath(info.dli_fname, folder) == nullptr)
        return 0;
    const char *const slash = std::strrchr(folder, '/');
    return slash != nullptr ? static_cast<std::size_t>(slash + 1 - folder) : 0;
}

} // namespace

const char *provider_path()
{
    if (params().provider != nullptr)
        return params().provider;
    char(&found)[PATH_MAX] = g_texts.provider;
    if (found[0] != '\0')
        return found;
    const std::size_t length = folder_of_this_library(found);
    for (const char *const place : kPlaces) {
        const std::size_t room = sizeof found - length;
        if (length != 0 && std::snprintf(found + length, room, "%s%s", place, kProvider) < static_cast<int>(room) &&
            ::access(found, R_OK) == 0)
            return found;
    }
    found[length] = '\0';
    if (length != 0)
        VMA_LOG(kDebug, "%s is not in %s nor near it; VMA_PROVIDER can name it", kProvider, found);
    found[0] = '\0';
    return nullptr;
}

} // namespace vma::config
