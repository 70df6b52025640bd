// SPDX-License-Identifier: BSD-2-Clause
// What every tool may use: a descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace vma::tool {

// Owns `fd`; below 0 it owns none, as after a call that has failed. Nothing of it is fork-safe: tools don't need that,
// and the library and the provider have classes of their own.
class Fd
{
public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd &operator=(Fd &&other) noexcept
    {
        std::swap(fd_, other.fd_);
        return *this;
    }
    Fd(const Fd &) = delete;
    Fd &operator=(const Fd &) = delete;
    ~Fd()
    {
        if (fd_ >= 0)
            ::close(fd_);
    }
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

} // namespace vma::tool
