// SPDX-License-Identifier: BSD-2-Clause
// An io_uring by the system calls alone, all of which go by syscall(), as libuv's and those of Rust's crates do.
#pragma once

#include <linux/io_uring.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

inline constexpr unsigned kNoSqArray = 1U << 16; // IORING_SETUP_NO_SQARRAY, of Linux 6.6

class Uring
{
public:
    // As libuv makes it: without an array of indices where the kernel can, and FABTEST_SQ_ARRAY is not set.
    explicit Uring(unsigned entries, unsigned flags = 0)
    {
        const bool as_older = ::getenv("FABTEST_SQ_ARRAY") != nullptr;
        if ((as_older || !set_up(entries, flags | kNoSqArray)) && !set_up(entries, flags))
            die("io_uring_setup: %s", strerrorname_np(errno));
        map_all();
    }
    static bool knows(unsigned flags)
    {
        io_uring_params wanted = {};
        wanted.flags = flags;
        const int made = static_cast<int>(::syscall(SYS_io_uring_setup, 4, &wanted));
        if (made >= 0)
            ::close(made);
        return made >= 0;
    }
    Uring(const Uring &) = delete;
    Uring &operator=(const Uring &) = delete;
    ~Uring()
    {
        unmap_all();
        ::close(fd);
    }

    // 0, or the error; then it is as it was. What was written and not handed over goes with it.
    int resize(unsigned entries)
    {
        constexpr unsigned kResizeRings = 33; // IORING_REGISTER_RESIZE_RINGS, of Linux 6.13
        io_uring_params wanted = {};
        wanted.sq_entries = entries;
        wanted.cq_entries = 2 * entries;
        wanted.flags = IORING_SETUP_CQSIZE;
        if (::syscall(SYS_io_uring_register, fd, kResizeRings, &wanted, 1) < 0)
            return -errno;
        unmap_all();
        made_ = wanted;
        map_all();
        return 0;
    }

    // The next entry, cleared; it is handed over by the next enter().
    io_uring_sqe &next(std::uint8_t operation, int descriptor)
    {
        io_uring_sqe &entry = again();
        std::memset(static_cast<void *>(&entry), 0, sizeof entry);
        entry.opcode = operation;
        entry.fd = descriptor;
        return entry;
    }

    // The same as it stands there since it was handed over last.
    io_uring_sqe &again()
    {
        unsigned &tail = *word(made_.sq_off.tail);
        io_uring_sqe &entry = entries_[tail & (made_.sq_entries - 1)];
        __atomic_store_n(&tail, tail + 1, __ATOMIC_RELEASE);
        return entry;
    }

    unsigned waiting() const
    {
        return *word(made_.sq_off.tail) - __atomic_load_n(word(made_.sq_off.head), __ATOMIC_ACQUIRE);
    }
    unsigned size() const { return made_.sq_entries; }

    // All that were written, and waits for as many.
    void enter() { enter(waiting(), waiting()); }
    void enter(unsigned count, unsigned completions)
    {
        long taken = 0;
        do
            taken = ::syscall(SYS_io_uring_enter, fd, count, completions, IORING_ENTER_GETEVENTS, nullptr, 0UL);
        while (taken < 0 && errno == EINTR);
        if (taken != static_cast<long>(count))
            die("io_uring_enter: %ld of %u: %s", taken, count, strerrorname_np(errno));
    }

    // What is there, in the order of completion.
    std::vector<io_uring_cqe> completed()
    {
        std::vector<io_uring_cqe> all;
        unsigned head = *word(made_.cq_off.head);
        const auto *const queue = reinterpret_cast<const io_uring_cqe *>(words_ + made_.cq_off.cqes);
        for (; head != __atomic_load_n(word(made_.cq_off.tail), __ATOMIC_ACQUIRE); ++head) {
            io_uring_cqe one = {};
            std::memcpy(static_cast<void *>(&one), static_cast<const void *>(queue + (head & (made_.cq_entries - 1))),
                        sizeof one);
            all.push_back(one);
        }
        __atomic_store_n(word(made_.cq_off.head), head, __ATOMIC_RELEASE);
        return all;
    }

    // The result of one entry that was written just now.
    int run()
    {
        enter(1, 1);
        return completed().at(0).res;
    }

    int fd = -1;

private:
    bool set_up(unsigned entries, unsigned flags)
    {
        made_ = {};
        made_.flags = flags;
        fd = static_cast<int>(::syscall(SYS_io_uring_setup, entries, &made_));
        return fd >= 0;
    }
    void map_all()
    {
        const bool has_array = (made_.flags & kNoSqArray) == 0;
        const std::size_t submissions = has_array ? made_.sq_off.array + made_.sq_entries * sizeof(unsigned) : 0;
        const std::size_t completions = made_.cq_off.cqes + made_.cq_entries * sizeof(io_uring_cqe);
        words_size_ = submissions > completions ? submissions : completions;
        entries_size_ = made_.sq_entries * sizeof(io_uring_sqe);
        words_ = static_cast<char *>(map(words_size_, IORING_OFF_SQ_RING));
        entries_ = static_cast<io_uring_sqe *>(map(entries_size_, IORING_OFF_SQES));
        for (unsigned i = 0; has_array && i < made_.sq_entries; ++i)
            word(made_.sq_off.array)[i] = i;
    }
    void unmap_all()
    {
        ::munmap(words_, words_size_);
        ::munmap(entries_, entries_size_);
    }
    void *map(std::size_t size, long offset) const
    {
        void *const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
        if (memory == MAP_FAILED)
            die("mmap of an io_uring: %s", strerrorname_np(errno));
        return memory;
    }
    unsigned *word(std::size_t offset) const { return reinterpret_cast<unsigned *>(words_ + offset); }

    io_uring_params made_ = {};
    char *words_ = nullptr;
    io_uring_sqe *entries_ = nullptr;
    std::size_t words_size_ = 0;
    std::size_t entries_size_ = 0;
};

inline const char *name_of(int result)
{
    return result < 0 ? strerrorname_np(-result) : "0";
}

// An io_uring that was entered before, so that sockets may be accelerated beside it.
struct Entered : Uring {
    explicit Entered(unsigned entries) : Uring(entries)
    {
        next(IORING_OP_NOP, -1);
        run();
    }
};

// A change of an epoll set as libuv writes it.
inline io_uring_sqe &change(Uring &uring, int set, int operation, int fd, epoll_event *event)
{
    io_uring_sqe &entry = uring.next(IORING_OP_EPOLL_CTL, set);
    entry.addr = reinterpret_cast<std::uintptr_t>(event);
    entry.len = static_cast<unsigned>(operation);
    entry.off = static_cast<std::uint64_t>(fd);
    return entry;
}

} // namespace fabtest
