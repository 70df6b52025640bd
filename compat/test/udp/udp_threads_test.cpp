// SPDX-License-Identifier: BSD-2-Clause
// Several threads on the same UDP sockets over the real provider: every datagram arrives once and whole while others
// send, receive, peek and wait beside, change options and connect. Meant for ThreadSanitizer above all.
#include "compat/test/udp/udp_traffic.hpp"

#include <sys/epoll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "compat/src/mux/mux.hpp"
#include "fabtests/patience.hpp"

// ThreadSanitizer takes connect() for what makes a descriptor, and so a send by it meanwhile for a race.
extern "C" [[gnu::visibility("default"), gnu::used]] const char *__tsan_default_suppressions(); // NOLINT
const char *__tsan_default_suppressions()                                                       // NOLINT
{
    return "race_top:connect";
}

using namespace vma;
using namespace vma::test;

namespace {

constexpr unsigned kSendBatch = 4;
constexpr unsigned kReceiveBatch = 6;
constexpr timespec kSlice = {0, 2000000}; // a watcher looks whether it is to stop

// ---- senders

void send_in_batches(Traffic &traffic, const UdpSocket &from, std::uint32_t sender)
{
    sockaddr_in name = traffic.to().address;
    for (std::uint32_t number = 0; number < kEach; number += kSendBatch) {
        Datagram datagrams[kSendBatch];
        iovec parts[kSendBatch];
        mmsghdr messages[kSendBatch] = {};
        for (unsigned i = 0; i < kSendBatch; ++i) {
            if (!traffic.enter(sender))
                return;
            datagrams[i].fill(sender, number + i);
            parts[i] = {&datagrams[i], datagrams[i].length()};
            messages[i].msg_hdr.msg_name = &name;
            messages[i].msg_hdr.msg_namelen = sizeof name;
            messages[i].msg_hdr.msg_iov = &parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        traffic.check(sock::send_messages(*from.s, from.fd, messages, kSendBatch, 0) == int{kSendBatch});
    }
}

// ---- receivers

bool receive_one_batch(Traffic &traffic)
{
    Datagram datagrams[kReceiveBatch];
    iovec parts[kReceiveBatch];
    alignas(cmsghdr) std::uint8_t controls[kReceiveBatch][256];
    mmsghdr messages[kReceiveBatch] = {};
    for (unsigned i = 0; i < kReceiveBatch; ++i) {
        parts[i] = {&datagrams[i], sizeof datagrams[i]};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_hdr.msg_control = controls[i];
        messages[i].msg_hdr.msg_controllen = sizeof controls[i];
    }
    const UdpSocket &to = traffic.to();
    const int n = sock::receive_messages(*to.s, to.fd, messages, kReceiveBatch, MSG_WAITFORONE, nullptr);
    bool goes_on = traffic.check(n > 0);
    for (int i = 0; i < n; ++i)
        goes_on = traffic.account(datagrams[i], messages[i].msg_len) && goes_on;
    return goes_on;
}

void receive_in_batches(Traffic &traffic)
{
    while (receive_one_batch(traffic)) {
    }
    stop_the_next(traffic);
}

// ---- watchers, which take nothing

void peek(Traffic &traffic)
{
    Datagram datagram;
    const ssize_t n = traffic.to().receive(datagram, MSG_PEEK | MSG_DONTWAIT);
    traffic.check(n < 0 ? errno == EAGAIN : datagram.is_whole(n));
    traffic.looks.fetch_add(1);
}

void watch_by_poll(Traffic &traffic)
{
    while (!traffic.stop.load()) {
        pollfd p = {traffic.to().fd, POLLIN, 0};
        const int n = mux::poll(&p, 1, &kSlice, nullptr);
        traffic.check(n == 0 || (n == 1 && (p.revents & ~(POLLIN | POLLRDNORM)) == 0));
        if (n == 1)
            peek(traffic);
    }
}

void watch_by_epoll(Traffic &traffic)
{
    const int epfd = mux::epoll_created(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u32 = 7;
    traffic.check(mux::epoll_control(epfd, EPOLL_CTL_ADD, traffic.to().fd, &event) == 0);
    while (!traffic.stop.load()) {
        epoll_event told = {};
        const int n = mux::epoll_wait(epfd, &told, 1, &kSlice, nullptr);
        traffic.check(n == 0 || (n == 1 && told.data.u32 == 7));
        if (n == 1)
            peek(traffic);
    }
    mux::epoll_closed(epfd);
    ::close(epfd);
}

// ---- cases

void many_threads_send_by_one_socket(void **)
{
    const UdpSocket to;
    const UdpSocket from;
    Traffic traffic(to, 3);
    const std::uint32_t by_kernel =
        run(traffic, {.from = {&from, &from, &from}, .sending = {send_singly}, .receiving = {receive_singly}});
    assert_int_equal(by_kernel, 0);
}

void many_sockets_and_many_receivers(void **)
{
    const UdpSocket to;
    const UdpSocket from[3];
    Traffic traffic(to, 4);
    const std::uint32_t by_kernel = run(traffic, {.from = {&from[0], &from[1], &from[2], &from[2]},
                                                  .sending = {send_singly},
                                                  .receiving = {receive_singly, receive_singly, receive_singly}});
    assert_int_equal(by_kernel, 0);
}

// Until a watcher has been told of a datagram: on a busy machine all may be over before one has had a processor.
void batches_peeks_and_waits(void **)
{
    for (bool looked = false; !looked;) {
        const UdpSocket to;
        const UdpSocket from[2];
        Traffic traffic(to, 4);
        const std::uint32_t by_kernel = run(traffic, {.from = {&from[0], &from[0], &from[1], &from[1]},
                                                      .sending = {send_in_batches, send_singly},
                                                      .receiving = {receive_in_batches, receive_singly},
                                                      .beside = {watch_by_poll, watch_by_epoll}});
        assert_int_equal(by_kernel, 0);
        looked = traffic.looks.load() > 0;
    }
}

// ---- event loops

// An epoll set with one socket in it.
class Loop
{
public:
    explicit Loop(const UdpSocket &socket) : epfd_(mux::epoll_created(::epoll_create1(EPOLL_CLOEXEC)))
    {
        epoll_event event = {};
        event.events = EPOLLIN;
        assert_int_equal(mux::epoll_control(epfd_, EPOLL_CTL_ADD, socket.fd, &event), 0);
    }
    ~Loop()
    {
        mux::epoll_closed(epfd_);
        ::close(epfd_);
    }
    Loop(const Loop &) = delete;
    Loop &operator=(const Loop &) = delete;
    bool wait() const
    {
        epoll_event told = {};
        const timespec limit = {patience::seconds(), 0};
        return mux::epoll_wait(epfd_, &told, 1, &limit, nullptr) == 1;
    }

private:
    int epfd_;
};

void receive_in_loop(Traffic &traffic, const Loop &loop)
{
    Datagram datagram;
    bool goes_on = true;
    while (goes_on && traffic.check(loop.wait())) {
        ssize_t n = 0;
        while (goes_on && (n = traffic.to().receive(datagram, MSG_DONTWAIT)) >= 0)
            goes_on = traffic.account(datagram, n);
    }
}

// One receiver, in a set that it has joined before it was accelerated, and two senders.
struct Served {
    UdpSocket to;
    Loop loop{to};
    UdpSocket from[2];
    Traffic traffic{to, 2};
    std::vector<std::thread> threads;

    void start()
    {
        assert_true(accelerate(to, to)); // which puts it on a ring
        for (const UdpSocket &one : from)
            assert_true(accelerate(one, to));
        threads.emplace_back([this] { receive_in_loop(traffic, loop); });
        for (std::uint32_t i = 0; i < 2; ++i)
            threads.emplace_back([this, i] { send_singly(traffic, from[i], i); });
    }
    void finish()
    {
        for (std::size_t i = 1; i < threads.size(); ++i)
            threads[i].join();
        traffic.check(to.send_number(0, kEnd, to.address));
        threads[0].join();
        assert_int_equal(traffic.errors(), 0);
        assert_true(traffic.all_came());
    }
};

// Each set has a ring, which is given to the next one when its sockets are gone.
void loops_of_their_own(void **)
{
    constexpr int kTurns = 3;
    for (int turn = 0; turn < kTurns; ++turn) {
        Served served[3];
        sock::RingMask rings = 0;
        for (Served &one : served) {
            one.start();
            rings |= sock::rings_of(*one.to.s);
        }
        assert_int_equal(__builtin_popcountll(rings), std::size(served));
        for (Served &one : served)
            one.finish();
    }
}

// ---- options

void change_receiving_options(UdpSocket &socket, Traffic &traffic)
{
    for (int turn = 0; !traffic.stop.load(); ++turn) {
        const int on = turn % 2;
        traffic.check(socket.set(SOL_SOCKET, SO_RCVBUF, 200000 + 100000 * on) == 0);
        traffic.check(socket.set(IPPROTO_IP, IP_PKTINFO, on) == 0);
        traffic.check(socket.set(SOL_SOCKET, SO_RXQ_OVFL, on) == 0);
    }
}

void change_sending_options(UdpSocket &socket, Traffic &traffic)
{
    for (int turn = 0; !traffic.stop.load(); ++turn) {
        traffic.check(socket.set(IPPROTO_IP, IP_TTL, 60 + turn % 8) == 0);
        traffic.check(socket.set(IPPROTO_IP, IP_MULTICAST_LOOP, turn % 2) == 0);
        int loops = -1;
        socklen_t size = sizeof loops;
        traffic.check(sock::get_option(*socket.s, socket.fd, IPPROTO_IP, IP_MULTICAST_LOOP, &loops, &size) == 0 &&
                      loops == turn % 2);
    }
}

void options_change_meanwhile(void **)
{
    UdpSocket to;
    UdpSocket from;
    Traffic traffic(to, 2);
    // How many go by the kernel depends on the scheduler: a sender does not wait for a thread that looks up the route.
    run(traffic, {.from = {&from, &from},
                  .sending = {send_singly},
                  .receiving = {receive_in_batches, receive_singly},
                  .beside = {[&to](Traffic &t) { change_receiving_options(to, t); },
                             [&from](Traffic &t) { change_sending_options(from, t); }}});
    assert_true(accelerate(from, to));
}

int connect_to(const UdpSocket &socket, const sockaddr_in &to)
{
    return sock::connect_datagram(*socket.s, socket.fd, reinterpret_cast<const sockaddr *>(&to), sizeof to);
}

int disconnect(const UdpSocket &socket)
{
    sockaddr_in nobody = {};
    nobody.sin_family = AF_UNSPEC;
    return connect_to(socket, nobody);
}

void sender_connects_meanwhile(void **)
{
    const UdpSocket to;
    const UdpSocket other;
    const UdpSocket from(chosen_address());
    Traffic traffic(to, 2);
    const auto work = [&](Traffic &t) {
        while (!t.stop.load())
            t.check(connect_to(from, other.address) == 0 && disconnect(from) == 0);
    };
    run(traffic, {.from = {&from, &from}, .sending = {send_singly}, .receiving = {receive_singly}, .beside = {work}});
    assert_true(accelerate(from, to));
}

// The receiver's queue may be full, or its thread late: what ends it is sent until it has been heard.
void end_receiver(Traffic &traffic, const UdpSocket &from, const std::atomic<bool> &ended)
{
    while (!ended.load() && traffic.check(from.send_number(0, kEnd, traffic.to().address)))
        std::this_thread::yield();
    Datagram superfluous;
    while (traffic.to().receive(superfluous, MSG_DONTWAIT) > 0) {
    }
}

// What it gets while it is connected to one of two senders depends on the moment; but nothing twice, nothing in pieces,
// and it is as before when it is disconnected again.
void receiver_connects_meanwhile(void **)
{
    const UdpSocket to(chosen_address());
    const UdpSocket from[2];
    for (const UdpSocket &socket : from)
        assert_true(accelerate(socket, to));
    Traffic traffic(to, 2);
    std::vector<std::thread> threads;
    std::atomic<std::uint32_t> received{0};
    std::atomic<bool> ended{false};
    threads.emplace_back([&] {
        while (!traffic.stop.load())
            traffic.check(connect_to(to, from[0].address) == 0 && disconnect(to) == 0);
    });
    threads.emplace_back([&] {
        Datagram datagram;
        while (traffic.account(datagram, to.receive(datagram)))
            received.fetch_add(1);
        ended = true;
    });
    for (std::uint32_t number = 0; number < kEach; ++number)
        for (std::uint32_t i : {0U, 1U})
            traffic.check(from[i].send_number(i, number, to.address));
    traffic.stop = true;
    threads[0].join();
    end_receiver(traffic, from[0], ended);
    threads[1].join();
    assert_int_equal(traffic.errors(), 0);
    assert_true(received.load() > 0);
    for (const UdpSocket &socket : from)
        assert_true(accelerate(socket, to));
}

// ---- who hears of the kernel for threads that sleep at a place

void send_past_the_library(const UdpSocket &from, const UdpSocket &to)
{
    Datagram datagram;
    datagram.fill(0, 1);
    assert_int_equal(::sendto(from.fd, &datagram, datagram.length(), 0, reinterpret_cast<const sockaddr *>(&to.address),
                              sizeof to.address),
                     datagram.length());
}

template <typename Condition> void await(const Condition &holds)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (!holds() && sock::now_ns() < until)
        ::sched_yield();
    assert_true(holds());
}

// What the kernel has told the helper thread by now that has noted: it counts its rounds, of which the second one began
// behind this.
void await_helper()
{
    const std::uint32_t before = sock::udp::current_tick();
    await([before] { return sock::udp::current_tick() - before >= 2; });
}

// Nothing is there, and the next wait is at the place.
void quiesce(const UdpSocket &socket)
{
    Datagram datagram;
    while (socket.receive(datagram, MSG_DONTWAIT) >= 0) {
    }
    await_helper();
    socket.s->descriptor_sleeps = 0;
    socket.s->kernel_told = 0;
}

// A thread has found that the helper thread will tell. Before it is on the list of those who are told, that does tell,
// and another thread takes all of what there was.
void news_that_another_receiver_took(void **)
{
    UdpSocket a;
    UdpSocket peer;
    assert_true(accelerate(peer, a));
    quiesce(a);
    sock::Socket &s = *a.s;
    Datagram datagram;
    Datagram last;
    ssize_t length = -1;
    s.watch_lock.lock();
    std::thread receiver([&] { length = a.receive(last); });
    await([&s] { return s.kernel_told != 0; });
    send_past_the_library(peer, a);
    await([&s] { return s.kernel_told == 0 && s.kernel_news; });
    assert_true(datagram.is_whole(a.receive(datagram, MSG_DONTWAIT)));
    assert_int_equal(a.receive(datagram, MSG_DONTWAIT), -1);
    s.watch_lock.unlock();
    send_past_the_library(peer, a);
    receiver.join();
    assert_true(last.is_whole(length));
}

// The registration for errors that an offload begins with takes the place of that of a thread that had slept before.
void a_second_offload_begins_unheard(void **)
{
    UdpSocket a;
    UdpSocket peer;
    assert_true(accelerate(peer, a));
    quiesce(a);
    assert_true(sock::place_for_input(*a.s, a.fd) != sock::kNoPlace);
    assert_true(a.s->kernel_told != 0);
    sock::fall_back(*a.s, true);
    assert_false(sock::is_offloaded(*a.s));
    assert_true(accelerate(peer, a));
    assert_int_equal(a.s->kernel_told, 0);
    Datagram datagram;
    ssize_t length = -1;
    await_helper(); // what accelerate() sent by the kernel has ended the first registration
    a.s->descriptor_sleeps = 0;
    assert_int_equal(a.receive(datagram, MSG_DONTWAIT), -1);
    std::thread receiver([&] { length = a.receive(datagram); });
    await([&a] { return a.s->kernel_told != 0; }); // else it doesn't sleep at its place
    send_past_the_library(peer, a);
    receiver.join();
    assert_true(datagram.is_whole(length));
}

} // namespace

int main()
{
    const Library library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_send_by_one_socket),
        cmocka_unit_test(many_sockets_and_many_receivers),
        cmocka_unit_test(batches_peeks_and_waits),
        cmocka_unit_test(options_change_meanwhile),
        cmocka_unit_test(loops_of_their_own),
        cmocka_unit_test(sender_connects_meanwhile),
        cmocka_unit_test(receiver_connects_meanwhile),
        cmocka_unit_test(news_that_another_receiver_took),
        cmocka_unit_test(a_second_offload_begins_unheard),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
