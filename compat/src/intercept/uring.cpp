// SPDX-License-Identifier: BSD-2-Clause
// liburing's functions that set up a ring. That library makes system calls of its own, and has no call into libc that
// tells of them; but programs call its functions by name, and so pass here. They are passed on to those that the caller
// would have met.
#include "compat/src/intercept/export.hpp"

#include <dlfcn.h>

#include "compat/src/table/uring.hpp"

namespace vma::intercept {

namespace {

// The function that the object around `caller` finds: with its own dependencies first, as a plug-in of RTLD_LOCAL must.
void *behind(const char *name, const void *ours, const void *caller)
{
    Dl_info where = {};
    void *found = nullptr;
    if (::dladdr(caller, &where) != 0 && where.dli_fname != nullptr)
        if (void *const object = ::dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
            found = ::dlsym(object, name);
            ::dlclose(object);
        }
    return found != nullptr && found != ours ? found : ::dlsym(RTLD_NEXT, name);
}

// 0 or more, or the negative error, as liburing has it.
template <typename Function, typename... Rest>
int set_up(const char *name, Function ours, const void *caller, Rest... arguments)
{
    let_loads_end();
    auto *const theirs = reinterpret_cast<Function>(behind(name, reinterpret_cast<const void *>(ours), caller));
    const int result = theirs != nullptr ? theirs(arguments...) : -ENOSYS;
    if (result >= 0) {
        const KeepErrno keep;
        sock::ring_seen(name);
    }
    return result;
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int io_uring_setup(unsigned entries, void *parameters)
{
    const int fd = set_up("io_uring_setup", &io_uring_setup, __builtin_return_address(0), entries, parameters);
    number_given(fd);
    return fd;
}

VMA_EXPORT int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    return set_up("io_uring_queue_init", &io_uring_queue_init, __builtin_return_address(0), entries, ring, flags);
}

VMA_EXPORT int io_uring_queue_init_params(unsigned entries, void *ring, void *parameters)
{
    return set_up("io_uring_queue_init_params", &io_uring_queue_init_params, __builtin_return_address(0), entries, ring,
                  parameters);
}

VMA_EXPORT int io_uring_queue_init_mem(unsigned entries, void *ring, void *parameters, void *memory, size_t size)
{
    return set_up("io_uring_queue_init_mem", &io_uring_queue_init_mem, __builtin_return_address(0), entries, ring,
                  parameters, memory, size);
}

VMA_EXPORT int io_uring_queue_mmap(int fd, void *parameters, void *ring)
{
    return set_up("io_uring_queue_mmap", &io_uring_queue_mmap, __builtin_return_address(0), fd, parameters, ring);
}
