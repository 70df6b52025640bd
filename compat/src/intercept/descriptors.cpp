// SPDX-License-Identifier: BSD-2-Clause
// The life of descriptor numbers. Whatever makes a number mean something else passes here, so that no entry of our
// tables outlives its descriptor. Also what duplicates them; what closes them is close.cpp.
#include "compat/src/intercept/export.hpp"

#include "compat/src/base/fence.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/intercept/call_log.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/table/read_urings.hpp"
#include "compat/src/table/uring.hpp"

namespace vma::intercept {

[[VMA_TABLE]] constinit libc::DescriptorMap<sock::kMaxTracked> g_ours;

namespace {

// In a child of vfork(), which shares our tables and not our descriptors.
void note_duplicate_for_program(int fd)
{
    if (sock::Socket *const s = ours(fd) ? sock::lookup(fd) : nullptr)
        sock::given_to_child(*s);
}

bool open_number(int fd)
{
    const KeepErrno keep;
    return real.fcntl(fd, F_GETFD) >= 0;
}

// An io_uring may still look it up.
void number_named(int fd)
{
    if (sock::Socket *const s = sock::lookup(fd))
        sock::pin_to_kernel(*s, "io_uring");
    if (mux::is_epoll(fd))
        sock::ring_seen("an io_uring may use an epoll set");
}

// dup2() and dup3(). The target is retired only if the kernel is going to close it.
template <typename Duplicate> int duplicate_to(int old_fd, int new_fd, Duplicate duplicate)
{
    if (libc::in_vfork_child())
        note_duplicate_for_program(old_fd);
    if (old_fd == new_fd || libc::in_vfork_child())
        return duplicate();
    let_loads_end();
    if (libc::is_private(new_fd)) {
        errno = libc::refused_duplicate(old_fd, new_fd);
        return -1;
    }
    const libc::Stretch stretch; // a handler that jumps finds the number as it was, or as it is to be
    if (ours(new_fd) && open_number(old_fd))
        retire(new_fd);
    const int fd = duplicate();
    if (fd >= 0)
        was_duplicated(old_fd, fd);
    return fd;
}

} // namespace

namespace {

// Its bytes may be another table's to read.
void leave_number(int fd)
{
    if (!sock::leave_number(fd))
        return;
    mux::let_go_of_set(fd);
    sock::forget_uring(fd);
    g_ours.remove(fd);
}

} // namespace

void note_files()
{
    each_of_ours(0, kLastTracked, sock::note_file);
}

void leave_numbers()
{
    each_of_ours(0, kLastTracked, [](int fd) {
        if (!mux::is_epoll(fd))
            leave_number(fd);
    });
    each_of_ours(0, kLastTracked, leave_number);
}

bool is_of_another_table(int fd)
{
    if (libc::in_vfork_child())
        return true;
    if (!libc::tables_apart())
        return false;
    const KeepErrno keep;
    const sock::Socket *const s = sock::lookup(fd);
    if (s == nullptr || !sock::is_behind(*s, fd))
        return true;
    leave_number(fd);
    return sock::lookup(fd) == nullptr; // all is read
}

void retire(int fd)
{
    if (libc::in_vfork_child())
        return;
    if (libc::tables_apart())
        return leave_number(fd);
    const KeepErrno keep;
    const libc::NotCancelled whole;
    if (sock::lookup(fd) != nullptr)
        sock::forget(fd);
    if (mux::is_epoll(fd))
        mux::epoll_closed(fd);
    sock::forget_uring(fd);
    g_ours.remove(fd);
}

void number_tracked(int fd)
{
    g_ours.add(fd);
    sock::fence_after_exchange(); // either who leaves all numbers finds this one, or we see that they are left
    if (libc::tables_apart()) [[unlikely]]
        return leave_number(fd);
    if (sock::is_named_for_later(fd)) [[unlikely]]
        number_named(fd);
    if (fd > STDERR_FILENO)
        return;
    if (sock::Socket *const s = sock::lookup(fd))
        sock::pin_to_kernel(*s, "descriptor 0, 1 or 2");
}

void duplicated(int old_fd, int new_fd)
{
    if (ours(old_fd)) {
        VMA_LOG(kDebug, "ENTER: dup(fd=%d)", old_fd);
        left("dup", new_fd);
    }
    if (libc::in_vfork_child())
        return note_duplicate_for_program(old_fd);
    const KeepErrno keep;
    const libc::NotCancelled whole;
    if (new_fd == STDERR_FILENO)
        config::stderr_replaced();
    number_given(new_fd);
    if (libc::tables_apart() && (tracked(old_fd) == nullptr || ours(new_fd)))
        return; // another file, or in another table bytes are left of what the number was
    if (sock::lookup(old_fd) != nullptr)
        sock::track_dup(old_fd, new_fd);
    else if (mux::is_epoll(old_fd))
        mux::epoll_dup(old_fd, new_fd);
    else if (sock::find_uring(old_fd))
        return sock::ring_seen("an io_uring has two descriptors");
    else
        return;
    number_tracked(new_fd);
}

void retire_range(unsigned first, unsigned last)
{
    if (libc::in_vfork_child())
        return;
    if (first <= STDERR_FILENO && last >= STDERR_FILENO)
        config::stderr_closed();
    each_of_ours(first, last, retire);
}

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int dup(int old_fd) noexcept
{
    let_loads_end();
    const int fd = real.dup(old_fd);
    if (fd >= 0)
        was_duplicated(old_fd, fd);
    return fd;
}

VMA_EXPORT int dup2(int old_fd, int new_fd) noexcept
{
    return duplicate_to(old_fd, new_fd, [=] { return libc::by_kernel(real.dup2(old_fd, new_fd)); });
}

VMA_ALIAS(dup2) int __dup2(int, int) noexcept;

VMA_EXPORT int dup3(int old_fd, int new_fd, int flags) noexcept
{
    if ((flags & ~O_CLOEXEC) != 0)
        return real.dup3(old_fd, new_fd, flags); // which refuses it
    return duplicate_to(old_fd, new_fd, [=] { return libc::by_kernel(real.dup3(old_fd, new_fd, flags)); });
}
