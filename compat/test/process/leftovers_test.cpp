// SPDX-License-Identifier: BSD-2-Clause
// What is unread of a stream when its endpoint goes while others get the socket: the bytes before the span, those of
// the span, and those that its sender sends again come in order and once, to whichever process reads them.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <utility>
#include <vector>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rendezvous/shared_leftovers.hpp"
#include "compat/src/rendezvous/unread_links.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::size_t kBytes = 5000;
constexpr const char *kWhy = "the test wants it";

std::vector<std::uint8_t> pattern(const End &from, std::uint64_t begin, std::size_t len)
{
    std::vector<std::uint8_t> bytes(len);
    for (std::size_t i = 0; i < len; ++i)
        bytes[i] = byte_at(begin + i, from.key);
    return bytes;
}

// `b` has bytes by the kernel that it has not read, and behind them some by the endpoint, which `a` has ended.
void leave_bytes(Pair &pair)
{
    for (int i = 0; i < 100; ++i) // offload() reads some of them, the more the busier the machine is
        send_some(pair.a, kBytes);
    assert_true(offload(pair));
    send_some(pair.a, kBytes);
    sock::pin_to_kernel(*pair.a.s, kWhy);
    sock::pin_to_kernel(*pair.b.s, kWhy);
}

void give_to_all(Pair &pair)
{
    sock::share_leftovers(*pair.b.s, false);
    assert_null(pair.b.s->rx.leftovers);
    assert_non_null(pair.b.s->unread.load());
}

bool folder_exists()
{
    char path[sock::kOffersPathMax];
    char folder[sock::kOffersPathMax + 10];
    struct stat st = {};
    sock::offers_path(path);
    std::snprintf(folder, sizeof folder, "%s/unread", path);
    return ::stat(folder, &st) == 0;
}

void bytes_by_both_ways_are_shared(void **)
{
    Pair pair;
    leave_bytes(pair);
    give_to_all(pair);
    assert_true(folder_exists());
    const pid_t child = ::fork();
    if (child == 0) {
        std::vector<std::uint8_t> bytes(kBytes);
        const ssize_t n = sock::receive(*pair.b.s, pair.b.fd, bytes.data(), kBytes, MSG_DONTWAIT);
        ::_exit(n == kBytes && bytes == pattern(pair.a, pair.b.received, kBytes) ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    pair.b.received += kBytes;
    send_some(pair.a, kBytes); // by the kernel, behind them
    drain(pair);
    assert_false(sock::is_offloaded(*pair.b.s));
    assert_false(folder_exists());
}

// A byte that comes before the span has not come within a second: both programs hear of a reset, and of no end behind
// it.
void bytes_that_do_not_come_are_no_end(void **)
{
    Pair pair;
    leave_bytes(pair);
    receive_all(pair.a, pair.b);
    pair.b.s->rx.start_at.fetch_add(1);
    sock::share_leftovers(*pair.b.s, false);
    std::vector<std::uint8_t> bytes(kBytes);
    ssize_t n = 0;
    while ((n = sock::receive(*pair.b.s, pair.b.fd, bytes.data(), kBytes, MSG_DONTWAIT)) > 0) {
        check_bytes(pair.b, pair.a.key, bytes.data(), static_cast<std::size_t>(n));
        pair.b.received += static_cast<std::uint64_t>(n);
    }
    assert_int_equal(n, -1);
    assert_int_equal(errno, ECONNRESET);
    expect_receive(pair.b, -1, ECONNRESET);
    expect_receive(pair.a, -1, ECONNRESET);
}

// Many readers at once, in several processes: each byte goes to one of them.
void readers_race(void **)
{
    constexpr int kReaders = 4;
    Pair pair;
    leave_bytes(pair);
    give_to_all(pair);
    const std::size_t left = sock::shared_left(*pair.b.s);
    auto *const seen = static_cast<std::atomic<std::uint64_t> *>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    assert_ptr_not_equal(seen, MAP_FAILED);
    for (int i = 0; i < kReaders; ++i) {
        if (::fork() != 0)
            continue;
        std::uint8_t bytes[7];
        while (sock::shared_left(*pair.b.s) != 0) {
            const ssize_t n = sock::receive(*pair.b.s, pair.b.fd, bytes, sizeof bytes, MSG_DONTWAIT);
            for (ssize_t at = 0; at < n; ++at)
                seen[1] += bytes[at];
            seen[0] += n > 0 ? static_cast<std::uint64_t>(n) : 0;
        }
        ::_exit(0);
    }
    for (int i = 0; i < kReaders; ++i) {
        int status = -1;
        ::wait(&status);
        assert_int_equal(status, 0);
    }
    std::uint64_t sum = 0;
    for (const std::uint8_t byte : pattern(pair.a, pair.b.received, left))
        sum += byte;
    assert_int_equal(seen[0], left);
    assert_int_equal(seen[1], sum);
    pair.b.received += left;
    ::munmap(seen, 4096);
    drain(pair);
}

// Another process finds them by the socket alone.
void a_descriptor_finds_them(void **)
{
    Pair pair;
    leave_bytes(pair);
    give_to_all(pair);
    const std::size_t left = sock::shared_left(*pair.b.s);
    const int other = libc::real.dup(pair.b.fd);
    assert_false(sock::adopt(0, false));
    assert_true(sock::adopt(other, false));
    End end = pair.b;
    end.fd = other;
    end.s = static_cast<sock::Stream *>(sock::lookup(other));
    assert_int_equal(sock::shared_left(*end.s), left);
    receive_some(end, pair.a, kBytes, 0);
    assert_int_equal(sock::shared_left(*pair.b.s), left - kBytes);
    sock::forget(other);
    libc::real.close(other);
    pair.b.received = end.received;
    drain(pair);
}

// What happens in another process just before the next shmdt() or shmctl() of this one; once.
void (*g_meanwhile)() = nullptr;
sock::SharedLeftovers *g_other = nullptr;

void let_it_happen()
{
    if (void (*const meanwhile)() = std::exchange(g_meanwhile, nullptr))
        meanwhile();
}

// As exec() leaves a segment.
void detach(sock::SharedLeftovers &u)
{
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    ::syscall(SYS_shmdt, reinterpret_cast<std::uintptr_t>(sock::unread_room(u)) & ~(page - 1));
}

void other_becomes_another_program()
{
    sock::unread_handed(*g_other);
    detach(*g_other);
}

// A socket with ten unread bytes that two processes hold: `mine` is this one's. Before the next call of ours the other
// one hands them to the program that it becomes.
struct Held {
    int fd = libc::real.socket(AF_INET, SOCK_STREAM, 0);
    sock::SharedLeftovers *mine = nullptr;

    Held()
    {
        mine = sock::make_unread(fd, 10);
        assert_non_null(mine);
        sock::publish_unread(*mine, 10, 0);
        g_other = sock::find_unread(fd, false);
        assert_non_null(g_other);
        g_meanwhile = other_becomes_another_program;
    }

    ~Held()
    {
        ::free(g_other); // of the program that was: only its memory is ours as well
        sock::SharedLeftovers *const found = sock::find_unread(fd, true); // that program
        assert_non_null(found);
        assert_int_equal(sock::unread_left(*found), 10);
        sock::leave_unread(found);
        assert_false(folder_exists());
        libc::real.close(fd);
    }
};

void the_last_but_one_leaves_while_it_is_handed_on(void **)
{
    const Held held;
    sock::leave_unread(held.mine);
    assert_null(g_meanwhile);
}

void other_reads_all_and_drops_them()
{
    std::vector<std::uint8_t> bytes(kBytes);
    iovec part = {bytes.data(), bytes.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    while (sock::read_unread(*g_other, message, 0, 0) != 0) {
    }
    sock::leave_unread(g_other);
}

// A process closes its copy of the socket just as the other one reads the last byte: that one's end is no reset.
void the_last_bytes_are_read_while_it_is_closed(void **)
{
    Pair pair;
    leave_bytes(pair);
    give_to_all(pair);
    const int other = libc::real.dup(pair.b.fd);
    g_other = sock::find_unread(other, false);
    assert_non_null(g_other);
    g_meanwhile = other_reads_all_and_drops_them;
    sock::forget(pair.b.fd);
    libc::real.close(pair.b.fd);
    pair.b.fd = -1;
    assert_null(g_meanwhile);
    linger after = {};
    socklen_t size = sizeof after;
    assert_int_equal(libc::real.getsockopt(other, SOL_SOCKET, SO_LINGER, &after, &size), 0);
    assert_int_equal(after.l_onoff, 0);
    libc::real.close(other);
    char byte;
    assert_int_equal(libc::real.recv(pair.a.fd, &byte, 1, 0), 0);
    assert_false(folder_exists());
}

void nobody_is_the_last_while_it_is_handed_on(void **)
{
    const Held held;
    assert_false(sock::is_last_with(*held.mine));
    assert_null(g_meanwhile);
    sock::leave_unread(held.mine);
}

// Nobody has read them: they go with the last one, or with the next program if that was killed.
void nothing_is_left(void **)
{
    for (const bool killed : {false, true}) {
        const pid_t child = ::fork();
        if (child == 0) {
            Pair pair;
            leave_bytes(pair);
            sock::share_leftovers(*pair.b.s, killed);
            if (!folder_exists())
                ::_exit(1);
            if (killed)
                ::raise(SIGKILL);
            sock::forget(pair.b.fd);
            ::_exit(folder_exists() ? 2 : 0);
        }
        int status = -1;
        assert_int_equal(::waitpid(child, &status, 0), child);
        assert_int_equal(status, killed ? SIGKILL : 0);
        assert_int_equal(folder_exists(), killed);
    }
    assert_true(sock::open_offers());
    sock::remove_unread_of_the_dead();
    assert_false(folder_exists());
}

// Its process ended before it answered RETURN, and had sent some of it again.
void a_peer_dies_without_an_answer(void **)
{
    constexpr std::size_t kAgain = 2000;
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    const std::uint64_t begin = pair.a.sent;
    send_some(pair.a, kBytes);
    while (pair.b.s->rx.written.load() - pair.b.s->rx.consumed.load() != kBytes)
        sched_yield();
    pair.b.s->rx.returning = true;
    const void *view = nullptr; // from here on what is in the ring is the peer's to send again
    std::size_t size = sizeof view;
    assert_int_equal(
        fi_getopt(&pair.a.s->endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PEER_VIEW), &view, &size), 0);
    pair.b.s->endpoint_down = true;
    const std::vector<std::uint8_t> again = pattern(pair.a, begin, kAgain);
    assert_int_equal(libc::real.send(pair.a.fd, again.data(), kAgain, 0), kAgain);
    libc::real.shutdown(pair.a.fd, SHUT_WR);
    sock::pin_to_kernel(*pair.b.s, kWhy);
    give_to_all(pair);
    drain(pair);
    std::uint8_t byte;
    assert_int_equal(sock::receive(*pair.b.s, pair.b.fd, &byte, 1, 0), 0);
}

void lose_bytes_before(Pair &pair, std::uint8_t (&bytes)[kBytes])
{
    leave_bytes(pair);
    assert_true(libc::real.recv(pair.b.fd, bytes, kBytes, MSG_DONTWAIT) > 0);
    libc::real.shutdown(pair.a.fd, SHUT_WR);
    give_to_all(pair);
}

// Bytes that the kernel had before the span have gone, as those that find no room when the peer resets the connection:
// whoever reads is not told that the stream has ended well. `forks`: another process is forked before the next read.
void check_error_of_what_has_not_come(bool forks)
{
    Pair pair;
    std::uint8_t bytes[kBytes];
    lose_bytes_before(pair, bytes);
    while (sock::shared_left(*pair.b.s) != 0)
        assert_true(sock::receive(*pair.b.s, pair.b.fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0);
    if (forks)
        sock::fall_back(*pair.b.s, true);
    const int other = libc::real.dup(pair.b.fd); // another process finds the error, too; the first who asks is told
    assert_true(sock::adopt(other, false));
    sock::Socket *const adopted = sock::lookup(other);
    if (adopted == nullptr) {
        UNIT_FAIL("it is not tracked");
        return;
    }
    sock::Stream &reader = forks ? *pair.b.s : static_cast<sock::Stream &>(*adopted);
    assert_int_equal(sock::ready_events(reader, forks ? pair.b.fd : other, POLLIN) & (POLLIN | POLLERR),
                     POLLIN | POLLERR);
    assert_int_equal(sock::receive(reader, forks ? pair.b.fd : other, bytes, sizeof bytes, MSG_DONTWAIT), -1);
    const int error = errno;
    sock::forget(other);
    libc::real.close(other);
    assert_int_equal(error, ECONNRESET);
    expect_receive(pair.b, -1, ECONNRESET); // and whoever asks later
}

void so_error_tells_it(void **)
{
    Pair pair;
    std::uint8_t bytes[kBytes];
    lose_bytes_before(pair, bytes);
    for (const int expected : {ECONNRESET, 0}) {
        int error = -1;
        socklen_t size = sizeof error;
        assert_int_equal(sock::get_option(*pair.b.s, pair.b.fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
        assert_int_equal(error, expected);
    }
}

// A fork between the last read and the way back to the kernel.
void nothing_unread_leaves_nothing(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, kBytes);
    sock::pin_to_kernel(*pair.a.s, kWhy);
    sock::pin_to_kernel(*pair.b.s, kWhy);
    assert_non_null(pair.b.s->rx.leftovers);
    pair.b.s->rx.consumed += kBytes;
    pair.b.received += kBytes;
    sock::share_leftovers(*pair.b.s, true);
    assert_null(pair.b.s->unread.load());
    assert_false(folder_exists());
}

void what_has_not_come_is_an_error(void **)
{
    check_error_of_what_has_not_come(false);
    check_error_of_what_has_not_come(true);
}

// A sender that goes back to the kernel has not found room there yet for what its peer gave back.
void a_resend_is_not_dropped(void **)
{
    constexpr std::size_t kMuch = 100000;
    Pair pair;
    const int little = 4096;
    libc::real.setsockopt(pair.a.fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    libc::real.setsockopt(pair.b.fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    send_until_full(pair.a, kMuch);
    assert_true(offload(pair));
    send_some(pair.a, kMuch);
    sock::start_leaving(*pair.b.s, sock::Heir::kAnybody);
    while (pair.a.s->tx.resend_from.load() == sock::kNone)
        sched_yield();
    sock::pin_to_kernel(*pair.a.s, kWhy);
    assert_false(sock::has_endpoint(*pair.a.s));
    for (const std::uint64_t until = pair.a.sent + kBytes; pair.a.sent < until;) { // that comes behind
        send_some(pair.a, kBytes);
        receive_some(pair.b, pair.a, kBytes, 0);
    }
    drain(pair);
}

// What was unread at a fork is read, and nobody else has the socket.
void a_stream_is_offloaded_again(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    for (int round = 0; round < 3; ++round) {
        send_some(pair.a, kBytes);
        while (pair.b.s->rx.written.load() == pair.b.s->rx.consumed.load())
            sched_yield();
        sock::return_one(*pair.b.s, sock::Heir::kLibrary);
        assert_non_null(pair.b.s->rx.leftovers);
        sock::share_leftovers(*pair.b.s, false);
        assert_non_null(pair.b.s->unread.load());
        drain(pair);
        assert_true(offload(pair));
        assert_null(pair.b.s->unread.load());
        drain(pair);
    }
}

} // namespace

// In libc's place.
extern "C" int shmdt(const void *address) noexcept
{
    let_it_happen();
    return static_cast<int>(::syscall(SYS_shmdt, address));
}

extern "C" int shmctl(int id, int command, shmid_ds *about) noexcept
{
    let_it_happen();
    return static_cast<int>(::syscall(SYS_shmctl, id, command, about));
}

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(bytes_by_both_ways_are_shared),
        cmocka_unit_test(bytes_that_do_not_come_are_no_end),
        cmocka_unit_test(readers_race),
        cmocka_unit_test(a_descriptor_finds_them),
        cmocka_unit_test(the_last_but_one_leaves_while_it_is_handed_on),
        cmocka_unit_test(nobody_is_the_last_while_it_is_handed_on),
        cmocka_unit_test(the_last_bytes_are_read_while_it_is_closed),
        cmocka_unit_test(a_peer_dies_without_an_answer),
        cmocka_unit_test(what_has_not_come_is_an_error),
        cmocka_unit_test(nothing_unread_leaves_nothing),
        cmocka_unit_test(so_error_tells_it),
        cmocka_unit_test(a_resend_is_not_dropped),
        cmocka_unit_test(a_stream_is_offloaded_again),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
