// SPDX-License-Identifier: BSD-2-Clause
// Descriptors of the provider. Each is close-on-exec, lies above the numbers that the program itself gets,
// and is closed in a forked child, so that a peer sees the parent's death. Not for descriptors that belong to
// the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace vma::core {

// Goes up by one in every forked child. An object that remembers another value than this one belongs to the
// parent.
std::uint32_t fork_generation() noexcept;

// Whether it is one that make_fd() or adopt_fd() registered and nobody closed. Safe in signal handlers.
bool owns_fd(int fd) noexcept;

class UniqueFd
{
public:
    UniqueFd() noexcept = default;
    // Takes the descriptor as it is, neither moved nor registered for closing at fork. For a new one see
    // make_fd().
    explicit UniqueFd(int fd) noexcept : fd_(fd), generation_(fork_generation()) {}
    UniqueFd(UniqueFd &&other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
    UniqueFd &operator=(UniqueFd &&other) noexcept
    {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
            generation_ = other.generation_;
        }
        return *this;
    }
    UniqueFd(const UniqueFd &) = delete;
    UniqueFd &operator=(const UniqueFd &) = delete;
    ~UniqueFd() { reset(); }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    // Closes it, unless it is a parent's in a forked child. Keeps errno.
    void reset() noexcept;
    // Gives the descriptor away; it is no longer closed at fork.
    [[nodiscard]] int release() noexcept;
    // It stays ours, and closed at fork, but nobody closes it here.
    void leave_open() noexcept { fd_ = -1; }
    // False also in a child of the process that made it.
    bool is_of_this_process() const noexcept { return fd_ >= 0 && generation_ == fork_generation(); }

private:
    int fd_ = -1;
    std::uint32_t generation_ = 0;
};

// Keeps fork() out while a descriptor exists that is not registered yet.
class ForkGuard
{
public:
    ForkGuard() noexcept;
    ~ForkGuard();
    ForkGuard(const ForkGuard &) = delete;
    ForkGuard &operator=(const ForkGuard &) = delete;

private:
    const bool counted_; // held.hpp
};

// Moves a descriptor to a high number where the limit allows, makes it close-on-exec and registers it. Call
// it under a ForkGuard. Keeps errno; an invalid descriptor stays invalid.
[[nodiscard]] UniqueFd adopt_fd(int fd) noexcept;

// make_fd([] { return kernel::eventfd(0, EFD_CLOEXEC); }): creation, move and registration, with fork() kept out.
template <typename Create> [[nodiscard]] UniqueFd make_fd(Create &&create) noexcept
{
    const ForkGuard guard;
    return adopt_fd(create());
}

// False, with errno, where it fails. For descriptors that libraries made.
[[nodiscard]] bool set_nonblocking(int fd) noexcept;

// Puts a descriptor into an epoll set, for EPOLLIN. False, with errno, where it fails.
[[nodiscard]] bool watch_fd(int set, int fd) noexcept;
void unwatch_fd(int set, int fd) noexcept; // out of it, while it is open

// Memory of `size` bytes that other processes can map, zeroed. `flags`: MFD_* beside close-on-exec. errno is set where
// it fails; ENOSPC: RLIMIT_FSIZE is less, which the kernel would kill the program for.
[[nodiscard]] UniqueFd make_memory(const char *name, std::size_t size, unsigned flags = 0) noexcept;

// A second number for the same open file, for us. errno is set where it fails.
[[nodiscard]] UniqueFd duplicate_fd(int fd) noexcept;

} // namespace vma::core
