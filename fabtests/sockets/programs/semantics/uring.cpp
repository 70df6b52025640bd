// SPDX-License-Identifier: BSD-2-Clause
// Bytes that go by a ring of io_uring between others that go by send() and recv(): all come in order. The ring is set
// up by syscall(), by liburing (opened at run time, as programs' plug-ins do it), or by an instruction of our own,
// which nobody sees.
#include <dlfcn.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

long past_libc(long number, long a, long b, long c = 0, long d = 0, long e = 0, long f = 0)
{
#if defined(__x86_64__)
    long result = number;
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    asm volatile("syscall"
                 : "+a"(result)
                 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
#else
    return ::syscall(number, a, b, c, d, e, f);
#endif
}

class Ring
{
public:
    explicit Ring(int fd, const io_uring_params &made) : fd_(fd), made_(made)
    {
        if (fd_ < 0)
            return;
        queues_ = map(made.cq_off.cqes + made.cq_entries * sizeof(io_uring_cqe) + 4096, IORING_OFF_SQ_RING);
        entries_ = map(made.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
    }
    bool there() const { return fd_ >= 0; }

    // One operation, and what it gave.
    int run(unsigned char operation, int socket, void *buffer, unsigned size)
    {
        auto *const entry = static_cast<io_uring_sqe *>(entries_);
        std::memset(entry, 0, sizeof *entry);
        entry->opcode = operation;
        entry->fd = socket;
        entry->addr = reinterpret_cast<std::uintptr_t>(buffer);
        entry->len = size;
        *at(made_.sq_off.array + (*at(made_.sq_off.tail) & *at(made_.sq_off.ring_mask)) * 4) = 0;
        __atomic_fetch_add(at(made_.sq_off.tail), 1, __ATOMIC_RELEASE);
        if (past_libc(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS) < 0)
            die("io_uring_enter");
        const unsigned head = *at(made_.cq_off.head);
        const auto *const done =
            reinterpret_cast<io_uring_cqe *>(at(made_.cq_off.cqes)) + (head & *at(made_.cq_off.ring_mask));
        const int result = done->res;
        __atomic_store_n(at(made_.cq_off.head), head + 1, __ATOMIC_RELEASE);
        return result;
    }

private:
    void *map(std::size_t size, long offset) const
    {
        void *const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
        if (memory == MAP_FAILED)
            die("mmap of a ring: %s", strerrorname_np(errno));
        return memory;
    }
    unsigned *at(std::size_t offset) const
    {
        return reinterpret_cast<unsigned *>(static_cast<char *>(queues_) + offset);
    }

    int fd_;
    io_uring_params made_;
    void *queues_ = nullptr;
    void *entries_ = nullptr;
};

using SetUp = long (*)(unsigned entries, io_uring_params *parameters);

long by_syscall(unsigned entries, io_uring_params *parameters)
{
    return ::syscall(SYS_io_uring_setup, entries, parameters);
}

long by_hand(unsigned entries, io_uring_params *parameters)
{
    return past_libc(SYS_io_uring_setup, entries, reinterpret_cast<long>(parameters));
}

// liburing's own has no header here; where there is no liburing, syscall() stands in.
long by_liburing(unsigned entries, io_uring_params *parameters)
{
    void *const library = ::dlopen("liburing.so.2", RTLD_NOW | RTLD_GLOBAL);
    void *const function = library != nullptr ? ::dlsym(RTLD_DEFAULT, "io_uring_setup") : nullptr;
    if (function == nullptr)
        return by_syscall(entries, parameters);
    return reinterpret_cast<int (*)(unsigned, io_uring_params *)>(function)(entries, parameters);
}

Ring make_ring(SetUp set_up)
{
    io_uring_params made = {};
    return Ring(static_cast<int>(set_up(4, &made)), made);
}

void mixed_bytes(const Side &me, int fd, Ring &ring)
{
    char text[] = "second";
    if (me.server) {
        me.say("%s", receive_text(fd, 16).c_str());
        send_text(fd, "firstsecondthird");
        me.step();
        return;
    }
    send_text(fd, "first");
    me.say("sent %d", ring.there() ? ring.run(IORING_OP_SEND, fd, text, 6) : static_cast<int>(::send(fd, text, 6, 0)));
    send_text(fd, "third");
    me.say("%s", receive_text(fd, 5).c_str());
    std::memset(text, 0, sizeof text);
    me.say("got %d", ring.there() ? ring.run(IORING_OP_RECV, fd, text, 6) : static_cast<int>(::recv(fd, text, 6, 0)));
    me.say("%s, %s", text, receive_text(fd, 5).c_str());
    me.step();
}

void ring_after_offloading(const Side &me, SetUp set_up)
{
    Ring none(-1, {});
    Ring ring = me.server ? none : make_ring(set_up);
    mixed_bytes(me, me.fd, ring);
}

} // namespace

SCENARIO(ring_by_syscall)
{
    ring_after_offloading(me, by_syscall);
}

SCENARIO(ring_by_liburing)
{
    ring_after_offloading(me, by_liburing);
}

// Found when the next connection is about to be accelerated.
SCENARIO(ring_by_hand)
{
    Ring none(-1, {});
    Ring ring = me.server ? none : make_ring(by_hand);
    const int fd = me.connect_plain();
    char byte = 0;
    for (int i = 0; i < 200; ++i) {
        must(static_cast<int>(me.server ? ::send(fd, "x", 1, 0) : ::recv(fd, &byte, 1, 0)), "there");
        must(static_cast<int>(me.server ? ::recv(fd, &byte, 1, 0) : ::send(fd, "y", 1, 0)), "and back");
    }
    me.step();
    mixed_bytes(me, fd, ring);
    ::close(fd);
}
