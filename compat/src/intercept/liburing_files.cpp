// SPDX-License-Identifier: BSD-2-Clause
// liburing's functions that register files with an io_uring: an accelerated socket among them is the kernel's, as what
// its entries do with it then doesn't name it.
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/liburing.hpp"
#include "compat/src/intercept/uring_entries.hpp"

namespace vma::intercept {

namespace {

template <typename Function, typename... Rest>
int register_files(const Met &met, Function ours, const int *files, unsigned count, LiburingUring *uring,
                   Rest... arguments)
{
    auto *const theirs = met.behind.as(ours);
    if (theirs == nullptr)
        return -EINVAL;
    if (met.read) {
        const KeepErrno keep;
        files_registered(files, count);
    }
    return libc::by_kernel(theirs(uring, arguments...));
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int io_uring_register_files(LiburingUring *uring, const int *files, unsigned count)
{
    return register_files(VMA_MEET_USED(io_uring_register_files, uring), &io_uring_register_files, files, count, uring,
                          files, count);
}

VMA_EXPORT int io_uring_register_files_tags(LiburingUring *uring, const int *files, const void *tags, unsigned count)
{
    return register_files(VMA_MEET_USED(io_uring_register_files_tags, uring), &io_uring_register_files_tags, files,
                          count, uring, files, tags, count);
}

VMA_EXPORT int io_uring_register_files_update(LiburingUring *uring, unsigned offset, const int *files, unsigned count)
{
    return register_files(VMA_MEET_USED(io_uring_register_files_update, uring), &io_uring_register_files_update, files,
                          count, uring, offset, files, count);
}

VMA_EXPORT int io_uring_register_files_update_tag(LiburingUring *uring, unsigned offset, const int *files,
                                                  const void *tags, unsigned count)
{
    return register_files(VMA_MEET_USED(io_uring_register_files_update_tag, uring), &io_uring_register_files_update_tag,
                          files, count, uring, offset, files, tags, count);
}
