// SPDX-License-Identifier: BSD-2-Clause
// Every form of the calls on sockets, through the wrappers. How bytes travel once a connection is accelerated is tested
// elsewhere.
#include "compat/test/intercept/wrapped.hpp"
#include "fabtests/patience.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <string>

extern "C" ssize_t __read_chk(int, void *, size_t, size_t);
extern "C" ssize_t __recv_chk(int, void *, size_t, size_t, int);
extern "C" int __poll_chk(pollfd *, nfds_t, int, size_t);

namespace {

void library_is_there(void **)
{
    if (bare())
        UNIT_SKIP("run without the library");
    assert_non_null(::dlsym(RTLD_DEFAULT, "vma_exit"));
}

void every_form_of_sending(void **)
{
    const Pair pair = connect_pair();
    char one[] = "1", two[] = "22";
    const iovec parts[] = {{one, 1}, {two, 2}};
    msghdr message = {};
    message.msg_iov = const_cast<iovec *>(parts);
    message.msg_iovlen = 2;
    mmsghdr messages[2] = {};
    messages[0].msg_hdr = messages[1].msg_hdr = message;
    sockaddr_in ignored = {};
    assert_int_equal(::write(pair.a, "w", 1), 1);
    assert_int_equal(::send(pair.a, "s", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(::sendto(pair.a, "t", 1, 0, reinterpret_cast<sockaddr *>(&ignored), sizeof ignored), 1);
    assert_int_equal(::writev(pair.a, parts, 2), 3);
    assert_int_equal(::sendmsg(pair.a, &message, 0), 3);
    assert_int_equal(::sendmmsg(pair.a, messages, 2, 0), 2);
    assert_int_equal(messages[1].msg_len, 3);
    assert_int_equal(::pwritev2(pair.a, parts, 2, -1, 0), 3);
    assert_int_equal(::syscall(SYS_write, pair.a, "y", 1), 1);
    expect_bytes(pair.b, "wst122122122122122y");
    errno = 0;
    assert_int_equal(::pwritev2(pair.a, parts, 2, 0, 0), -1);
    assert_int_equal(errno, ESPIPE);
    const volatile int wrong = -1; // not for the compiler to see
    assert_int_equal(::writev(pair.a, parts, wrong), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(::writev(pair.a, parts, 0), 0);
    assert_int_equal(::write(pair.a, "", 0), 0);
    close_pair(pair);
}

void every_form_of_receiving(void **)
{
    const Pair pair = connect_pair();
    char buffer[8] = {};
    char other[8] = {};
    const iovec parts[] = {{buffer, 1}, {other, 2}};
    msghdr message = {};
    message.msg_iov = const_cast<iovec *>(parts);
    message.msg_iovlen = 2;
    mmsghdr messages[2] = {};
    messages[0].msg_hdr = messages[1].msg_hdr = message;
    sockaddr_storage from = {};
    socklen_t length = sizeof from;
    const std::string text = "abcdefghijklmnopqrstuvw";
    assert_int_equal(::send(pair.a, text.data(), text.size(), 0), text.size());
    assert_int_equal(::read(pair.b, buffer, 1), 1);                                                      // a
    assert_int_equal(::recv(pair.b, buffer, 1, MSG_PEEK), 1);                                            // b
    assert_int_equal(::recv(pair.b, buffer, 1, 0), 1);                                                   // b
    assert_int_equal(::recvfrom(pair.b, buffer, 1, 0, reinterpret_cast<sockaddr *>(&from), &length), 1); // c
    assert_int_equal(length, 0);
    assert_int_equal(::readv(pair.b, parts, 2), 3);      // def
    assert_int_equal(::recvmsg(pair.b, &message, 0), 3); // ghi
    const timespec longest = {patience::seconds(), 0};
    timespec timeout = longest;
    assert_int_equal(::recvmmsg(pair.b, messages, 2, MSG_WAITFORONE, &timeout), 2); // jklmno
    assert_true(timeout.tv_sec < longest.tv_sec || (timeout.tv_sec == longest.tv_sec && timeout.tv_nsec == 0));
    assert_int_equal(::preadv2(pair.b, parts, 2, -1, RWF_NOWAIT), 3);     // pqr
    assert_int_equal(__read_chk(pair.b, buffer, 1, sizeof buffer), 1);    // s
    assert_int_equal(__recv_chk(pair.b, buffer, 1, sizeof buffer, 0), 1); // t
    assert_int_equal(::syscall(SYS_read, pair.b, buffer, 1), 1);          // u
    assert_int_equal(buffer[0], 'u');
    int waiting = -1;
    assert_int_equal(::ioctl(pair.b, FIONREAD, &waiting), 0);
    assert_int_equal(waiting, 2);
    expect_bytes(pair.b, "vw");
    errno = 0;
    assert_int_equal(::recv(pair.b, buffer, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    errno = 0;
    assert_int_equal(::preadv2(pair.b, parts, 2, -1, RWF_NOWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(::read(pair.b, buffer, 0), 0); // does not wait
    assert_int_equal(::readv(pair.b, parts, 0), 0);
    timeout = {0, 1000000000};
    assert_int_equal(::recvmmsg(pair.b, messages, 2, 0, &timeout), -1);
    assert_int_equal(errno, EINVAL);
    close_pair(pair);
}

void fortified_calls_abort(void **)
{
    const Pair pair = connect_pair();
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(2);
        ::signal(SIGABRT, SIG_DFL);
        char buffer[4];
        __read_chk(pair.b, buffer, 8, sizeof buffer);
        ::_exit(0);
    }
    assert_int_equal(exit_status(child), 1000 + SIGABRT);
    close_pair(pair);
}

void descriptor_flags(void **)
{
    const Pair pair = connect_pair();
    int flags = ::fcntl(pair.b, F_GETFL);
    assert_int_equal(flags, O_RDWR);
    assert_int_equal(::fcntl(pair.b, F_SETFL, flags | O_NONBLOCK), 0);
    char byte;
    errno = 0;
    assert_int_equal(::recv(pair.b, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    int on = 0;
    assert_int_equal(::ioctl(pair.b, FIONBIO, &on), 0);
    assert_int_equal(::fcntl(pair.b, F_GETFL), O_RDWR);
    assert_int_equal(::fcntl(pair.b, F_GETFD), FD_CLOEXEC);
    int unsent = -1;
    assert_int_equal(::ioctl(pair.a, SIOCOUTQ, &unsent), 0);
    assert_int_equal(unsent, 0);
    assert_int_equal(::fcntl(pair.b, F_SETOWN, ::getpid()), 0);
    assert_int_equal(::fcntl(pair.b, F_GETOWN), ::getpid());
    close_pair(pair);
}

void duplicates_are_the_same_socket(void **)
{
    const Pair pair = connect_pair();
    const int copies[] = {::dup(pair.a), ::dup2(pair.a, 200), ::dup3(pair.a, 201, O_CLOEXEC),
                          ::fcntl(pair.a, F_DUPFD, 300), ::fcntl(pair.a, F_DUPFD_CLOEXEC, 300)};
    assert_int_equal(copies[1], 200);
    assert_int_equal(copies[2], 201);
    assert_int_equal(copies[3], 300);
    assert_int_equal(copies[4], 301);
    ::close(pair.a);
    for (const int copy : copies) {
        assert_int_equal(::write(copy, "x", 1), 1);
        expect_bytes(pair.b, "x");
        assert_int_equal(::close(copy), 0);
    }
    char byte;
    assert_int_equal(::read(pair.b, &byte, 1), 0); // the last one is gone
    ::close(pair.b);
}

void dup2_onto_a_socket(void **)
{
    const Pair pair = connect_pair();
    errno = 0;
    assert_int_equal(::dup2(9999, pair.a), -1); // leaves it alone
    assert_int_equal(errno, EBADF);
    assert_int_equal(::write(pair.a, "x", 1), 1);
    expect_bytes(pair.b, "x");
    assert_int_equal(::dup2(pair.a, pair.a), pair.a);
    assert_int_equal(::dup3(pair.a, pair.a, 0), -1);
    assert_int_equal(errno, EINVAL);
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    assert_int_equal(::dup2(ends[0], pair.a), pair.a);
    char byte = 0;
    assert_int_equal(::read(pair.b, &byte, 1), 0);
    assert_int_equal(::write(ends[1], "p", 1), 1);
    assert_int_equal(::read(pair.a, &byte, 1), 1); // a pipe now
    assert_int_equal(byte, 'p');
    ::close(ends[0]);
    ::close(ends[1]);
    close_pair(pair);
}

// Each way to close a socket; afterwards the number is a file's.
void numbers_are_used_again(void **)
{
    void (*const ways[])(int) = {
        [](int fd) { ::close(fd); },
        [](int fd) { ::close_range(static_cast<unsigned>(fd), static_cast<unsigned>(fd), 0); },
        [](int fd) { ::syscall(SYS_close, fd); },
        [](int fd) { ::syscall(SYS_close_range, fd, fd, 0); },
        [](int fd) { std::fclose(::fdopen(fd, "r+")); },
    };
    for (const auto way : ways) {
        const Pair pair = connect_pair();
        way(pair.a);
        char byte = 0;
        assert_int_equal(::read(pair.b, &byte, 1), 0);
        const int file = ::open("/dev/zero", O_RDWR);
        assert_true(file >= 0);
        assert_int_equal(::dup2(file, pair.a), pair.a);
        assert_int_equal(::read(pair.a, &byte, 1), 1);
        errno = 0;
        assert_int_equal(::send(pair.a, "x", 1, 0), -1);
        assert_int_equal(errno, ENOTSOCK);
        ::close(file);
        close_pair(pair);
    }
}

void stdio_on_a_socket(void **)
{
    const Pair pair = connect_pair();
    assert_int_equal(::dprintf(pair.a, "%d-%s|", 42, "x"), 5);
    FILE *const stream = ::fdopen(pair.b, "r+");
    char got[16] = {};
    assert_int_equal(std::fread(got, 1, 5, stream), 5);
    assert_string_equal(got, "42-x|");
    std::fputs("answer", stream);
    std::fclose(stream);
    expect_bytes(pair.a, "answer");
    assert_int_equal(::read(pair.a, got, 1), 0);
    ::close(pair.a);
}

void files_and_pipes_into_sockets(void **)
{
    const Pair pair = connect_pair();
    const int file = ::memfd_create("file", MFD_CLOEXEC);
    assert_int_equal(::write(file, "0123456789", 10), 10);
    off_t offset = 2;
    assert_int_equal(::sendfile(pair.a, file, &offset, 4), 4);
    assert_int_equal(offset, 6);
    expect_bytes(pair.b, "2345");
    ::lseek(file, 8, SEEK_SET);
    assert_int_equal(::sendfile(pair.a, file, nullptr, 100), 2);
    expect_bytes(pair.b, "89");
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    assert_int_equal(::write(ends[1], "pipe", 4), 4);
    assert_int_equal(::splice(ends[0], nullptr, pair.a, nullptr, 4, 0), 4);
    expect_bytes(pair.b, "pipe");
    assert_int_equal(::write(pair.a, "back", 4), 4);
    assert_int_equal(::splice(pair.b, nullptr, ends[1], nullptr, 4, 0), 4);
    char got[8] = {};
    assert_int_equal(::read(ends[0], got, 4), 4);
    assert_string_equal(got, "back");
    off64_t where = 0;
    assert_int_equal(::splice(ends[0], nullptr, pair.a, &where, 4, 0), -1);
    assert_int_equal(errno, EINVAL);
    ::close(ends[0]);
    ::close(ends[1]);
    ::close(file);
    close_pair(pair);
}

void waiting_for_sockets(void **)
{
    const Pair pair = connect_pair();
    pollfd entry = {pair.b, POLLIN | POLLOUT, 0};
    assert_int_equal(::poll(&entry, 1, patience::milliseconds()), 1);
    assert_int_equal(entry.revents, POLLOUT);
    entry.events = POLLIN;
    assert_int_equal(::poll(&entry, 1, 10), 0);
    const timespec short_time = {0, 10000000};
    assert_int_equal(::ppoll(&entry, 1, &short_time, nullptr), 0);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(pair.b, &in);
    timeval time = {0, 10000};
    assert_int_equal(::select(pair.b + 1, &in, nullptr, nullptr, &time), 0);
    assert_int_equal(time.tv_sec, 0);
    assert_int_equal(time.tv_usec, 0);
    assert_false(FD_ISSET(pair.b, &in));
    ::write(pair.a, "x", 1);
    assert_int_equal(::poll(&entry, 1, -1), 1);
    assert_int_equal(__poll_chk(&entry, 1, 0, sizeof entry), 1);
    FD_SET(pair.b, &in);
    time = {100, 0};
    assert_int_equal(::select(pair.b + 1, &in, nullptr, nullptr, &time), 1);
    assert_true(time.tv_sec >= 99);
    assert_true(FD_ISSET(pair.b, &in));
    time = {-1, 0};
    assert_int_equal(::select(pair.b + 1, &in, nullptr, nullptr, &time), -1);
    assert_int_equal(errno, EINVAL);
    close_pair(pair);
}

void epoll_sets(void **)
{
    const Pair pair = connect_pair();
    const int set = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = 77;
    assert_int_equal(::epoll_ctl(set, EPOLL_CTL_ADD, pair.b, &event), 0);
    assert_int_equal(::epoll_ctl(set, EPOLL_CTL_ADD, pair.b, &event), -1);
    assert_int_equal(errno, EEXIST);
    epoll_event got[4];
    assert_int_equal(::epoll_wait(set, got, 4, 10), 0);
    ::write(pair.a, "x", 1);
    assert_int_equal(::epoll_wait(set, got, 4, -1), 1);
    assert_int_equal(got[0].data.u64, 77);
    const timespec at_once = {};
    assert_int_equal(::epoll_pwait2(set, got, 4, &at_once, nullptr), 1);
    assert_int_equal(::epoll_pwait(set, got, 4, 0, nullptr), 1);
    assert_int_equal(::epoll_wait(set, got, 0, 0), -1);
    assert_int_equal(errno, EINVAL);
    const int copy = ::dup(set);
    assert_int_equal(::close(set), 0);
    assert_int_equal(::epoll_wait(copy, got, 4, 0), 1);
    assert_int_equal(::epoll_ctl(copy, EPOLL_CTL_DEL, pair.b, nullptr), 0);
    assert_int_equal(::epoll_wait(copy, got, 4, 0), 0);
    assert_int_equal(::close(copy), 0);
    assert_int_equal(::epoll_create(0), -1);
    assert_int_equal(errno, EINVAL);
    close_pair(pair);
}

void options_and_shutdown(void **)
{
    const Pair pair = connect_pair();
    int value = 0;
    socklen_t length = sizeof value;
    assert_int_equal(::getsockopt(pair.a, SOL_SOCKET, SO_TYPE, &value, &length), 0);
    assert_int_equal(value, SOCK_STREAM);
    const timeval limit = {0, 20000};
    assert_int_equal(::setsockopt(pair.b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    char byte;
    assert_int_equal(::recv(pair.b, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(::shutdown(pair.a, SHUT_WR), 0);
    assert_int_equal(::recv(pair.b, &byte, 1, 0), 0);
    ::signal(SIGPIPE, SIG_IGN);
    assert_int_equal(::send(pair.a, "x", 1, 0), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(::send(pair.b, "x", 1, 0), 1); // the other half stays
    expect_bytes(pair.a, "x");
    ::signal(SIGPIPE, SIG_DFL);
    close_pair(pair);
}

} // namespace

int main(int, char **argv)
{
    if (const int failed = run_under_library(argv))
        return failed;
    const CMUnitTest tests[] = {
        cmocka_unit_test(library_is_there),        cmocka_unit_test(every_form_of_sending),
        cmocka_unit_test(every_form_of_receiving), cmocka_unit_test(fortified_calls_abort),
        cmocka_unit_test(descriptor_flags),        cmocka_unit_test(duplicates_are_the_same_socket),
        cmocka_unit_test(dup2_onto_a_socket),      cmocka_unit_test(numbers_are_used_again),
        cmocka_unit_test(stdio_on_a_socket),       cmocka_unit_test(files_and_pipes_into_sockets),
        cmocka_unit_test(waiting_for_sockets),     cmocka_unit_test(epoll_sets),
        cmocka_unit_test(options_and_shutdown),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
