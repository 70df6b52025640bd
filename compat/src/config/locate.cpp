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

bool folder_of_this_library(char *folder, std::size_t size)
{
    Dl_info info;
    if (::dladdr(reinterpret_cast<const void *>(&provider_path), &info) == 0 || info.dli_fname == nullptr)
        return false;
    char path[PATH_MAX];
    if (::realpath(info.dli_fname, path) == nullptr)
        return false;
    char *const slash = std::strrchr(path, '/');
    if (slash == nullptr)
        return false;
    slash[1] = '\0';
    return std::snprintf(folder, size, "%s", path) < static_cast<int>(size);
}

} // namespace

const char *provider_path()
{
    if (params().provider != nullptr)
        return params().provider;
    char(&found)[PATH_MAX] = g_texts.provider;
    if (found[0] != '\0')
        return found;
    char folder[PATH_MAX];
    if (!folder_of_this_library(folder, sizeof folder))
        return nullptr;
    for (const char *const place : kPlaces) {
        char path[PATH_MAX];
        if (std::snprintf(path, sizeof path, "%s%s%s", folder, place, kProvider) >= static_cast<int>(sizeof path) ||
            ::access(path, R_OK) != 0)
            continue;
        std::memcpy(found, path, sizeof found);
        return found;
    }
    VMA_LOG(kDebug, "%s is not in %s nor near it; VMA_PROVIDER can name it", kProvider, folder);
    return nullptr;
}

} // namespace vma::config
