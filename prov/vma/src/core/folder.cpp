// SPDX-License-Identifier: BSD-2-Clause
#include "core/folder.hpp"

#include <fcntl.h>

#include <string_view>

#include "core/kernel.hpp"

namespace vma::core {

Folder::Folder(const char *path) noexcept : Folder(AT_FDCWD, path) {}

Folder::Folder(int directory, const char *path) noexcept
    : fd_(make_fd([=] { return kernel::openat(directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }))
{
}

const char *Folder::next() noexcept
{
    for (;;) {
        if (at_ == filled_) {
            const long got = fd_ ? kernel::call<long>(SYS_getdents64, fd_.get(), records_, sizeof records_) : -1;
            if (got <= 0)
                return nullptr;
            at_ = 0;
            filled_ = static_cast<std::size_t>(got);
        }
        const auto *const record = reinterpret_cast<const dirent64 *>(&records_[at_]); // as getdents64(2) has it
        at_ += record->d_reclen;
        const std::string_view name = record->d_name;
        if (name != "." && name != "..")
            return record->d_name;
    }
}

} // namespace vma::core
