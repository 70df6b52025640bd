// SPDX-License-Identifier: BSD-2-Clause
// The names in a folder, by system calls alone, as opendir(3) and its like may be the program's own (kernel.hpp).
#pragma once

#include <dirent.h>

#include <cstddef>

#include "core/fd.hpp"

namespace vma::core {

class Folder
{
public:
    // Of a path, or of a path within another one's descriptor. One that can't be read is empty, with errno.
    explicit Folder(const char *path) noexcept;
    Folder(int directory, const char *path) noexcept;
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

    // The next name, which stays until the next call; "." and ".." are left out. nullptr at the end, and where the
    // kernel refuses. Names that come or go meanwhile may be among them or not.
    const char *next() noexcept;

private:
    UniqueFd fd_;
    std::size_t at_ = 0;
    std::size_t filled_ = 0;
    alignas(dirent64) char records_[1024]; // room for a name of any length: NAME_MAX is 255
};

} // namespace vma::core
