// SPDX-License-Identifier: BSD-2-Clause
// For tests of the wrappers as a program meets them: the test runs itself under libvma.so. What such a test asserts is
// what libc does without the library too; start it with WRAPPED_TEST_BARE=1 to see that.
#pragma once

#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <link.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

// Two ends of a TCP connection over loopback.
struct Pair {
    int a = -1;
    int b = -1;
};

inline Pair connect_pair()
{
    Pair pair;
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    assert_int_equal(::bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
    assert_int_equal(::listen(listener, 5), 0);
    assert_int_equal(::getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length), 0);
    pair.a = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(::connect(pair.a, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
    pair.b = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    assert_true(pair.b >= 0);
    assert_int_equal(::close(listener), 0);
    return pair;
}

inline void close_pair(const Pair &pair)
{
    assert_int_equal(::close(pair.a), 0);
    assert_int_equal(::close(pair.b), 0);
}

inline void expect_bytes(int fd, const char *text)
{
    char got[64] = {};
    const std::size_t length = std::strlen(text);
    assert_int_equal(::recv(fd, got, length, MSG_WAITALL), length);
    assert_string_equal(got, text);
}

inline int exit_status(pid_t child)
{
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

template <typename Body> pid_t in_fork(Body body)
{
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(body());
    return child;
}

inline bool bare()
{
    return std::getenv("WRAPPED_TEST_BARE") != nullptr;
}

// A sanitizer's runtime that this program has, as it must come first; empty without.
inline std::string sanitizer_runtime()
{
    std::string found;
    ::dl_iterate_phdr(
        [](dl_phdr_info *info, std::size_t, void *into) {
            for (const char *const name : {"libasan.so", "libtsan.so"})
                if (std::strstr(info->dlpi_name, name) != nullptr)
                    *static_cast<std::string *>(into) = std::string(info->dlpi_name) + ":";
            return 0;
        },
        &found);
    return found;
}

// Starts this program again under the library that this build made, unless it is there; returns 0 then.
inline int run_under_library(char **argv)
{
    if (bare() || std::getenv("LD_PRELOAD") != nullptr)
        return 0;
#ifdef __SANITIZE_THREAD__
    std::puts("1..0 # SKIP ThreadSanitizer's runtime calls the wrappers before it is ready");
    std::exit(0);
#endif
    std::error_code error;
    std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    for (; folder.has_relative_path(); folder = folder.parent_path()) {
        const std::filesystem::path library = folder / ".libs" / "libvma.so";
        if (!std::filesystem::exists(library))
            continue;
        ::setenv("LD_PRELOAD", (sanitizer_runtime() + library.string()).c_str(), 1);
        ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0); // of the shells that it starts
        ::setenv("VMA_TRACELEVEL", "warn", 0);
        ::execv("/proc/self/exe", argv);
    }
    std::perror("libvma.so");
    return 1;
}
