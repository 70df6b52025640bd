// SPDX-License-Identifier: BSD-2-Clause
// New processes and programs. A process that gets a copy of our descriptors has only the kernel under them, so before
// it is made the sockets concerned return to the kernel: here, and for forks of libc's that go past us by
// pthread_atfork().
#include "compat/src/intercept/export.hpp"

#include <sys/syscall.h>

#include <cstdarg>

#include "compat/src/config/log.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/intercept/own_tables.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/stats/region.hpp"

namespace vma::intercept {

namespace {

void before_exec()
{
    if (libc::in_vfork_child())
        return;
    const libc::NotCancelled whole;
    let_loads_end(); // what is half open may be inherited
    sock::return_surviving_exec();
    stats::replaced(true);
}

// It failed, or we would not be here.
int after_exec(int result)
{
    const KeepErrno keep;
    if (libc::in_vfork_child())
        return result;
    sock::exec_failed();
    stats::replaced(false);
    return result;
}

void before_spawn(bool has_file_actions)
{
    const KeepErrno keep;
    const libc::NotCancelled whole;
    let_loads_end(); // likewise
    if (!libc::in_vfork_child())
        sock::return_for_spawn(has_file_actions);
}

void exit_at_once [[noreturn]] (int status)
{
    if (!libc::in_vfork_child() && !sock::sandboxed()) {
        sock::process_ends_at_once();
        stats::remove_file();
    }
    for (;;)
        real.syscall(SYS_exit_group, status);
}

struct Child {
    int (*function)(void *);
    void *argument;
};

int start_child [[noreturn]] (void *start)
{
    const Child child = *static_cast<Child *>(start);
    sock::fork_ends_in_child();
    sock::g_forks.gate.unlock();
    // clone() would end this thread alone, and the library's would stay.
    exit_at_once(child.function(child.argument));
}

// clone() without CLONE_VM is a fork.
int fork_by_clone(Child child, void *stack, int flags, void *parent_tid, void *tls, void *child_tid)
{
    let_loads_end(); // who loads takes the gate
    sock::g_forks.gate.lock();
    sock::clone_begins();
    const int pid = real.clone(&start_child, stack, flags, &child, parent_tid, tls, child_tid);
    const KeepErrno keep;
    sock::fork_ends_in_parent();
    sock::forked(pid);
    sock::g_forks.gate.unlock();
    return pid;
}

// The arguments of execl() and its like, as execv() wants them: counted, then copied.
int count_arguments(const char *first, va_list rest)
{
    if (first == nullptr)
        return 0;
    std::va_list copy;
    va_copy(copy, rest);
    int count = 1;
    while (va_arg(copy, char *) != nullptr)
        ++count;
    va_end(copy);
    return count;
}

void copy_arguments(char **into, const char *first, int count, va_list rest)
{
    into[0] = const_cast<char *>(first);
    for (int i = 1; i <= count; ++i)
        into[i] = va_arg(rest, char *);
}

} // namespace

// On the stack, as the caller may be a child of fork() in a program of several threads, where malloc() may hang.
#define VMA_ARGUMENTS(arguments, first, rest)                                                                          \
    const int arguments##_count = count_arguments(first, rest);                                                        \
    char **const arguments =                                                                                           \
        static_cast<char **>(__builtin_alloca((static_cast<size_t>(arguments##_count) + 1) * sizeof(char *)));         \
    copy_arguments(arguments, first, arguments##_count, rest)

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

// ---- the end without exit handlers

VMA_EXPORT void _exit(int status)
{
    exit_at_once(status);
}

VMA_EXPORT void _Exit(int status) noexcept
{
    exit_at_once(status);
}

// ---- the environment, which the libraries that are being loaded read

VMA_EXPORT int setenv(const char *name, const char *value, int replaces) noexcept
{
    let_loads_end();
    return real.setenv(name, value, replaces);
}

VMA_EXPORT int unsetenv(const char *name) noexcept
{
    let_loads_end();
    return real.unsetenv(name);
}

VMA_EXPORT int putenv(char *text) noexcept
{
    let_loads_end();
    return real.putenv(text);
}

VMA_EXPORT int clearenv() noexcept
{
    let_loads_end();
    return real.clearenv();
}

// ---- exec

VMA_EXPORT int execve(const char *path, char *const arguments[], char *const environment[]) noexcept
{
    before_exec();
    return after_exec(real.execve(path, arguments, environment));
}

VMA_EXPORT int execv(const char *path, char *const arguments[]) noexcept
{
    before_exec();
    return after_exec(real.execv(path, arguments));
}

VMA_EXPORT int execvp(const char *file, char *const arguments[]) noexcept
{
    before_exec();
    return after_exec(real.execvp(file, arguments));
}

VMA_EXPORT int execvpe(const char *file, char *const arguments[], char *const environment[]) noexcept
{
    before_exec();
    return after_exec(real.execvpe(file, arguments, environment));
}

VMA_EXPORT int fexecve(int fd, char *const arguments[], char *const environment[]) noexcept
{
    before_exec();
    return after_exec(real.fexecve(fd, arguments, environment));
}

VMA_EXPORT int execveat(int directory, const char *path, char *const arguments[], char *const environment[],
                        int flags) noexcept
{
    before_exec();
    return after_exec(real.execveat(directory, path, arguments, environment, flags));
}

VMA_EXPORT int execl(const char *path, const char *first, ...) noexcept
{
    before_exec();
    std::va_list rest;
    va_start(rest, first);
    VMA_ARGUMENTS(arguments, first, rest);
    va_end(rest);
    return after_exec(real.execv(path, arguments));
}

VMA_EXPORT int execlp(const char *file, const char *first, ...) noexcept
{
    before_exec();
    std::va_list rest;
    va_start(rest, first);
    VMA_ARGUMENTS(arguments, first, rest);
    va_end(rest);
    return after_exec(real.execvp(file, arguments));
}

VMA_EXPORT int execle(const char *path, const char *first, ...) noexcept
{
    before_exec();
    std::va_list rest;
    va_start(rest, first);
    VMA_ARGUMENTS(arguments, first, rest);
    char *const *const environment = va_arg(rest, char *const *); // after the nullptr
    va_end(rest);
    return after_exec(real.execve(path, arguments, environment));
}

// ---- processes that run another program at once

VMA_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    before_spawn(actions != nullptr);
    return real.posix_spawn(pid, path, actions, attributes, arguments, environment);
}

VMA_EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                            const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    before_spawn(actions != nullptr);
    return real.posix_spawnp(pid, file, actions, attributes, arguments, environment);
}

VMA_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int new_fd) noexcept
{
    const int result = real.posix_spawn_file_actions_adddup2(actions, fd, new_fd);
    if (result == 0 && ours(fd))
        if (sock::Socket *const s = sock::lookup(fd)) {
            const KeepErrno keep;
            sock::given_to_child(*s); // it is given back before the process is made, as all are
        }
    return result;
}

VMA_EXPORT int system(const char *command)
{
    if (command != nullptr)
        before_spawn(false);
    return real.system(command);
}

VMA_EXPORT FILE *popen(const char *command, const char *mode)
{
    before_spawn(false);
    return real.popen(command, mode);
}

VMA_ALIAS(popen) FILE *_IO_popen(const char *, const char *);

// Its words may ask for a shell.
VMA_EXPORT int wordexp(const char *words, wordexp_t *result, int flags)
{
    if ((flags & WRDE_NOCMD) == 0)
        before_spawn(false);
    return real.wordexp(words, result, flags);
}

// vfork() returns twice, the second time into a stack frame that the child has used: a wrapper in C++ could not be
// returned to. This one ends with a jump to libc's and so has no frame when it happens.
#if defined(__x86_64__)

extern "C" [[gnu::used, gnu::visibility("hidden")]] void *vma_before_vfork() noexcept
{
    before_spawn(true);
    libc::entering_vfork();
    return reinterpret_cast<void *>(real.vfork);
}

asm(R"(
    .pushsection .text
    .globl vfork, __vfork
    .type vfork, @function
    .type __vfork, @function
vfork:
__vfork:
    .cfi_startproc
    endbr64
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call vma_before_vfork
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    .cfi_endproc
    .size vfork, . - vfork
    .size __vfork, . - __vfork
    .popsection
)");

#else

VMA_EXPORT pid_t vfork() noexcept
{
    return ::fork(); // POSIX allows it
}

VMA_ALIAS(vfork) pid_t __vfork() noexcept;

#endif

// ---- copies of this process

// What pthread_atfork() is, in each object by itself. Ours are to be the first, also where a constructor comes before
// our own.
VMA_EXPORT [[VMA_AT_STARTUP]] int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(),
                                                    void *object) noexcept
{
    sock::register_fork_handlers();
    if (sock::keep_fork_handlers(prepare, parent, child) || sock::keep_allocators_handlers(prepare, parent, child))
        return 0;
    return real.__register_atfork(prepare, parent, child, object);
}

VMA_EXPORT pid_t fork() noexcept
{
    return fork_with_handlers([] { return real.fork(); });
}

VMA_ALIAS(fork) pid_t __fork() noexcept;

VMA_EXPORT pid_t _Fork() noexcept
{
    return static_cast<pid_t>(copy_process([] { return real._Fork(); }));
}

VMA_EXPORT int clone(int (*function)(void *), void *stack, int flags, void *argument, ...) noexcept
{
    std::va_list rest;
    va_start(rest, argument);
    void *const parent_tid = va_arg(rest, void *);
    void *const tls = va_arg(rest, void *);
    void *const child_tid = va_arg(rest, void *);
    va_end(rest);
    if (function == nullptr || stack == nullptr)
        return real.clone(function, stack, flags, argument, parent_tid, tls, child_tid); // which refuses it
    if ((flags & CLONE_VM) == 0)
        return fork_by_clone({function, argument}, stack, flags, parent_tid, tls, child_tid);
    before_clone(static_cast<unsigned>(flags));
    if ((flags & CLONE_VFORK) != 0) {
        before_spawn(true);
        libc::entering_vfork();
    }
    return real.clone(function, stack, flags, argument, parent_tid, tls, child_tid);
}

VMA_ALIAS(clone) int __clone(int (*)(void *), void *, int, void *, ...) noexcept;

VMA_EXPORT int daemon(int keep_directory, int keep_stdio) noexcept
{
    const int result = fork_with_handlers([=] { return real.daemon(keep_directory, keep_stdio); });
    if (result == 0 && keep_stdio == 0) { // libc's own dup2() of /dev/null
        retire_range(STDIN_FILENO, STDERR_FILENO);
        config::stderr_replaced();
    }
    return result;
}
