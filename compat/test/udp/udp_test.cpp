// SPDX-License-Identifier: BSD-2-Clause
// UDP sockets over the real provider, to another socket of this process and by shared memory to another process: that
// they are accelerated, and that the datagrams of one sender keep their order whichever way they go. For
// ThreadSanitizer too.
#include "compat/test/udp/udp_peer.hpp"
#include "compat/test/udp/udp_socket.hpp"
#include "fabtests/patience.hpp"
#include "fabtests/seed.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

using namespace vma;
using namespace vma::test;

namespace {

thread_local bool t_unlocks = false; // at this thread's next turn

} // namespace

// Has another thread of the library's, for which this one stands, let go of the lock meanwhile.
extern "C" [[gnu::visibility("default")]] int sched_yield() noexcept
{
    if (std::exchange(t_unlocks, false))
        sock::g_offload.lock.unlock();
    return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace {

constexpr std::uint32_t kRounds = 2000;
constexpr std::uint32_t kOrdered = 3000;
constexpr int kWindow = 24;

// ---- ping-pong

// How many rounds were good, of kRounds, and all by the endpoint.
std::uint32_t ping_pong(const UdpSocket &socket, const sockaddr_in &to)
{
    const std::uint32_t before = socket.kernel_sends();
    for (std::uint32_t number = 1; number <= kRounds; ++number) {
        Datagram datagram;
        if (!socket.send_number(1, number, to) || !datagram.is_whole(socket.receive(datagram)) ||
            datagram.number != number || socket.kernel_sends() != before)
            return number - 1;
    }
    return kRounds;
}

void ping_pong_with_another_process(void **)
{
    const UdpSocket socket;
    assert_true(accelerate_with_peer(socket));
    const std::uint32_t taken = taken_from_ring();
    assert_int_equal(ping_pong(socket, g_peer.address), kRounds);
    assert_int_equal(taken_from_ring() - taken, kRounds);
}

// How many of one went by the kernel, sent while another thread has the lock, and names have changed.
std::uint32_t send_to_changed_names(const UdpSocket &socket)
{
    const std::uint32_t before = socket.kernel_sends();
    sock::g_offload.lock.lock();
    sock::udp::names_changed();
    assert_true(socket.send_number(0, 0, g_peer.address));
    return socket.kernel_sends() - before;
}

// What the names say now can't be asked while another thread holds the lock, and the receiver may be closed.
void names_that_changed_unseen(void **)
{
    const UdpSocket socket;
    assert_true(accelerate_with_peer(socket));
    const std::uint32_t by_kernel = send_to_changed_names(socket);
    sock::g_offload.lock.unlock();
    assert_int_equal(by_kernel, 1);
    Datagram datagram;
    assert_true(datagram.is_whole(socket.receive(datagram)));
}

// That thread is waited for a little. All is tried again where it lets go too late, or the helper thread comes next.
void names_that_changed_at_last(void **)
{
    const UdpSocket socket;
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    for (bool waited = false; !waited;) {
        assert_true(sock::now_ns() < until && accelerate_with_peer(socket));
        t_unlocks = true;
        const std::uint32_t by_kernel = send_to_changed_names(socket);
        if (std::exchange(t_unlocks, false))
            sock::g_offload.lock.unlock();
        Datagram datagram;
        assert_true(datagram.is_whole(socket.receive(datagram)));
        waited = by_kernel == 0;
    }
}

void ping_pong_between_threads(void **)
{
    const UdpSocket socket;
    const UdpSocket other;
    assert_true(accelerate_all({{socket, other}, {other, socket}}));
    const std::uint32_t taken = taken_from_ring();
    std::uint32_t by_kernel = ~0U;
    PeerStatus status = kLost;
    std::thread thread([&] { status = echo(other, by_kernel); });
    const std::uint32_t good = ping_pong(socket, other.address);
    socket.send_number(1, kEnd, other.address);
    thread.join();
    assert_int_equal(good, kRounds);
    assert_int_equal(status, kGood);
    assert_int_equal(by_kernel, 0);
    assert_int_equal(taken_from_ring(), taken); // from hand to hand, by no ring
}

// ---- order

// In the kernel's hands until the next part, which ends the datagram.
bool send_in_two_parts(const UdpSocket &socket, const Datagram &datagram, const sockaddr_in &to)
{
    const auto *const bytes = reinterpret_cast<const std::uint8_t *>(&datagram);
    const auto *const name = reinterpret_cast<const sockaddr *>(&to);
    const std::size_t half = datagram.length() / 2;
    const std::size_t rest = datagram.length() - half;
    return sock::send_to(*socket.s, socket.fd, bytes, half, MSG_MORE, name, sizeof to) == static_cast<ssize_t>(half) &&
           sock::send_to(*socket.s, socket.fd, bytes + half, rest, 0, name, sizeof to) == static_cast<ssize_t>(rest);
}

// Three parts; with ancillary data only the kernel sends it.
bool send_message(const UdpSocket &socket, Datagram &datagram, const sockaddr_in &to, bool with_ttl)
{
    sockaddr_in name = to;
    iovec parts[] = {{&datagram.sender, sizeof datagram.sender},
                     {&datagram.number, sizeof datagram.number},
                     {datagram.body, datagram.length() - kHead}};
    alignas(cmsghdr) std::uint8_t room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_name = &name;
    message.msg_namelen = sizeof name;
    message.msg_iov = parts;
    message.msg_iovlen = std::size(parts);
    if (with_ttl) {
        const int ttl = 3;
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        cmsghdr *const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_IP;
        header->cmsg_type = IP_TTL;
        header->cmsg_len = CMSG_LEN(sizeof ttl);
        std::memcpy(CMSG_DATA(header), &ttl, sizeof ttl);
    }
    return sock::send_msg(*socket.s, socket.fd, &message, 0) == static_cast<ssize_t>(datagram.length());
}

bool send_somehow(const UdpSocket &socket, Datagram &datagram, const sockaddr_in &to, unsigned dice)
{
    switch (dice % 12) {
    case 0:
        return send_in_two_parts(socket, datagram, to);
    case 1:
        return send_message(socket, datagram, to, true);
    case 2:
        return send_message(socket, datagram, to, false);
    default:
        return socket.send(datagram, to) == static_cast<ssize_t>(datagram.length());
    }
}

// Which of them went by the kernel; empty: a send failed.
std::vector<bool> send_all(const UdpSocket &socket, const sockaddr_in &to, Window &window, unsigned seed)
{
    std::minstd_rand random(seed);
    std::vector<bool> by_kernel;
    for (std::uint32_t number = 0; number < kOrdered; ++number) {
        Datagram datagram;
        datagram.fill(2, number);
        const std::uint32_t before = socket.kernel_sends();
        if (!window.enter() || !send_somehow(socket, datagram, to, static_cast<unsigned>(random() >> 8)))
            return {};
        by_kernel.push_back(socket.kernel_sends() != before);
    }
    return by_kernel;
}

// Where the kernel's datagrams stand among the others, which they may leave only as doc/datagrams.md says.
struct Order {
    std::uint32_t late = 0;  // came after a later one by the endpoint: the kernel took its time
    std::uint32_t early = 0; // came before an earlier one by the endpoint, which follows one of the kernel's
};

// Each way for itself is in order. Of those by the endpoint only one that follows one by the kernel lets the kernel's
// go before it, of which the receiver can't tell whether they are the ones that it follows.
Order order_of(const std::vector<std::uint32_t> &received, const std::vector<bool> &by_kernel)
{
    Order order;
    std::int64_t last_kernel = -1;
    std::uint32_t next = 0; // by the endpoint
    const auto find_next = [&] {
        while (next < by_kernel.size() && by_kernel[next])
            ++next;
    };
    find_next();
    for (const std::uint32_t number : received) {
        if (!by_kernel[number]) {
            if (number != next)
                UNIT_FAIL("out of order by the endpoint");
            ++next;
            find_next();
            continue;
        }
        if (number < last_kernel)
            UNIT_FAIL("out of order by the kernel");
        last_kernel = number;
        const bool after_kernel = next == 0 || by_kernel[next - 1];
        if (number > next && !after_kernel)
            UNIT_FAIL("the kernel's overtook one by the endpoint");
        order.early += number > next ? 1 : 0;
        order.late += next > number + 1 && !std::all_of(by_kernel.begin() + number, by_kernel.begin() + next,
                                                        [](bool k) { return k; })
                          ? 1
                          : 0;
    }
    return order;
}

void keeps_order(const UdpSocket &from, const sockaddr_in &to, const UdpSocket &at)
{
    const unsigned random = seed();
    const std::uint32_t backlogs = g_seen_backlogs.load();
    Window window(kWindow);
    std::vector<std::uint32_t> received;
    std::thread receiver([&] {
        Datagram datagram;
        while (received.size() < kOrdered && datagram.is_whole(at.receive(datagram))) {
            received.push_back(std::min(datagram.number, kOrdered - 1));
            window.leave();
        }
    });
    const std::vector<bool> by_kernel = send_all(from, to, window, random);
    receiver.join();
    assert_int_equal(by_kernel.size(), kOrdered);
    assert_int_equal(received.size(), kOrdered);
    const auto kernels = static_cast<std::uint32_t>(std::count(by_kernel.begin(), by_kernel.end(), true));
    const std::uint32_t stayed = g_seen_backlogs.load() - backlogs; // with the kernel, at most
    assert_in_range(kernels, kOrdered / 12, kOrdered / 4 + stayed); // a sixth is meant
    const Order order = order_of(received, by_kernel);
    print_message("# %u of %u by the kernel, %u late, %u early, %u backlogs\n", kernels, kOrdered, order.late,
                  order.early, stayed);
    assert_in_range(order.late, 0, kernels / 4);
    std::sort(received.begin(), received.end());
    for (std::uint32_t number = 0; number < kOrdered; ++number)
        assert_int_equal(received[number], number);
}

void order_of_both_ways_between_processes(void **)
{
    const UdpSocket socket;
    assert_true(accelerate_with_peer(socket));
    keeps_order(socket, g_peer.address, socket);
}

void order_of_both_ways_between_threads(void **)
{
    const UdpSocket from;
    const UdpSocket to;
    assert_true(accelerate(from, to));
    keeps_order(from, to.address, to);
}

// One thread's every sixth goes by the kernel; what it sends then by the endpoint waits for that, whatever others send
// between.
void send_every_sixth_by_kernel(const UdpSocket &from, const sockaddr_in &to, Window &window, std::uint32_t sender)
{
    for (std::uint32_t number = 0; number < kOrdered && window.enter(); ++number) {
        Datagram datagram;
        datagram.fill(sender, number);
        send_message(from, datagram, to, number % 6 == 0);
    }
}

void order_of_threads_that_share_a_socket(void **)
{
    const UdpSocket from;
    const UdpSocket to;
    assert_true(accelerate(from, to));
    Window window(kWindow);
    std::thread senders[] = {
        std::thread([&] { send_every_sixth_by_kernel(from, to.address, window, 0); }),
        std::thread([&] { send_every_sixth_by_kernel(from, to.address, window, 1); }),
    };
    std::uint32_t received = 0;
    std::uint32_t late = 0;
    std::uint32_t last[2] = {};
    Datagram datagram;
    while (received < 2 * kOrdered && datagram.is_whole(to.receive(datagram))) {
        std::uint32_t &latest = last[datagram.sender % 2];
        if (datagram.number % 6 == 0)
            late += datagram.number < latest ? 1 : 0;
        else
            latest = std::max(latest, datagram.number);
        ++received;
        window.leave();
    }
    for (std::thread &sender : senders)
        sender.join();
    print_message("# %u of %u late\n", late, 2 * kOrdered / 6);
    assert_int_equal(received, 2 * kOrdered);
    assert_in_range(late, 0, kOrdered / 50);
}

// What one socket has sent by the kernel is read before what another one sends then by the endpoint.
void order_of_two_sockets(void **)
{
    const UdpSocket one;
    const UdpSocket connected;
    const UdpSocket batch;
    const UdpSocket other;
    const UdpSocket to;
    assert_true(accelerate(other, to));
    const auto *const name = reinterpret_cast<const sockaddr *>(&to.address);
    assert_int_equal(sock::connect_datagram(*connected.s, connected.fd, name, sizeof to.address), 0);
    Datagram first;
    first.fill(7, 1);
    sockaddr_in place = to.address;
    iovec part = {&first, first.length()};
    mmsghdr message = {};
    message.msg_hdr.msg_name = &place;
    message.msg_hdr.msg_namelen = sizeof place;
    message.msg_hdr.msg_iov = &part;
    message.msg_hdr.msg_iovlen = 1;
    const auto length = static_cast<ssize_t>(first.length());
    const std::function<bool()> ways[] = {
        [&] { return one.send(first, to.address) == length; },
        [&] { return send_message(one, first, to.address, true); },
        [&] {
            return sock::send(*connected.s, connected.fd, &first, first.length(), MSG_MORE) == length &&
                   sock::send(*connected.s, connected.fd, nullptr, 0, 0) == 0;
        },
        [&] { return sock::send_messages(*batch.s, batch.fd, &message, 1, 0) == 1; },
    };
    for (const auto &send_by_kernel : ways)
        for (std::uint32_t round = 0; round < 3; ++round) {
            assert_true(send_by_kernel());
            assert_true(other.send_number(8, 2, to.address));
            Datagram received;
            assert_true(received.is_whole(to.receive(received)));
            assert_int_equal(received.sender, 7);
            assert_true(received.is_whole(to.receive(received)));
            assert_int_equal(received.sender, 8);
        }
}

// What was read of the kernel's is nothing to go after: the first datagram by the endpoint doesn't wait for a later
// one.
void order_before_the_kernel(void **)
{
    g_quiet = true;
    const UdpSocket other;
    const UdpSocket to;
    assert_true(accelerate(other, to));
    for (std::uint32_t round = 0; round < 20; ++round) {
        const UdpSocket fresh;
        Datagram datagram;
        assert_true(fresh.send_number(8, 0, to.address));
        assert_true(datagram.is_whole(to.receive(datagram)));
        assert_true(fresh.send_number(8, 1, to.address));
        datagram.fill(7, 2);
        assert_true(send_message(other, datagram, to.address, true));
        assert_true(datagram.is_whole(to.receive(datagram)));
        assert_int_equal(datagram.sender, 8);
        assert_true(datagram.is_whole(to.receive(datagram)));
        assert_int_equal(datagram.sender, 7);
    }
    g_quiet = false;
}

// Sends by either way, and waits until it is there: what goes by the kernel may lie in the queue of a processor for a
// while.
template <typename Send> bool deliver(const UdpSocket &from, const UdpSocket &to, Send send)
{
    const std::uint32_t before = from.kernel_sends();
    pollfd p = {to.fd, POLLIN, 0};
    return send() && (from.kernel_sends() == before || ::poll(&p, 1, patience::milliseconds()) == 1);
}

// As the kernel finds it: after a datagram was taken, and not while there is none, whichever way was looked at.
void no_place_for_the_name(void **)
{
    const UdpSocket from;
    const UdpSocket to;
    assert_true(accelerate(from, to));
    sockaddr_in name = {};
    char byte = 0;
    const auto receive = [&](sockaddr *place, socklen_t *room) {
        sock::udp::state_of(*to.s).kernel_look = 0; // so it looks at the kernel
        errno = 0;
        return sock::receive_from(*to.s, to.fd, &byte, 1, MSG_DONTWAIT, place, room);
    };
    auto *const place = reinterpret_cast<sockaddr *>(&name);
    auto *const nowhere = reinterpret_cast<sockaddr *>(16);
    const struct {
        sockaddr *place;
        int room; // -2: there is none
        int error;
    } wrong[] = {{place, -1, EINVAL}, {place, -2, EFAULT}, {nowhere, 16, EFAULT}};
    for (const auto &[where, length, error] : wrong) {
        auto room = static_cast<socklen_t>(length);
        socklen_t *const told = length == -2 ? nullptr : &room;
        assert_int_equal(receive(where, told), -1);
        assert_int_equal(errno, EAGAIN);
        assert_true(deliver(from, to, [&] { return from.send_number(0, 0, to.address); }));
        assert_int_equal(receive(where, told), -1);
        assert_int_equal(errno, error);
        assert_int_equal(receive(where, told), -1); // it is gone
        assert_int_equal(errno, EAGAIN);
    }
}

// More room than a part of a message may have is no error of recv(), whichever way was looked at, and with either a
// datagram.
void more_room_than_there_is(void **)
{
    const UdpSocket from;
    const UdpSocket to;
    assert_true(accelerate(from, to));
    static Datagram datagram; // above the stack user space may end within what is asked for: EFAULT, of the kernel
    for (const std::size_t room : {std::size_t{SSIZE_MAX} + 1, std::size_t{SIZE_MAX}}) {
        const auto receive = [&] {
            sock::udp::state_of(*to.s).kernel_look = 0; // so it looks at the kernel
            errno = 0;
            return sock::receive(*to.s, to.fd, &datagram, room, MSG_DONTWAIT);
        };
        assert_int_equal(receive(), -1);
        assert_int_equal(errno, EAGAIN);
        for (const bool by_kernel : {false, true}) {
            datagram.fill(7, 1);
            assert_true(deliver(from, to, [&] { return send_message(from, datagram, to.address, by_kernel); }));
            const ssize_t n = receive();
            assert_int_equal(n, datagram.length());
            assert_true(datagram.is_whole(n));
        }
    }
}

void peer_was_accelerated(void **)
{
    const UdpSocket socket;
    assert_true(socket.send_number(1, kEnd, g_peer.address));
    int status = -1;
    assert_int_equal(::waitpid(g_peer.process, &status, 0), g_peer.process);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), kGood);
}

} // namespace

int main()
{
    const Library library;
    libc::real.open = open_for_library;
    start_peer(); // before there is a thread: ThreadSanitizer's child of several makes no more of them
    static const CMUnitTest tests[] = {
        cmocka_unit_test(ping_pong_with_another_process),
        cmocka_unit_test(names_that_changed_unseen),
        cmocka_unit_test(names_that_changed_at_last),
        cmocka_unit_test(order_of_both_ways_between_processes),
        cmocka_unit_test(peer_was_accelerated),
        cmocka_unit_test(ping_pong_between_threads),
        cmocka_unit_test(order_of_both_ways_between_threads),
        cmocka_unit_test(order_of_threads_that_share_a_socket),
        cmocka_unit_test(order_of_two_sockets),
        cmocka_unit_test(order_before_the_kernel),
        cmocka_unit_test(no_place_for_the_name),
        cmocka_unit_test(more_room_than_there_is),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
