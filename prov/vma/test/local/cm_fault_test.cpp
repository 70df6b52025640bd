// SPDX-License-Identifier: BSD-2-Clause
// Connections under faults: a peer process that is killed or forks, many threads, no descriptors left.
#include "prov/vma/test/local/cm_pair.hpp"

#include <csignal>
#include <poll.h>
#include <set>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

using namespace vma;
using namespace vma::test;

namespace {

// What a peer process does until it is killed: connects, and waits for ever.
[[noreturn]] void be_a_peer(const ofi::Address &address)
{
    Net client;
    fid_ep *ep = client.endpoint();
    if (fi_connect(ep, &address.v6, nullptr, 0) != 0)
        _exit(1);
    while (true)
        client.wait();
}

void a_killed_peer_is_noticed(void **)
{
    const OwnDirectory directory;
    int gate[2];
    assert_int_equal(::pipe(gate), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ofi::Address address;
        if (::read(gate[0], &address.v6, sizeof(address.v6)) != sizeof(address.v6))
            _exit(1);
        be_a_peer(address);
    }
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    assert_int_equal(::write(gate[1], &address.v6, sizeof(address.v6)), sizeof(address.v6));
    const Event request = server.wait();
    expect(request, FI_CONNREQ, &pep->fid);
    fid_ep *ep = server.endpoint(request.info.get());
    assert_int_equal(fi_accept(ep, nullptr, 0), 0);
    expect(server.wait(), FI_CONNECTED, &ep->fid);
    assert_int_equal(::kill(child, SIGKILL), 0);
    expect(server.wait(), FI_SHUTDOWN, &ep->fid);
    assert_int_equal(::waitpid(child, nullptr, 0), child);
    close_all({&ep->fid, &pep->fid});
    ::close(gate[0]);
    ::close(gate[1]);
}

// A child that was forked from a connected process holds nothing of the connection: its parent's end is seen.
void a_forked_child_does_not_keep_the_link(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    const Pair pair = connected(client, server);
    int hold[2];
    assert_int_equal(::pipe(hold), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(hold[1]);
        // Calls on the parent's objects fail or do nothing, and never hang.
        const bool dead = fi_shutdown(pair.client, 0) == -FI_EOPBADSTATE && fi_close(&pair.client->fid) == 0 &&
                          client.poll().result == -FI_EOPBADSTATE;
        char byte;
        _exit(dead && ::read(hold[0], &byte, 1) == 0 ? 0 : 1);
    }
    ::close(hold[0]);
    assert_int_equal(fi_close(&pair.client->fid), 0);
    expect(server.wait(), FI_SHUTDOWN, &pair.server->fid);
    ::close(hold[1]);
    int status = 0;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close_all({&pair.server->fid, &pair.pep->fid});
}

void the_wait_descriptor_rings_for_a_request(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    int fd = -1;
    assert_int_equal(fi_control(&server.eq->fid, FI_GETWAIT, &fd), 0);
    fid_t waited = &server.eq->fid;
    assert_int_equal(fi_trywait(server.fabric, &waited, 1), 0);
    pollfd set{fd, POLLIN, 0};
    assert_int_equal(::poll(&set, 1, 0), 0);
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    Event request;
    do {
        assert_int_equal(::poll(&set, 1, kPatience), 1);
        request = server.poll();
    } while (request.result == -FI_EAGAIN);
    expect(request, FI_CONNREQ, &pep->fid);
    close_all({&ep->fid, &pep->fid});
}

// Accepts what is asked, closes what is shut down, until it is told to stop.
void serve(Net &server)
{
    std::set<fid_t> open;
    while (true) {
        const Event event = server.wait();
        assert_true(event.result > 0);
        if (event.event == FI_NOTIFY)
            break;
        if (event.event == FI_CONNREQ) {
            fid_ep *ep = server.endpoint(event.info.get());
            if (fi_accept(ep, nullptr, 0) == 0)
                open.insert(&ep->fid);
            else
                assert_int_equal(fi_close(&ep->fid), 0);
        } else if (event.event == FI_SHUTDOWN && open.erase(event.fid) > 0) {
            assert_int_equal(fi_close(event.fid), 0);
        }
    }
    for (fid_t fid : open)
        assert_int_equal(fi_close(fid), 0);
}

void stop(Net &net)
{
    fi_eq_entry entry{};
    assert_int_equal(fi_eq_write(net.eq, FI_NOTIFY, &entry, sizeof(entry), 0), sizeof(entry));
}

// Threads that connect and close at any moment, while others read the queues.
void many_threads(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    assert_int_equal(fi_close(&client.endpoint()->fid), 0); // opens the domains
    assert_int_equal(fi_close(&server.endpoint()->fid), 0);
    std::thread server_reader([&] { serve(server); });
    std::thread client_reader([&] {
        while (client.wait().event != FI_NOTIFY)
            ;
    });
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < 3; ++number) {
        threads.emplace_back([&, number] {
            for (unsigned i = 0; i < 100; ++i) {
                fid_ep *ep = client.endpoint();
                assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
                if ((i + number) % 3 == 0)
                    std::this_thread::yield();
                if ((i + number) % 4 == 0)
                    fi_shutdown(ep, 0);
                assert_int_equal(fi_close(&ep->fid), 0);
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    stop(client);
    client_reader.join();
    stop(server);
    server_reader.join();
    assert_int_equal(fi_close(&pep->fid), 0);
}

// Limits how many descriptors the process may open while it lives.
class DescriptorLimit
{
public:
    explicit DescriptorLimit(rlim_t most)
    {
        assert_int_equal(::getrlimit(RLIMIT_NOFILE, &saved_), 0);
        rlimit less = saved_;
        less.rlim_cur = most;
        assert_int_equal(::setrlimit(RLIMIT_NOFILE, &less), 0);
    }
    ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &saved_); }
    DescriptorLimit(const DescriptorLimit &) = delete;
    DescriptorLimit &operator=(const DescriptorLimit &) = delete;

private:
    rlimit saved_{};
};

// One connection while descriptors are short, then none short: it is made or fails, and each way says so. True: made.
bool connect_with(rlim_t most, Net &client, Net &server, fid_pep *pep, const ofi::Address &address)
{
    fid_ep *active = client.endpoint();
    fid_ep *passive = nullptr;
    Event request;
    Event answer;
    int accepted = 0;
    const auto step = [&] {
        if (!request.info)
            request = server.poll();
        if (request.info && passive == nullptr) {
            passive = server.endpoint(request.info.get());
            accepted = fi_accept(passive, nullptr, 0);
            if (accepted != 0) { // its request is still to be answered: closing does
                assert_int_equal(fi_close(&passive->fid), 0);
            }
        }
        answer = client.poll();
    };
    int started;
    {
        const DescriptorLimit limit(most);
        started = fi_connect(active, &address.v6, nullptr, 0);
        for (int i = 0; i < 10 && answer.result == 0; ++i) {
            step();
            if (answer.result == -FI_EAGAIN)
                answer = Event();
        }
    }
    while (started == 0 && (answer.result == 0 || answer.result == -FI_EAGAIN))
        step();
    const bool made = started == 0 && answer.event == FI_CONNECTED && accepted == 0;
    assert_true(made || started < 0 || answer.result == -FI_EAVAIL);
    assert_int_equal(fi_close(&active->fid), 0);
    if (passive != nullptr && accepted == 0)
        assert_int_equal(fi_close(&passive->fid), 0);
    server.poll();
    static_cast<void>(pep);
    return made;
}

void short_of_descriptors(void **)
{
    const OwnDirectory directory;
    for (const bool known : {false, true}) { // with and without a link between the two
        for (rlim_t most = 3; most < 60; ++most) {
            Net client;
            Net server;
            ofi::Address address;
            fid_pep *pep = server.listen(address);
            fid_ep *warm = client.endpoint(); // opens what isn't part of the trial
            assert_int_equal(fi_close(&warm->fid), 0);
            warm = server.endpoint();
            assert_int_equal(fi_close(&warm->fid), 0);
            if (known)
                assert_true(connect_with(1024, client, server, pep, address));
            connect_with(most, client, server, pep, address);
            assert_true(connect_with(1024, client, server, pep, address));
            assert_int_equal(fi_close(&pep->fid), 0);
        }
    }
}

void no_descriptor_and_no_name_is_left(void **)
{
    const OwnDirectory directory;
    ::close(::dup(0));
    const int before = open_descriptors();
    for (int i = 0; i < 3; ++i) {
        Net client;
        Net server;
        const Pair pair = connected(client, server);
        close_all({&pair.client->fid, &pair.server->fid, &pair.pep->fid});
    }
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(directory.names().size(), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_is_noticed),
        cmocka_unit_test(a_forked_child_does_not_keep_the_link),
        cmocka_unit_test(the_wait_descriptor_rings_for_a_request),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(short_of_descriptors),
        cmocka_unit_test(no_descriptor_and_no_name_is_left),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
