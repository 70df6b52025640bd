// SPDX-License-Identifier: BSD-2-Clause
// What the library knows of liburing's shared library, which makes system calls of its own that nobody sees: where its
// functions are, and what its structure holds. It need not be there. Of static copies nothing is seen.
//
// All of its functions are looked up when one of an object's calls passes here for the first time, which is the set-up
// of an io_uring in all but odd programs. So the calls that hand over entries take no lock of the loader's, allocate
// nothing and make no system call but the one that they are for: they may come from handlers, below filters of system
// calls, and while a constructor waits for them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/libc/this_thread.hpp"
#include "compat/src/table/read_urings.hpp"

namespace vma::intercept {

// struct io_uring, since liburing 2.0. is_as_we_know() compares one that was made with what the kernel said.
struct LiburingQueue {
    std::uint32_t *head; // the kernel's words
    std::uint32_t *tail;
    std::uint32_t *others[4];
    std::uint32_t *array;
    io_uring_sqe *entries;
    std::uint32_t published; // entries before it are the kernel's to take
    std::uint32_t written;   // and those before it are to be, by the next call
    std::size_t size;
    char *memory;
    std::uint32_t rest[4];
};
struct LiburingUring {
    LiburingQueue submissions;
    struct {
        std::uint32_t *head; // the program's
        std::uint32_t *tail;
        std::uint64_t others[9];
    } completions;
    std::uint32_t flags;
    std::int32_t fd;
    std::uint32_t features;
    std::int32_t entered_fd; // or its place among those that are registered
    std::uint8_t own_flags;
    std::uint8_t own[7];
};
static_assert(sizeof(LiburingQueue) == 104 && offsetof(LiburingUring, fd) == 196 && sizeof(LiburingUring) == 216);

// Those of its functions that are ours.
#define VMA_LIBURING_FUNCTIONS(X)                                                                                      \
    X(io_uring_setup)                                                                                                  \
    X(io_uring_enter)                                                                                                  \
    X(io_uring_enter2)                                                                                                 \
    X(io_uring_register)                                                                                               \
    X(io_uring_queue_init)                                                                                             \
    X(io_uring_queue_init_params)                                                                                      \
    X(io_uring_queue_init_mem)                                                                                         \
    X(io_uring_queue_mmap)                                                                                             \
    X(io_uring_queue_exit)                                                                                             \
    X(io_uring_close_ring_fd)                                                                                          \
    X(io_uring_resize_rings)                                                                                           \
    X(io_uring_register_files)                                                                                         \
    X(io_uring_register_files_tags)                                                                                    \
    X(io_uring_register_files_update)                                                                                  \
    X(io_uring_register_files_update_tag)                                                                              \
    X(io_uring_submit)                                                                                                 \
    X(io_uring_submit_and_wait)                                                                                        \
    X(io_uring_submit_and_get_events)                                                                                  \
    X(io_uring_submit_and_wait_timeout)                                                                                \
    X(io_uring_submit_and_wait_min_timeout)                                                                            \
    X(io_uring_submit_and_wait_reg)                                                                                    \
    X(__io_uring_get_cqe)

enum class Liburings : std::uint8_t {
#define X(name) name,
    VMA_LIBURING_FUNCTIONS(X)
#undef X
        kCount
};
inline constexpr std::size_t kLiburings = static_cast<std::size_t>(Liburings::kCount);

// A function that stands behind one of ours.
struct Behind {
    void *function; // nullptr: there is none
    bool is_liburings;

    template <typename Function> Function as(Function) const { return reinterpret_cast<Function>(function); }
};

// What one object of the program finds behind each of our functions: its own dependencies first, as a plug-in of
// RTLD_LOCAL must. What was found stays loaded.
struct Scope {
    std::uintptr_t begin; // where the calls come from: an object, or a page that is in none
    std::uintptr_t end;
    bool is_inner; // liburing itself, whose functions call each other by name, and so pass here
    Behind functions[kLiburings];

    bool has(const void *caller) const
    {
        const auto at = reinterpret_cast<std::uintptr_t>(caller);
        return begin <= at && at < end;
    }
    const Behind &operator[](Liburings which) const { return functions[static_cast<std::size_t>(which)]; }
};

// Those that were looked up: constant from then on, and never freed. An object that takes the addresses of one that was
// unloaded has its scope.
struct Scopes {
    static constexpr int kMost = 16;
    std::atomic<int> count{0};
    Scope all[kMost] = {};
};

// Who has set up an io_uring, read or not, by the address of the kernel's counter that its structure has.
struct Owners {
    static constexpr int kMost = 256;
    struct Owner {
        std::atomic<const void *> head{nullptr};
        std::atomic<const Scope *> scope{nullptr};
    };
    std::atomic<int> end{0};
    Owner all[kMost] = {};
};

// Of `caller`. nullptr: it is not known yet. Makes no call, takes no lock.
const Scope *known_scope(const void *caller);

// The same; it is looked up, by the loader's functions, where it is not known. nullptr: there are more than are kept.
// errno is kept. No lock is held.
const Scope *scope_of(const void *caller);

// What stands behind one of our functions for that caller, also where its scope can't be kept. Like scope_of().
Behind find_behind(Liburings which, const void *caller);

bool is_inner_call(const void *caller); // like scope_of()

// For as long as one lives this thread calls a function of liburing's that sets up an io_uring: what that calls by name
// is seen to by us. Whoever has a function's address from dlsym() is in none.
class WithinSetUp
{
public:
    WithinSetUp() { ++libc::t_libc.set_ups; }
    ~WithinSetUp() { --libc::t_libc.set_ups; }
    WithinSetUp(const WithinSetUp &) = delete;
    WithinSetUp &operator=(const WithinSetUp &) = delete;

    static bool is_open() { return libc::t_libc.set_ups != 0; }
};

// One was set up for `caller`, or is about to be closed. No lock is held.
void own(const LiburingUring &uring, const void *caller);
void disown(const LiburingUring &uring);

// A call of liburing's for an io_uring.
struct Met {
    Behind behind;
    sock::UringReference read; // true: its submissions can be read now
};

// The loader is asked only for a caller and an io_uring of which neither is known. Where another library's function
// stands behind `which`, `uring` may be a number below 65,536. errno is kept. No lock is held.
Met meet(const LiburingUring *uring, Liburings which, const void *caller);

// The same before it is used: where it can't be read it reaches any socket, and all are on the kernel.
Met meet_used(const LiburingUring *uring, Liburings which, const void *caller);

// In the function `name` itself.
#define VMA_BEHIND(name) find_behind(Liburings::name, __builtin_return_address(0))
#define VMA_MEET(name, uring) meet(uring, Liburings::name, __builtin_return_address(0))
#define VMA_MEET_USED(name, uring) meet_used(uring, Liburings::name, __builtin_return_address(0))

} // namespace vma::intercept
