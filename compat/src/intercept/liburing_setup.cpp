// SPDX-License-Identifier: BSD-2-Clause
// liburing's functions that set up an io_uring, exchange its memory and close it, and those that are system calls
// alone. What is set up by a release whose functions we know (2.3 and later) is read from then on.
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/liburing.hpp"
#include "compat/src/intercept/uring_calls.hpp"

#include "compat/src/table/uring.hpp"

namespace vma::intercept {

namespace {

constexpr int kMaskBytes = 8;                 // of the kernel's set of signals
constexpr std::uint32_t kClosable = 1U << 13; // IORING_FEAT_REG_REG_RING
constexpr std::uint8_t kRegistered = 1;       // liburing's INT_FLAG_REG_RING

// What is behind our function, called with these arguments: 0 or more, or the negative error, as liburing has it.
// `missing`: what programs take for "an older liburing".
template <typename Function, typename... Rest>
int call_behind(const Behind &behind, Function ours, int missing, Rest... arguments)
{
    auto *const theirs = behind.as(ours);
    return theirs != nullptr ? libc::by_kernel(theirs(arguments...)) : -missing;
}

// Of one that was made just now, where the kernel has filled `made`.
bool is_as_we_know(const LiburingUring &uring, const io_uring_params &made)
{
    const LiburingQueue &queue = uring.submissions;
    return reinterpret_cast<char *>(queue.head) == queue.memory + made.sq_off.head &&
           reinterpret_cast<char *>(queue.tail) == queue.memory + made.sq_off.tail &&
           queue.published == queue.written && uring.flags == made.flags && uring.features == made.features &&
           uring.fd >= 0 && uring.fd == uring.entered_fd;
}

// nullptr: the functions that hand over its entries pass here, and do as we expect. That of 2.3 came with the last
// changes; without IORING_FEAT_EXT_ARG (Linux 5.11) a wait for some time hands over entries as well.
const char *why_not_followed(const LiburingUring &uring, const io_uring_params &made, const Scope *scope)
{
    if (scope == nullptr)
        return "io_uring_queue_init (by more libraries than are kept in mind)";
    if (!(*scope)[Liburings::io_uring_submit_and_get_events].is_liburings)
        return "io_uring_queue_init (of a liburing before 2.3)";
    if ((made.features & IORING_FEAT_EXT_ARG) == 0)
        return "io_uring_queue_init (on a kernel before 5.11)";
    return is_as_we_know(uring, made) ? nullptr : "io_uring_queue_init (of a liburing that the library does not know)";
}

void liburing_made(const LiburingUring &uring, const io_uring_params &made, const Scope *scope)
{
    const KeepErrno keep;
    if (sock::sandboxed())
        return;
    if (const char *const why = why_not_followed(uring, made, scope))
        return sock::ring_seen(why);
    number_given(uring.fd);
    if (uring_made(uring.fd, made, nullptr))
        sock::name_liburing(uring.fd, uring.submissions.head);
}

// It isn't read.
void unread_made(int result, const char *name)
{
    const KeepErrno keep;
    if (result >= 0)
        sock::ring_seen(name);
}

// A system call's result as liburing's functions return it.
long as_liburing(long result)
{
    return result >= 0 ? result : -errno;
}

// The real function closes its descriptor now, or goes on without.
void forget(const LiburingUring &uring)
{
    if (sock::find_liburing(uring.submissions.head, uring.fd))
        retire(uring.fd);
}

using SystemCall = long (*)(long, long, long, long, long, long);

// Where it is liburing's the system call is made here. Anything else is given what the program gave.
long system_call(const Behind &behind, long (*ours)(const long (&arguments)[6]), const long (&given)[6],
                 const long (&meant)[6])
{
    if (behind.is_liburings) {
        const KeepErrno keep;
        return as_liburing(ours(meant));
    }
    auto *const theirs = behind.as(SystemCall{});
    if (theirs == nullptr)
        return -ENOSYS;
    return libc::by_kernel(theirs(given[0], given[1], given[2], given[3], given[4], given[5]));
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT long io_uring_setup(long entries, void *parameters)
{
    let_loads_end();
    const void *const caller = __builtin_return_address(0);
    const Behind behind = VMA_BEHIND(io_uring_setup);
    if (behind.is_liburings) {
        const KeepErrno keep;
        const long arguments[6] = {static_cast<unsigned>(entries), reinterpret_cast<long>(parameters)};
        return as_liburing(set_up_uring(arguments, caller));
    }
    auto *const theirs = behind.as(&io_uring_setup);
    const long result = theirs != nullptr ? libc::by_kernel(theirs(entries, parameters)) : -ENOSYS;
    const int fd = static_cast<int>(result);
    unread_made(fd, "io_uring_setup");
    number_given(fd);
    return result;
}

// liburing's has no sixth.
VMA_EXPORT long io_uring_enter(long fd, long wanted, long least, long flags, long mask, long bytes)
{
    return system_call(VMA_BEHIND(io_uring_enter), &enter_uring, {fd, wanted, least, flags, mask, bytes},
                       {static_cast<int>(fd), wanted, least, flags, mask, kMaskBytes});
}

VMA_EXPORT long io_uring_enter2(long fd, long wanted, long least, long flags, long argument, long bytes)
{
    return system_call(VMA_BEHIND(io_uring_enter2), &enter_uring, {fd, wanted, least, flags, argument, bytes},
                       {static_cast<int>(fd), wanted, least, flags, argument, bytes});
}

VMA_EXPORT long io_uring_register(long fd, long operation, long argument, long count, long fifth, long sixth)
{
    return system_call(VMA_BEHIND(io_uring_register), &register_with_uring,
                       {fd, operation, argument, count, fifth, sixth},
                       {static_cast<int>(fd), operation, argument, count});
}

VMA_EXPORT int io_uring_queue_init_params(unsigned entries, LiburingUring *uring, io_uring_params *parameters)
{
    const void *const caller = __builtin_return_address(0);
    const Behind behind = VMA_BEHIND(io_uring_queue_init_params);
    if (WithinSetUp::is_open())
        return call_behind(behind, &io_uring_queue_init_params, ENOSYS, entries, uring, parameters);
    let_loads_end();
    const sock::RingComesOrGoes comes;
    const WithinSetUp within;
    const int result = call_behind(behind, &io_uring_queue_init_params, ENOSYS, entries, uring, parameters);
    if (result >= 0)
        own(*uring, caller);
    if (behind.is_liburings && result >= 0 && !is_inner_call(caller))
        liburing_made(*uring, *parameters, scope_of(caller));
    else
        unread_made(result, "io_uring_queue_init_params");
    return result;
}

// By the one above, which says what the kernel said.
VMA_EXPORT int io_uring_queue_init(unsigned entries, LiburingUring *uring, unsigned flags)
{
    const void *const caller = __builtin_return_address(0);
    const Behind behind = VMA_BEHIND(io_uring_queue_init);
    const WithinSetUp within;
    if (is_inner_call(caller)) // io_uring_get_probe(), for a moment
        return call_behind(behind, &io_uring_queue_init, ENOSYS, entries, uring, flags);
    let_loads_end();
    const sock::RingComesOrGoes comes;
    const Behind by_params = VMA_BEHIND(io_uring_queue_init_params);
    if (behind.is_liburings && by_params.is_liburings) {
        io_uring_params made = {};
        made.flags = flags;
        const int result = call_behind(by_params, &io_uring_queue_init_params, ENOSYS, entries, uring, &made);
        if (result >= 0) {
            own(*uring, caller);
            liburing_made(*uring, made, scope_of(caller));
        }
        return result;
    }
    const int result = call_behind(behind, &io_uring_queue_init, ENOSYS, entries, uring, flags);
    if (result >= 0)
        own(*uring, caller);
    unread_made(result, "io_uring_queue_init");
    return result;
}

// In memory of the program's.
VMA_EXPORT int io_uring_queue_init_mem(unsigned entries, LiburingUring *uring, void *parameters, void *memory,
                                       size_t size)
{
    let_loads_end();
    const WithinSetUp within;
    const int result = call_behind(VMA_BEHIND(io_uring_queue_init_mem), &io_uring_queue_init_mem, EINVAL, entries,
                                   uring, parameters, memory, size);
    if (result >= 0)
        own(*uring, __builtin_return_address(0));
    unread_made(result, "io_uring_queue_init_mem");
    return result;
}

// Of a descriptor that the program has set up by itself; or of a set-up of liburing's that has not passed here.
VMA_EXPORT int io_uring_queue_mmap(int fd, void *parameters, LiburingUring *uring)
{
    const int result =
        call_behind(VMA_BEHIND(io_uring_queue_mmap), &io_uring_queue_mmap, ENOSYS, fd, parameters, uring);
    if (WithinSetUp::is_open())
        return result;
    if (result >= 0)
        own(*uring, __builtin_return_address(0));
    unread_made(result, "io_uring_queue_mmap");
    return result;
}

VMA_EXPORT void io_uring_queue_exit(LiburingUring *uring)
{
    const Met met = VMA_MEET(io_uring_queue_exit, uring);
    const sock::RingComesOrGoes goes;
    if (met.behind.is_liburings) {
        forget(*uring);
        disown(*uring);
    }
    if (auto *const theirs = met.behind.as(&io_uring_queue_exit)) {
        theirs(uring);
        libc::note_kernel_act();
    }
}

// It is entered by its place among those that are registered, from now on. Where it has none it stays as it is.
VMA_EXPORT int io_uring_close_ring_fd(LiburingUring *uring)
{
    const Met met = VMA_MEET(io_uring_close_ring_fd, uring);
    const sock::RingComesOrGoes goes;
    if (met.read && (uring->features & kClosable) != 0 && (uring->own_flags & kRegistered) != 0) {
        const KeepErrno keep;
        sock::ring_seen("io_uring_close_ring_fd");
        forget(*uring);
    }
    return call_behind(met.behind, &io_uring_close_ring_fd, EOPNOTSUPP, uring);
}

// Its memory is another one from now on.
VMA_EXPORT int io_uring_resize_rings(LiburingUring *uring, void *parameters)
{
    const Met met = VMA_MEET(io_uring_resize_rings, uring);
    const void *const before = met.read ? uring->submissions.head : nullptr;
    const int result = call_behind(met.behind, &io_uring_resize_rings, EINVAL, uring, parameters);
    if (met.read && (result >= 0 || uring->submissions.head != before)) {
        const KeepErrno keep;
        own(*uring, __builtin_return_address(0));
        sock::ring_seen("io_uring_resize_rings");
        sock::forget_uring(uring->fd);
    }
    return result;
}
