// SPDX-License-Identifier: BSD-2-Clause
// A filter of system calls, of one thread and unknown to the library, refuses the call that hands over kLeft entries,
// and the handler of SIGSYS leaves it: what was to be handed over is there still, and whoever calls next hands it over.
#include "fabtests/sockets/programs/io_uring/left.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <thread>

#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/uring.hpp"

namespace fabtest {

namespace {

constexpr unsigned kLeft = 5;

sigjmp_buf g_before; // the thread whose call is left

// By an instruction of its own, as the library leaves sockets to the kernel where it sees a filter.
long instruction(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long result = number;
    asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long call asm("x8") = number;
    register long first asm("x0") = a;
    register long second asm("x1") = b;
    register long third asm("x2") = c;
    asm volatile("svc 0" : "+r"(first) : "r"(call), "r"(second), "r"(third) : "memory");
    return first;
#else
    return ::syscall(number, a, b, c);
#endif
}

void refuse_in_this_thread()
{
    static sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])), // its lower half: all is little-endian
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kLeft, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {sizeof code / sizeof *code, code};
    must(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
    if (const long result = instruction(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, reinterpret_cast<long>(&program));
        result != 0)
        die("the filter: %s", name_of(static_cast<int>(result)));
}

void jump(int)
{
    siglongjmp(g_before, 1);
}

void end_thread(int)
{
    ::pthread_exit(nullptr);
}

void handle(int signal, void (*handler)(int))
{
    struct sigaction action = {};
    action.sa_handler = handler;
    must(::sigaction(signal, &action, nullptr), "sigaction");
}

// The first of them changes an epoll set, which the library has done by then.
void write_entries(Uring &uring, int set, int fd, epoll_event *event)
{
    change(uring, set, EPOLL_CTL_ADD, fd, event).user_data = 1;
    for (unsigned i = 2; i <= kLeft; ++i)
        uring.next(IORING_OP_NOP, -1).user_data = i;
}

void hand_over(Uring &uring, const char *what, unsigned count)
{
    if (const long taken = ::syscall(SYS_io_uring_enter, uring.fd, count, 0, 0, nullptr, 0UL); taken != count)
        die("%s: %ld of %u", what, taken, count);
}

void leave_by_jump(Uring &uring)
{
    handle(SIGSYS, jump);
    if (sigsetjmp(g_before, 1) == 0)
        hand_over(uring, "not to come", kLeft);
}

void leave_by_end(Uring &uring)
{
    handle(SIGSYS, end_thread);
    hand_over(uring, "not to come", kLeft);
}

// Hands over two entries, and waits for all completions that there will be.
class Waiting
{
public:
    Waiting(Uring &uring, unsigned completions)
    {
        must(::pipe(pair_), "pipe");
        uring.next(IORING_OP_NOP, -1).user_data = 100;
        io_uring_sqe &entry = uring.next(IORING_OP_WRITE, pair_[1]);
        entry.addr = reinterpret_cast<std::uintptr_t>("x");
        entry.len = 1;
        entry.user_data = 101;
        thread_ = std::thread([&uring, completions] { uring.enter(2, completions); });
        char byte = 0;
        must(static_cast<int>(::read(pair_[0], &byte, 1)), "read"); // so they were taken
    }
    Waiting(const Waiting &) = delete;
    Waiting &operator=(const Waiting &) = delete;
    ~Waiting()
    {
        thread_.join();
        ::close(pair_[0]);
        ::close(pair_[1]);
    }

private:
    int pair_[2] = {-1, -1};
    std::thread thread_;
};

// Each of them once; in what order is not said here.
void print_completed(Uring &uring)
{
    unsigned long long sum = 0;
    std::size_t count = 0;
    for (const io_uring_cqe &done : uring.completed()) {
        sum += done.user_data;
        ++count;
        if (done.res < 0)
            std::printf("%llu: %s\n", done.user_data, name_of(done.res));
    }
    std::printf("completed: %zu, %llu\n", count, sum);
}

// The call waits, and has handed over what there was.
void leave_a_wait(Uring &uring, int set, int fd)
{
    static pthread_t self;
    epoll_event event = {};
    event.events = EPOLLIN;
    self = ::pthread_self();
    handle(SIGUSR1, jump);
    int pair[2] = {-1, -1};
    must(::pipe(pair), "pipe");
    std::thread other([&pair] {
        char byte = 0;
        must(static_cast<int>(::read(pair[0], &byte, 1)), "read");
        ::pthread_kill(self, SIGUSR1);
    });
    if (sigsetjmp(g_before, 1) == 0) {
        change(uring, set, EPOLL_CTL_ADD, fd, &event);
        io_uring_sqe &entry = uring.next(IORING_OP_WRITE, pair[1]);
        entry.addr = reinterpret_cast<std::uintptr_t>("x");
        entry.len = 1;
        uring.enter(2, 3);
    }
    other.join();
    print_completed(uring);
}

} // namespace

void left(const std::string &how)
{
    Entered uring(16);
    const Ends ends = accelerated();
    const int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event = {};
    event.events = EPOLLIN;
    if (how == "wait") {
        leave_a_wait(uring, set, ends.b);
    } else {
        const std::unique_ptr<Waiting> waiting(how == "beside" ? new Waiting(uring, kLeft + 2) : nullptr);
        write_entries(uring, set, ends.b, &event);
        std::thread([&] {
            refuse_in_this_thread();
            how == "end" ? leave_by_end(uring) : leave_by_jump(uring);
        }).join();
        hand_over(uring, "some", 2);
        hand_over(uring, "the others", kLeft - 2);
    }
    if (how != "wait")
        print_completed(uring);
    send_all(ends.a, "x", 1);
    std::printf("told: %d\n", must(::epoll_wait(set, &event, 1, -1), "epoll_wait"));
    receive_all(ends.b, &event, 1);
    talk(ends, 50);
    std::printf("a NOP: ");
    uring.next(IORING_OP_NOP, -1);
    std::printf("%s\n", name_of(uring.run()));
}

} // namespace fabtest
