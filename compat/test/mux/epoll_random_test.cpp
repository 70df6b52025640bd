// SPDX-License-Identifier: BSD-2-Clause
// The kernel is the judge: the same random sequence of registrations, data, closes and waits runs on a kernel-only
// kernel set over kernel-only sockets and on ours over sockets that change between the two paths at random. Verdicts
// and events must be equal. A seed can be given as the only argument; each run prints its own.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <random>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace vma;

constexpr int kSockets = 6;
constexpr int kSteps = 3000;
constexpr int kRuns = 20;
constexpr timespec kNow = {0, 0};

unsigned long g_seed = 0;

using Events = std::map<std::uint64_t, std::uint32_t>;

struct Descriptor {
    int ours = -1;
    int kernels = -1;
    bool open = false;
    bool registered = false;
    bool disabled = false;
    epoll_event event = {};
};

struct Connection {
    std::vector<Descriptor> fds;
    int peer = -1; // of the kernel's pair
    bool finished = false;
    bool offloaded = false;
};

class World
{
public:
    explicit World(unsigned long seed) : random_(seed), ours_(fake::open_set()), kernels_(::epoll_create1(0))
    {
        for (Connection &connection : connections_)
            connect(connection);
    }
    ~World()
    {
        for (Connection &connection : connections_)
            disconnect(connection);
        fake::close_set(ours_);
        ::close(kernels_);
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    void step()
    {
        Connection &connection = connections_[below(kSockets)];
        switch (below(16)) {
        case 0:
        case 1:
        case 2:
            return control(connection);
        case 3:
        case 4:
        case 5:
            return deliver(connection);
        case 6:
        case 7:
            return consume(connection);
        case 8:
        case 9:
            return change_path(connection);
        case 10:
            return below(8) == 0 ? finish(connection) : duplicate(connection);
        case 11:
            return below(4) == 0 ? close_one(connection) : deliver(connection);
        case 12:
            return below(16) == 0 ? reconnect(connection) : control(connection);
        default:
            return wait();
        }
    }

private:
    unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }

    // The kernel's keys are file and number: a number that comes back must do so on both sides.
    static int twin_of(int ours, int fd)
    {
        constexpr int kDistance = 400;
        const int twin = ::dup2(fd, ours + kDistance);
        assert_true(twin >= 0);
        return twin;
    }

    void connect(Connection &connection)
    {
        int pair[2];
        assert_int_equal(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        connection = {};
        connection.peer = pair[1];
        const int ours = fake::open_socket();
        connection.fds.push_back({ours, twin_of(ours, pair[0]), true, false, false, {}});
        ::close(pair[0]);
    }

    void disconnect(Connection &connection)
    {
        for (Descriptor &fd : connection.fds)
            close(fd);
        ::close(connection.peer);
    }

    void reconnect(Connection &connection)
    {
        disconnect(connection);
        connect(connection);
    }

    static void close(Descriptor &fd)
    {
        if (!fd.open)
            return;
        fake::close_socket(fd.ours);
        ::close(fd.kernels);
        fd.open = false;
    }

    Descriptor *any_open(Connection &connection)
    {
        for (Descriptor &fd : connection.fds)
            if (fd.open)
                return &fd;
        return nullptr;
    }

    void control(Connection &connection)
    {
        Descriptor &fd = connection.fds[below(static_cast<unsigned>(connection.fds.size()))];
        if (!fd.open)
            return;
        constexpr std::uint32_t kMasks[] = {EPOLLIN,
                                            EPOLLOUT,
                                            EPOLLIN | EPOLLOUT,
                                            EPOLLIN | EPOLLRDHUP,
                                            0,
                                            EPOLLRDHUP,
                                            EPOLLIN | EPOLLRDNORM | EPOLLPRI};
        constexpr std::uint32_t kModes[] = {0, 0, EPOLLET, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
        const unsigned choice = below(4);
        const int op = choice == 0 ? EPOLL_CTL_DEL : choice == 1 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
        epoll_event event = {};
        event.events = kMasks[below(std::size(kMasks))] | kModes[below(std::size(kModes))];
        event.data.u64 = next_data_++;
        epoll_event copy = event;
        const int ours =
            mux::epoll_control(ours_, op == EPOLL_CTL_MOD && !fd.registered ? EPOLL_CTL_ADD : op, fd.ours, &event) == 0
                ? 0
                : errno;
        const int kernels =
            ::epoll_ctl(kernels_, op == EPOLL_CTL_MOD && !fd.registered ? EPOLL_CTL_ADD : op, fd.kernels, &copy) == 0
                ? 0
                : errno;
        assert_int_equal(ours, kernels);
        if (ours != 0)
            return;
        fd.registered = op != EPOLL_CTL_DEL;
        fd.event = event;
        fd.disabled = false;
    }

    void deliver(Connection &connection)
    {
        Descriptor *const fd = any_open(connection);
        if (fd == nullptr || connection.finished)
            return;
        fake::deliver(fd->ours);
        assert_int_equal(::write(connection.peer, "x", 1), 1);
    }

    void consume(Connection &connection)
    {
        Descriptor *const fd = any_open(connection);
        char byte = 0;
        while (fd != nullptr) {
            const bool ours = fake::consume(fd->ours);
            const bool kernels = ::read(fd->kernels, &byte, 1) == 1;
            assert_int_equal(ours, kernels);
            if (!ours || below(3) == 0)
                return;
        }
    }

    // To the program nothing happens. An edge may be told once more, as after EPOLL_CTL_MOD: so the kernel gets one.
    void change_path(Connection &connection)
    {
        Descriptor *const some = any_open(connection);
        if (some == nullptr || fake::is_pinned(some->ours))
            return;
        if (connection.offloaded)
            fake::give_up(some->ours);
        else
            assert_true(fake::offload(some->ours));
        connection.offloaded = !connection.offloaded;
        for (Descriptor &fd : connection.fds)
            if (fd.open && fd.registered && !fd.disabled)
                assert_int_equal(::epoll_ctl(kernels_, EPOLL_CTL_MOD, fd.kernels, &fd.event), 0);
    }

    void finish(Connection &connection)
    {
        Descriptor *const fd = any_open(connection);
        if (fd == nullptr || connection.finished)
            return;
        if (connection.offloaded)
            change_path(connection); // bytes before the end come first, by whatever path
        connection.finished = true;
        fake::finish_peer(fd->ours);
        assert_int_equal(::shutdown(connection.peer, SHUT_WR), 0);
    }

    void duplicate(Connection &connection)
    {
        Descriptor *const fd = any_open(connection);
        if (fd == nullptr || connection.fds.size() > 3)
            return;
        for (const Descriptor &each : connection.fds)
            if (!each.open)
                return; // its number would come back for the same file: only the kernel remembers that it was disabled
        const int ours = fake::dup_socket(fd->ours);
        connection.fds.push_back({ours, twin_of(ours, fd->kernels), true, false, false, {}});
    }

    // A registered descriptor of several leaves an entry that lives on: the socket is the kernel's from then on. That a
    // path changes on the way is an edge for ours.
    void close_one(Connection &connection)
    {
        if (connection.fds.size() < 2)
            return;
        Descriptor &fd = connection.fds[below(static_cast<unsigned>(connection.fds.size()))];
        int open = 0;
        for (const Descriptor &each : connection.fds)
            open += each.open ? 1 : 0;
        if (!fd.open || (open == 1 && fd.registered))
            return;
        if (connection.offloaded)
            change_path(connection);
        close(fd);
    }

    template <typename Wait> static Events collect(Wait wait)
    {
        epoll_event events[64];
        const int n = wait(events, 64);
        assert_true(n >= 0);
        Events result;
        for (int i = 0; i < n; ++i) {
            const std::uint64_t whose = events[i].data.u64; // packed: nothing refers to it
            assert_int_equal(result.count(whose), 0);
            result[whose] = events[i].events;
        }
        return result;
    }

    void wait()
    {
        // Ours may need a second call: offloaded entries and the kernel's take turns.
        Events ours;
        const auto call = [this](epoll_event *events, int max) {
            return mux::epoll_wait(ours_, events, max, &kNow, nullptr);
        };
        for (unsigned i = 0; i < 2; ++i)
            ours.merge(collect(call));
        Events kernels =
            collect([this](epoll_event *events, int max) { return ::epoll_wait(kernels_, events, max, 0); });
        if (ours != kernels)
            complain(ours, kernels);
        assert_true(ours == kernels);
        for (Connection &connection : connections_)
            for (Descriptor &fd : connection.fds)
                if ((fd.event.events & EPOLLONESHOT) != 0 && kernels.count(std::uint64_t{fd.event.data.u64}) != 0)
                    fd.disabled = true;
    }

    void complain(const Events &ours, const Events &kernels) const
    {
        const auto print = [this](const char *who, const Events &events) {
            for (const auto &[data, bits] : events) {
                print_error("%s: data %lu events %x", who, static_cast<unsigned long>(data), bits);
                for (const Connection &connection : connections_)
                    for (const Descriptor &fd : connection.fds)
                        if (fd.event.data.u64 == data)
                            print_error(" (fd %d open %d asked %x offloaded %d)", fd.ours, fd.open, fd.event.events,
                                        connection.offloaded);
                print_error("\n");
            }
        };
        print("ours", ours);
        print("kernel's", kernels);
    }

    std::mt19937_64 random_;
    const int ours_;
    const int kernels_;
    Connection connections_[kSockets];
    std::uint64_t next_data_ = 1;
};

void same_as_the_kernel(void **)
{
    for (unsigned long run = 0; run < kRuns; ++run) {
        print_message("seed %lu\n", g_seed + run);
        World world(g_seed + run);
        for (int step = 0; step < kSteps; ++step)
            world.step();
    }
}

} // namespace

int main(int argc, char **argv)
{
    vma::libc::resolve_real();
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    g_seed = argc > 1 ? ::strtoul(argv[1], nullptr, 10) : static_cast<unsigned long>(now.tv_sec) * 1000;
    vma::config::g_params.select_poll_os_ratio = 2; // so that two calls look at both sides
    vma::config::g_params.select_skip_os = 2;
    const CMUnitTest tests[] = {cmocka_unit_test(same_as_the_kernel)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
