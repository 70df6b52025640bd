// SPDX-License-Identifier: BSD-2-Clause
// Sealed shared memory: making a segment of ours, and mapping a peer's after checking that it can neither shrink under
// us nor be of another size than was said. It knows nothing of what lies inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/fd.hpp"

namespace vma::local {

class Mapping
{
public:
    Mapping() noexcept = default;
    Mapping(void *base, std::size_t size) noexcept : base_(base), size_(size) {}
    Mapping(Mapping &&other) noexcept : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0))
    {
    }
    Mapping &operator=(Mapping &&other) noexcept
    {
        std::swap(base_, other.base_);
        std::swap(size_, other.size_);
        return *this;
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    ~Mapping();

    explicit operator bool() const noexcept { return base_ != nullptr; }
    std::byte *data() const noexcept { return static_cast<std::byte *>(base_); }
    std::size_t size() const noexcept { return size_; }
    void release() noexcept { base_ = nullptr; } // it is another's to end

private:
    void *base_ = nullptr;
    std::size_t size_ = 0;
};

struct SharedMemory {
    core::UniqueFd fd;
    Mapping mapping;
};

// Bytes of the pages that `size` bytes need; 0 where they are more than can be said.
std::size_t whole_pages(std::size_t size) noexcept;

// Zeroed memory of `size` bytes, rounded up to pages, sealed. 0 or a negative fi_errno.
int create_shared(const char *name, std::size_t size, SharedMemory &out) noexcept;

// Maps all of a peer's memory. -FI_EINVAL when it isn't a sealed memfd of exactly `size` bytes.
int map_shared(int fd, std::size_t size, Mapping &out) noexcept;

// A memfd that keeps its size. No file system is asked: one of the peer's could keep us waiting.
bool is_sealed_memory(int fd) noexcept;

// Likewise: the inode number of a socket, 0 where it is something else.
std::uint64_t socket_number(int fd) noexcept;

// A socket of the UNIX domain. Asks the descriptor itself: only what is known to be a socket may be a guest's.
bool is_unix_socket(int fd) noexcept;

// True for an eventfd and its like: writing to it can neither raise SIGPIPE nor reach a file.
bool is_anonymous_file(int fd) noexcept;

} // namespace vma::local
