// SPDX-License-Identifier: BSD-2-Clause
// The event queue by itself, as fabtests' fi_eq_test uses it, and what it leaves out: errors, short buffers, wake-ups.
#include "prov/vma/test/local/cm_pair.hpp"

#include <poll.h>
#include <thread>

#include "ofi/eq.hpp"
#include "rdma/fi_ext_vma.h"

using namespace vma;
using namespace vma::test;

namespace {

fid_fabric *open_fabric()
{
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, nullptr);
    fid_fabric *fabric = nullptr;
    assert_int_equal(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr), 0);
    return fabric;
}

struct Queue {
    fid_fabric *fabric = open_fabric();
    fid_eq *eq = nullptr;

    explicit Queue(fi_wait_obj wait, std::size_t size = 32, std::uint64_t flags = FI_WRITE)
    {
        fi_eq_attr attr{};
        attr.size = size;
        attr.flags = flags;
        attr.wait_obj = wait;
        assert_int_equal(fi_eq_open(fabric, &attr, &eq, nullptr), 0);
    }
    ~Queue()
    {
        assert_int_equal(fi_close(&eq->fid), 0);
        assert_int_equal(fi_close(&fabric->fid), 0);
    }
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    void write(std::uintptr_t number)
    {
        fi_eq_entry entry{};
        entry.fid = &eq->fid;
        entry.context = reinterpret_cast<void *>(number);
        assert_int_equal(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), sizeof(entry));
    }
    void expect(std::uintptr_t number, std::uint64_t flags)
    {
        fi_eq_entry entry{};
        std::uint32_t event = ~0U;
        assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof(entry), flags), sizeof(entry));
        assert_int_equal(event, FI_NOTIFY);
        assert_int_equal(reinterpret_cast<std::uintptr_t>(entry.context), number);
    }
    ssize_t read(int timeout = -2)
    {
        fi_eq_entry entry{};
        std::uint32_t event = ~0U;
        return timeout == -2 ? fi_eq_read(eq, &event, &entry, sizeof(entry), 0)
                             : fi_eq_sread(eq, &event, &entry, sizeof(entry), timeout, 0);
    }
};

void sizes(void **)
{
    for (std::size_t size = 0; size <= 65536; size = size == 0 ? 1 : size * 2)
        const Queue queue(FI_WAIT_UNSPEC, size, 0);
}

void written_events_are_read_in_order(void **)
{
    Queue queue(FI_WAIT_NONE);
    for (std::uintptr_t i = 0; i < 32; ++i)
        queue.write(i);
    for (std::uintptr_t i = 0; i < 32; ++i) {
        queue.expect(i, FI_PEEK);
        queue.expect(i, 0);
    }
    assert_int_equal(queue.read(), -FI_EAGAIN);
}

void writing_needs_the_flag(void **)
{
    const Queue queue(FI_WAIT_NONE, 32, 0);
    fi_eq_entry entry{};
    assert_int_equal(fi_eq_write(queue.eq, FI_NOTIFY, &entry, sizeof(entry), 0), -FI_EINVAL);
}

void short_buffers(void **)
{
    Queue queue(FI_WAIT_NONE);
    queue.write(1);
    char small[4];
    std::uint32_t event = 0;
    assert_int_equal(fi_eq_read(queue.eq, &event, small, sizeof(small), 0), -FI_ETOOSMALL);
    queue.expect(1, 0); // still there
}

void wait_objects(void **)
{
    fid_fabric *fabric = open_fabric();
    fid_eq *eq = nullptr;
    for (const fi_wait_obj unsupported : {FI_WAIT_SET, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD, FI_WAIT_POLLFD}) {
        fi_eq_attr attr{};
        attr.wait_obj = unsupported;
        assert_int_equal(fi_eq_open(fabric, &attr, &eq, nullptr), -FI_ENOSYS);
    }
    assert_int_equal(fi_close(&fabric->fid), 0);

    fi_wait_obj object = FI_WAIT_SET;
    int fd = -1;
    const Queue none(FI_WAIT_NONE);
    assert_int_equal(fi_control(&none.eq->fid, FI_GETWAITOBJ, &object), 0);
    assert_int_equal(object, FI_WAIT_NONE);
    assert_int_equal(fi_control(&none.eq->fid, FI_GETWAIT, &fd), -FI_ENODATA);
    const Queue any(FI_WAIT_UNSPEC);
    assert_int_equal(fi_control(&any.eq->fid, FI_GETWAITOBJ, &object), 0);
    assert_int_equal(object, FI_WAIT_FD);
    assert_int_equal(fi_control(&any.eq->fid, FI_GETWAIT, &fd), 0);
    assert_true(fd >= 0);
    assert_int_equal(fi_control(&any.eq->fid, FI_ALIAS, &fd), -FI_ENOSYS);
}

void the_descriptor_follows_the_queue(void **)
{
    Queue queue(FI_WAIT_FD);
    pollfd set{-1, POLLIN, 0};
    assert_int_equal(fi_control(&queue.eq->fid, FI_GETWAIT, &set.fd), 0);
    fid_t waited = &queue.eq->fid;
    assert_int_equal(fi_trywait(queue.fabric, &waited, 1), 0);
    assert_int_equal(::poll(&set, 1, 0), 0);
    queue.write(1);
    assert_int_equal(::poll(&set, 1, 0), 1);
    assert_int_equal(fi_trywait(queue.fabric, &waited, 1), -FI_EAGAIN);
    queue.expect(1, FI_PEEK);
    assert_int_equal(::poll(&set, 1, 0), 1);
    queue.expect(1, 0);
    assert_int_equal(::poll(&set, 1, 0), 0);
    assert_int_equal(fi_trywait(queue.fabric, &waited, 1), 0);
}

int nudge(fid_ep *ep, const void *value = nullptr, std::size_t length = 0)
{
    return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_NUDGE), value, length);
}

// Who sleeps on the descriptor wakes, and finds no event; fi_trywait(), which reads the peer's message itself, says no.
// However often it came, it is one.
void a_nudge_wakes_the_peers_queue(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    const Pair pair = connected(client, server);
    pollfd set{-1, POLLIN, 0};
    fid_t waited = &server.eq->fid;
    assert_int_equal(fi_control(waited, FI_GETWAIT, &set.fd), 0);
    assert_int_equal(fi_trywait(server.fabric, &waited, 1), 0);
    assert_int_equal(::poll(&set, 1, 0), 0);
    for (int i = 0; i < 3; ++i)
        assert_int_equal(nudge(pair.client), 0);
    assert_int_equal(::poll(&set, 1, 0), 1);
    assert_int_equal(fi_trywait(server.fabric, &waited, 1), -FI_EAGAIN);
    assert_int_equal(::poll(&set, 1, 0), 1);
    assert_int_equal(server.poll().result, -FI_EAGAIN);
    assert_int_equal(::poll(&set, 1, 0), 0);
    assert_int_equal(fi_trywait(server.fabric, &waited, 1), 0);
    assert_int_equal(nudge(pair.server), 0); // and the other way
    fid_t waiting = &client.eq->fid;
    assert_int_equal(fi_trywait(client.fabric, &waiting, 1), -FI_EAGAIN);
    close_all({&pair.client->fid});
    assert_int_equal(nudge(pair.server), 0); // which has not heard of the end
    expect(server.wait(), FI_SHUTDOWN, &pair.server->fid);
    assert_int_equal(nudge(pair.server), -FI_ENOTCONN);
    close_all({&pair.server->fid, &pair.pep->fid});
}

// More than a peer that is stopped, or computes, has room for: what is said behind them comes all the same.
void any_number_of_nudges_wait(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    const Pair pair = connected(client, server);
    for (int i = 0; i < 20000; ++i)
        assert_int_equal(nudge(pair.client), 0);
    close_all({&pair.client->fid});
    for (const patience::Deadline deadline;;) {
        assert_false(deadline.over());
        assert_int_equal(client.poll().result, -FI_EAGAIN); // sends what has waited
        const Event event = server.poll();
        if (event.result == -FI_EAGAIN)
            continue;
        expect(event, FI_SHUTDOWN, &pair.server->fid);
        break;
    }
    close_all({&pair.server->fid, &pair.pep->fid});
}

void nudges_that_are_refused(void **)
{
    const OwnDirectory directory;
    Net net;
    fid_ep *const ep = net.endpoint();
    const int value = 1;
    assert_int_equal(nudge(ep), -FI_ENOTCONN);
    assert_int_equal(nudge(ep, &value, sizeof value), -FI_EINVAL);
    close_all({&ep->fid});
}

void sread_waits_as_long_as_told(void **)
{
    Queue queue(FI_WAIT_FD);
    assert_int_equal(queue.read(0), -FI_EAGAIN);
    timespec before{};
    timespec after{};
    ::clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_equal(queue.read(30), -FI_EAGAIN);
    ::clock_gettime(CLOCK_MONOTONIC, &after);
    const long elapsed = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    assert_true(elapsed >= 29);
    queue.write(1);
    assert_int_equal(queue.read(kPatience), sizeof(fi_eq_entry));
    const Queue none(FI_WAIT_NONE);
    fi_eq_entry entry{};
    std::uint32_t event = 0;
    assert_int_equal(fi_eq_sread(none.eq, &event, &entry, sizeof(entry), 0, 0), -FI_ENOSYS);
}

void a_write_wakes_every_kind_of_sleeper(void **)
{
    Queue queue(FI_WAIT_FD);
    std::thread sleeper([&] { assert_int_equal(queue.read(-1), sizeof(fi_eq_entry)); });
    queue.write(7);
    sleeper.join();
    std::thread peeker([&] {
        fi_eq_entry entry{};
        std::uint32_t event = 0;
        assert_int_equal(fi_eq_sread(queue.eq, &event, &entry, sizeof(entry), -1, FI_PEEK), sizeof(entry));
    });
    queue.write(8);
    peeker.join();
    queue.expect(8, 0);
}

void errors_stand_before_what_follows(void **)
{
    Queue queue(FI_WAIT_NONE);
    fi_eq_err_entry error{};
    assert_int_equal(fi_eq_readerr(queue.eq, &error, 0), -FI_EAGAIN);
    fid about{};
    int context = 0;
    about.context = &context;
    ofi::Eq &eq = ofi::eq_of(queue.eq);
    assert_int_equal(eq.post_error(&about, FI_ECONNREFUSED, FI_ECONNREFUSED, "data", 4), 0);
    queue.write(2);
    assert_int_equal(queue.read(), -FI_EAVAIL);

    assert_int_equal(fi_eq_readerr(queue.eq, &error, FI_PEEK), sizeof(error));
    error = {};
    assert_int_equal(fi_eq_readerr(queue.eq, &error, 0), sizeof(error));
    assert_int_equal(error.err, FI_ECONNREFUSED);
    assert_ptr_equal(error.fid, &about);
    assert_ptr_equal(error.context, &context);
    assert_int_equal(error.err_data_size, 4);
    assert_memory_equal(error.err_data, "data", 4); // the queue's, until it is read again
    assert_non_null(fi_eq_strerror(queue.eq, error.prov_errno, error.err_data, nullptr, 0));
    char text[16];
    assert_ptr_equal(fi_eq_strerror(queue.eq, error.prov_errno, nullptr, text, sizeof(text)), text);
    assert_int_equal(std::strlen(text), sizeof(text) - 1);
    queue.expect(2, 0);
}

void error_data_goes_to_the_program_s_buffer(void **)
{
    const Queue queue(FI_WAIT_NONE);
    fid about{};
    assert_int_equal(ofi::eq_of(queue.eq).post_error(&about, FI_ECONNREFUSED, 0, "too long", 8), 0);
    char mine[3];
    fi_eq_err_entry error{};
    error.err_data = mine;
    error.err_data_size = sizeof(mine);
    assert_int_equal(fi_eq_readerr(queue.eq, &error, 0), sizeof(error));
    assert_ptr_equal(error.err_data, mine);
    assert_int_equal(error.err_data_size, 3);
    assert_memory_equal(mine, "too", 3);
}

void removed_events_are_gone(void **)
{
    Queue queue(FI_WAIT_FD);
    pollfd set{-1, POLLIN, 0};
    assert_int_equal(fi_control(&queue.eq->fid, FI_GETWAIT, &set.fd), 0);
    fid about{};
    ofi::Eq &eq = ofi::eq_of(queue.eq);
    assert_int_equal(eq.post_error(&about, FI_EIO, 0, nullptr, 0), 0);
    assert_int_equal(eq.post_cm(FI_SHUTDOWN, &about, nullptr, nullptr, 0), 0);
    assert_int_equal(eq.post_cm(FI_CONNREQ, &about, ofi::make_info(), "x", 1), 0);
    assert_int_equal(::poll(&set, 1, 0), 1);
    assert_int_equal(eq.remove_events(&about).size(), 1);
    assert_int_equal(::poll(&set, 1, 0), 0);
    assert_int_equal(queue.read(), -FI_EAGAIN);
}

void private_data_is_cut_to_the_room(void **)
{
    const Queue queue(FI_WAIT_NONE);
    fid about{};
    assert_int_equal(ofi::eq_of(queue.eq).post_cm(FI_CONNECTED, &about, nullptr, "hello", 5), 0);
    alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 2];
    std::uint32_t event = 0;
    assert_int_equal(fi_eq_read(queue.eq, &event, buffer, sizeof(buffer), 0), sizeof(buffer));
    assert_memory_equal(buffer + sizeof(fi_eq_cm_entry), "he", 2);
}

void what_is_used_cannot_be_closed(void **)
{
    Net net;
    ofi::Address address;
    const OwnDirectory directory;
    fid_pep *pep = net.listen(address);
    assert_int_equal(fi_close(&net.eq->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&net.fabric->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&pep->fid), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(written_events_are_read_in_order),
        cmocka_unit_test(writing_needs_the_flag),
        cmocka_unit_test(short_buffers),
        cmocka_unit_test(wait_objects),
        cmocka_unit_test(the_descriptor_follows_the_queue),
        cmocka_unit_test(a_nudge_wakes_the_peers_queue),
        cmocka_unit_test(any_number_of_nudges_wait),
        cmocka_unit_test(nudges_that_are_refused),
        cmocka_unit_test(sread_waits_as_long_as_told),
        cmocka_unit_test(a_write_wakes_every_kind_of_sleeper),
        cmocka_unit_test(errors_stand_before_what_follows),
        cmocka_unit_test(error_data_goes_to_the_program_s_buffer),
        cmocka_unit_test(removed_events_are_gone),
        cmocka_unit_test(private_data_is_cut_to_the_room),
        cmocka_unit_test(what_is_used_cannot_be_closed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
