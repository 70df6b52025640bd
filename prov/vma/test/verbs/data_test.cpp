// SPDX-License-Identifier: BSD-2-Clause
// Messages, RMA, counters, shared receives and waiting on the verbs device, over the simulated NIC.
#include "prov/vma/test/verbs/pair.hpp"

#include <algorithm>
#include <poll.h>
#include <thread>

#include "verbs/endpoint.hpp"
#include "verbs/queue.hpp"

using namespace vma;
using namespace vma::test;

namespace {

void *tag(std::uintptr_t number)
{
    return reinterpret_cast<void *>(number);
}

void messages_of_all_lengths(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory out(pair.a.domain(), 1 << 20);
    Memory in(pair.b.domain(), 1 << 20);
    out.fill(1);
    std::uintptr_t number = 0;
    for (const std::size_t length : {0UL, 1UL, 255UL, 256UL, 257UL, 4096UL, 65536UL, 1UL << 20}) {
        ++number;
        std::fill(in.bytes.begin(), in.bytes.end(), static_cast<unsigned char>(0));
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), in.bytes.size(), in.desc(), 0, tag(number)), 0);
        if (number % 2 == 0)
            assert_int_equal(
                fi_senddata(pair.a.ep, out.bytes.data(), length, out.desc(), 0xdeadbeef, 0, tag(number + 100)), 0);
        else
            assert_int_equal(fi_send(pair.a.ep, out.bytes.data(), length, out.desc(), 0, tag(number + 100)), 0);
        const fi_cq_data_entry sent = entry_of(pair.a.cq());
        assert_ptr_equal(sent.op_context, tag(number + 100));
        assert_int_equal(sent.flags, FI_SEND | FI_MSG);
        const fi_cq_data_entry received = entry_of(pair.b.cq());
        assert_ptr_equal(received.op_context, tag(number));
        assert_int_equal(received.len, length);
        assert_int_equal(received.flags, FI_RECV | FI_MSG | (number % 2 == 0 ? FI_REMOTE_CQ_DATA : 0));
        assert_int_equal(received.data, number % 2 == 0 ? 0xdeadbeef : 0);
        assert_memory_equal(in.bytes.data(), out.bytes.data(), length);
        assert_true(std::all_of(in.bytes.begin() + static_cast<std::ptrdiff_t>(length), in.bytes.end(),
                                [](unsigned char c) { return c == 0; }));
    }
    assert_true(is_quiet(pair.a.cq()) && is_quiet(pair.b.cq()));
}

void pieces_are_gathered_and_scattered(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory out(pair.a.domain(), 10000);
    Memory in(pair.b.domain(), 10000);
    out.fill(7);
    void *from[] = {out.desc(), out.desc(), out.desc()};
    void *to[] = {in.desc(), in.desc()};
    const iovec parts[] = {{&out.bytes[0], 1000}, {&out.bytes[5000], 0}, {&out.bytes[1000], 4000}};
    const iovec places[] = {{&in.bytes[0], 10}, {&in.bytes[10], 9000}};
    assert_int_equal(fi_recvv(pair.b.ep, places, to, 2, 0, nullptr), 0);
    assert_int_equal(fi_sendv(pair.a.ep, parts, from, 3, 0, nullptr), 0);
    entry_of(pair.a.cq());
    assert_int_equal(entry_of(pair.b.cq()).len, 5000);
    assert_memory_equal(in.bytes.data(), out.bytes.data(), 5000);
}

void small_ones_go_inline_and_injected_ones_are_copied(void **)
{
    const SimulatedHost host({.name = "small0", .max_inline = 128}); // what a name can do is asked once
    RdmaPair pair;
    Memory in(pair.b.domain(), 1000);
    unsigned char bytes[129] = {1, 2, 3};
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 1000, in.desc(), 0, nullptr), 0);
    const sim::Stats before = sim::stats();
    assert_int_equal(fi_inject(pair.a.ep, bytes, 128, 0), 0);
    std::memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(sim::stats().inlined - before.inlined, 1);
    assert_int_equal(sim::stats().signaled - before.signaled, 0);
    assert_int_equal(entry_of(pair.b.cq()).len, 128);
    assert_int_equal(in.bytes[2], 3);
    assert_int_equal(fi_inject(pair.a.ep, bytes, 129, 0), -FI_EINVAL);
    assert_true(is_quiet(pair.a.cq()));
}

void a_program_may_want_less_inline(void **)
{
    const SimulatedHost host({.name = "small0", .max_inline = 128});
    for (const std::size_t most : {std::size_t{0}, std::size_t{20}, std::size_t{100}}) {
        RdmaPair pair({.inject_size = most});
        Memory out(pair.a.domain(), 200);
        Memory in(pair.b.domain(), 200);
        out.fill(3);
        for (const std::size_t length : {most, most + 1}) {
            assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 200, in.desc(), 0, nullptr), 0);
            const sim::Stats before = sim::stats();
            assert_int_equal(fi_send(pair.a.ep, out.bytes.data(), length, out.desc(), 0, nullptr), 0);
            assert_int_equal(sim::stats().inlined - before.inlined, length == most ? 1 : 0);
            entry_of(pair.a.cq());
            assert_int_equal(entry_of(pair.b.cq()).len, length);
            assert_memory_equal(in.bytes.data(), out.bytes.data(), length);
        }
        assert_int_equal(fi_inject(pair.a.ep, out.bytes.data(), most + 1, 0), -FI_EINVAL);
    }
}

void interrupts_are_moderated(void **)
{
    const SimulatedHost host;
    const RdmaPair pair;
    fid &queue = pair.a.cq()->fid;
    fi_vma_moderation wanted = {48, 50};
    assert_int_equal(fi_control(&queue, static_cast<int>(FI_VMA_MODERATE), &wanted), 0);
    assert_int_equal(sim::stats().moderations, 1);
    assert_int_equal(sim::stats().held_completions, 48);
    assert_int_equal(sim::stats().held_us, 50);
    assert_int_equal(fi_control(&queue, static_cast<int>(FI_VMA_MODERATE), nullptr), -FI_EINVAL);
    assert_true(sim::fail_call("modify_cq", 1, EOPNOTSUPP));
    assert_int_equal(fi_control(&queue, static_cast<int>(FI_VMA_MODERATE), &wanted), -FI_EOPNOTSUPP);
    assert_int_equal(sim::stats().moderations, 1);
}

fi_vma_queue_counters counters_of(fid_cq *cq)
{
    fi_vma_queue_counters counters = {};
    assert_int_equal(fi_control(&cq->fid, static_cast<int>(FI_VMA_QUEUE_COUNTERS), &counters), 0);
    return counters;
}

template <typename Side> void until_armed(Side &side, fid_cq *queue)
{
    fid *waits[] = {&queue->fid};
    while (fi_trywait(side.net.fabric, waits, 1) != 0) {
    }
}

// FI_VMA_LOCAL_KEY: what the device knows memory by.
void local_keys_are_told(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    const Memory one(pair.a.domain(), 8), other(pair.a.domain(), 8);
    std::uint32_t first = 0, second = 0;
    const auto ask = [](const Memory &memory, int command, void *argument) {
        return fi_control(&static_cast<fid_mr *>(memory.mr)->fid, command, argument);
    };
    assert_int_equal(ask(one, static_cast<int>(FI_VMA_LOCAL_KEY), &first), 0);
    assert_int_equal(ask(other, static_cast<int>(FI_VMA_LOCAL_KEY), &second), 0);
    assert_true(first != second);
    assert_int_equal(ask(one, static_cast<int>(FI_VMA_LOCAL_KEY), nullptr), -FI_EINVAL);
    assert_int_equal(ask(one, FI_REFRESH, &first), -FI_ENOSYS);
}

// FI_VMA_QUEUE_COUNTERS
void wakes_are_counted(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory in(pair.b.domain(), 8);
    fid_cq *const queue = pair.b.cq();
    assert_int_equal(fi_control(&queue->fid, static_cast<int>(FI_VMA_QUEUE_COUNTERS), nullptr), -FI_EINVAL);
    const fi_vma_queue_counters before = counters_of(queue);
    for (std::uint64_t i = 0; i < 5; ++i) {
        until_armed(pair.b, queue);
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_inject(pair.a.ep, &i, sizeof i, 0), 0);
        entry_of(queue);
    }
    until_armed(pair.b, queue);
    const fi_vma_queue_counters after = counters_of(queue);
    assert_int_equal(after.woken - before.woken, 5);
    assert_true(after.asked > after.woken && after.waiting == 0);
}

// Who only injects never reads a queue, and is not stopped by a full one.
void injecting_without_end(void **)
{
    const SimulatedHost host;
    RdmaPair pair({.tx_size = 16, .rx_size = 16});
    Memory in(pair.b.domain(), 8);
    for (std::uint64_t i = 0; i < 1000; ++i) {
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_inject(pair.a.ep, &i, sizeof i, 0), 0);
        entry_of(pair.b.cq());
        std::uint64_t got;
        std::memcpy(&got, in.bytes.data(), sizeof got);
        assert_int_equal(got, i);
    }
    assert_true(is_quiet(pair.a.cq()));
}

// A queue that is full says so, and has room again when its completions are read.
void a_full_queue_has_room_again(void **)
{
    const SimulatedHost host;
    RdmaPair pair({.tx_size = 8, .rx_size = 8});
    Memory in(pair.b.domain(), 8);
    for (int i = 0; i < 8; ++i)
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), -FI_EAGAIN);
    for (int i = 0; i < 8; ++i)
        assert_int_equal(fi_send(pair.a.ep, "x", 1, nullptr, 0, tag(static_cast<std::uintptr_t>(i))), 0);
    for (std::uintptr_t i = 0; i < 8; ++i) {
        assert_ptr_equal(entry_of(pair.a.cq()).op_context, tag(i));
        entry_of(pair.b.cq());
    }
    assert_int_equal(fi_send(pair.a.ep, "x", 1, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
    entry_of(pair.b.cq());
    entry_of(pair.a.cq());
}

void a_row_of_more_rings_once(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory in(pair.b.domain(), 64);
    Memory out(pair.a.domain(), 64);
    out.fill(9);
    const sim::Stats before = sim::stats();
    for (std::size_t i = 0; i < 10; ++i)
        assert_int_equal(fi_recv(pair.b.ep, &in.bytes[i], 1, in.desc(), 0, nullptr), 0);
    for (std::size_t i = 0; i < 10; ++i) {
        const iovec iov{&out.bytes[i], 1};
        void *desc = out.desc();
        fi_msg message{};
        message.msg_iov = &iov;
        message.desc = &desc;
        message.iov_count = 1;
        message.context = tag(i);
        assert_int_equal(fi_sendmsg(pair.a.ep, &message, FI_COMPLETION | (i < 9 ? FI_MORE : 0)), 0);
    }
    const sim::Stats after = sim::stats();
    assert_int_equal(after.doorbells - before.doorbells, 1);
    assert_int_equal(after.longest_chain, 10);
    for (std::uintptr_t i = 0; i < 10; ++i) {
        assert_ptr_equal(entry_of(pair.a.cq()).op_context, tag(i));
        entry_of(pair.b.cq());
    }
    assert_memory_equal(in.bytes.data(), out.bytes.data(), 10);
}

// A row that fills the queue by itself goes out before it is ended.
void a_row_of_more_than_the_queue_holds(void **)
{
    const SimulatedHost host;
    RdmaPair pair({.tx_size = 8});
    unsigned char out[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    Memory in(pair.b.domain(), 64);
    for (std::size_t i = 0; i < 9; ++i) {
        assert_int_equal(fi_recv(pair.b.ep, &in.bytes[i], 1, in.desc(), 0, nullptr), 0);
        const iovec iov{&out[i], 1};
        fi_msg message{};
        message.msg_iov = &iov;
        message.iov_count = 1;
        message.context = tag(i);
        assert_int_equal(fi_sendmsg(pair.a.ep, &message, FI_COMPLETION | (i < 8 ? FI_MORE : 0)), 0);
    }
    for (std::uintptr_t i = 0; i < 9; ++i) {
        assert_ptr_equal(entry_of(pair.a.cq()).op_context, tag(i));
        entry_of(pair.b.cq());
    }
    assert_memory_equal(in.bytes.data(), out, sizeof out);
}

void selective_completion_asks_the_device_seldom(void **)
{
    const SimulatedHost host;
    RdmaPair pair({.bind_flags = FI_SELECTIVE_COMPLETION, .tx_size = 64});
    Memory in(pair.b.domain(), 8);
    const sim::Stats before = sim::stats();
    for (int i = 0; i < 64; ++i) {
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_send(pair.a.ep, "y", 1, nullptr, 0, nullptr), 0);
        fi_cq_data_entry entry{};
        assert_int_equal(fi_cq_read(pair.b.cq(), &entry, 1), -FI_EAGAIN); // nobody asked for it
    }
    assert_int_equal(sim::stats().signaled - before.signaled, 4);
    assert_true(is_quiet(pair.a.cq()));
}

void rma_reads_writes_and_tells(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory mine(pair.a.domain(), 100000);
    Memory theirs(pair.b.domain(), 100000);
    mine.fill(3);
    assert_int_equal(
        fi_write(pair.a.ep, mine.bytes.data(), 70000, mine.desc(), 0, theirs.address(100), theirs.key(), tag(1)), 0);
    assert_int_equal(entry_of(pair.a.cq()).flags, FI_RMA | FI_WRITE);
    assert_memory_equal(&theirs.bytes[100], mine.bytes.data(), 70000);

    assert_int_equal(fi_recv(pair.b.ep, nullptr, 0, nullptr, 0, tag(2)), 0); // the price of the data
    assert_int_equal(fi_writedata(pair.a.ep, mine.bytes.data(), 10, mine.desc(), 0x12345678, 0, theirs.address(),
                                  theirs.key(), tag(3)),
                     0);
    entry_of(pair.a.cq());
    const fi_cq_data_entry told = entry_of(pair.b.cq());
    assert_int_equal(told.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    assert_int_equal(told.data, 0x12345678);
    assert_int_equal(told.len, 10);

    assert_int_equal(fi_inject_write(pair.a.ep, "inject", 6, 0, theirs.address(50), theirs.key()), 0);
    Memory back(pair.a.domain(), 100000);
    assert_int_equal(
        fi_read(pair.a.ep, back.bytes.data(), 90000, back.desc(), 0, theirs.address(), theirs.key(), tag(4)), 0);
    const fi_cq_data_entry read = entry_of(pair.a.cq());
    assert_ptr_equal(read.op_context, tag(4));
    assert_int_equal(read.flags, FI_RMA | FI_READ);
    assert_memory_equal(back.bytes.data(), theirs.bytes.data(), 90000);
    assert_memory_equal(&back.bytes[50], "inject", 6);
}

// The connection ends: a device takes no access that was not given.
void a_wrong_key_ends_the_connection(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory mine(pair.a.domain(), 1000);
    Memory readable(pair.b.domain(), 1000, FI_REMOTE_READ);
    assert_int_equal(
        fi_write(pair.a.ep, mine.bytes.data(), 1000, mine.desc(), 0, readable.address(), readable.key(), tag(5)), 0);
    const fi_cq_err_entry error = error_of(pair.a.cq());
    assert_ptr_equal(error.op_context, tag(5));
    assert_int_equal(error.err, FI_EACCES);
    assert_int_equal(error.prov_errno, IBV_WC_REM_ACCESS_ERR);
    assert_non_null(std::strstr(fi_cq_strerror(pair.a.cq(), error.prov_errno, nullptr, nullptr, 0), "remote access"));
    assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
    assert_int_equal(fi_inject(pair.a.ep, "late", 4, 0), -FI_ENOTCONN);
}

void counters_instead_of_a_queue(void **)
{
    const SimulatedHost host;
    RdmaSide a({});
    RdmaSide b({});
    fi_cntr_attr attr{};
    attr.events = FI_CNTR_EVENTS_COMP;
    fid_cntr *sends = nullptr;
    fid_cntr *receives = nullptr;
    assert_int_equal(fi_cntr_open(a.domain(), &attr, &sends, nullptr), 0);
    assert_int_equal(fi_cntr_open(b.domain(), &attr, &receives, nullptr), 0);
    const auto open = [](RdmaSide &side, fi_info *info, fid_cntr *counter, std::uint64_t events) {
        fid_ep *ep = nullptr;
        assert_int_equal(fi_endpoint(side.domain(), info, &ep, nullptr), 0);
        assert_int_equal(fi_ep_bind(ep, &side.net.eq->fid, 0), 0);
        assert_int_equal(fi_ep_bind(ep, &side.cq()->fid, FI_SELECTIVE_COMPLETION | FI_TRANSMIT | FI_RECV), 0);
        assert_int_equal(fi_ep_bind(ep, &counter->fid, events), 0);
        return ep;
    };
    a.ep = open(a, a.net.info.get(), sends, FI_SEND | FI_WRITE);
    fid_pep *pep = join(a, b, [&](fi_info *info) {
        fid_ep *ep = open(b, info, receives, FI_RECV);
        assert_int_equal(fi_ep_bind(ep, &receives->fid, FI_REMOTE_WRITE), -FI_EINVAL); // the device tells nobody
        return ep;
    });
    {
        Memory in(b.domain(), 8);
        for (int i = 0; i < 5; ++i) {
            assert_int_equal(fi_recv(b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
            assert_int_equal(fi_send(a.ep, "z", 1, nullptr, 0, nullptr), 0);
        }
        assert_int_equal(fi_cntr_wait(sends, 5, kPatience), 0);
        assert_int_equal(fi_cntr_wait(receives, 5, kPatience), 0);
        assert_int_equal(fi_cntr_read(receives), 5);
        assert_true(is_quiet(a.cq()) && is_quiet(b.cq()));
        // Who goes to sleep for a counter looks at it once more where something has come just now.
        verbs::Queue &queue = *verbs::Endpoint::from(b.ep).rx_queue;
        const ofi::ProgressSource source = queue.source();
        assert_int_equal(source.arm(source.object), queue.wait_fd());
        assert_int_equal(fi_recv(b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_send(a.ep, "z", 1, nullptr, 0, nullptr), 0);
        sim::advance(std::chrono::milliseconds(1));
        assert_int_equal(source.arm(source.object), -1);
        assert_int_equal(source.arm(source.object), queue.wait_fd());
    }
    assert_int_equal(fi_close(&a.ep->fid), 0);
    assert_int_equal(fi_close(&b.ep->fid), 0);
    a.ep = b.ep = nullptr;
    for (fid *closed : {&sends->fid, &receives->fid, &pep->fid})
        assert_int_equal(fi_close(closed), 0);
}

void receives_that_endpoints_share(void **)
{
    const SimulatedHost host;
    RdmaPair pair({.shared_receive = true});
    const auto [other_a, other_b] = pair.connect_one(nullptr, nullptr);
    Memory in(pair.b.domain(), 64);
    for (std::uintptr_t i = 0; i < 4; ++i)
        assert_int_equal(fi_recv(pair.b.srx, &in.bytes[i * 16], 16, in.desc(), 0, tag(i)), 0);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 16, in.desc(), 0, nullptr), -FI_EINVAL);
    for (int round = 0; round < 2; ++round) {
        assert_int_equal(fi_inject(pair.a.ep, "one", 3, 0), 0);
        assert_int_equal(fi_inject(other_a, "other", 5, 0), 0);
    }
    for (std::uintptr_t i = 0; i < 4; ++i) {
        const fi_cq_data_entry entry = entry_of(pair.b.cq());
        const auto place = reinterpret_cast<std::uintptr_t>(entry.op_context);
        assert_true(place < 4);
        assert_memory_equal(&in.bytes[place * 16], entry.len == 3 ? "one" : "other", entry.len);
    }
    // The places are free again.
    for (std::size_t i = 0; i < pair.b.net.info->rx_attr->size; ++i)
        assert_int_equal(fi_recv(pair.b.srx, in.bytes.data(), 1, in.desc(), 0, nullptr), 0);
    assert_int_equal(fi_recv(pair.b.srx, in.bytes.data(), 1, in.desc(), 0, nullptr), -FI_EAGAIN);
    assert_int_equal(fi_close(&other_a->fid), 0);
    assert_int_equal(fi_close(&other_b->fid), 0);
}

// Each side sleeps each time: a wake-up that got lost would hang it.
void sleepers_miss_nothing(void **)
{
    constexpr int kRounds = 2000;
    const SimulatedHost host({}, sim::Clock::real);
    RdmaPair pair;
    const auto play = [](RdmaSide &side, bool begins) {
        Memory in(side.domain(), 8);
        int fd = -1;
        assert_int_equal(fi_control(&side.cq()->fid, FI_GETWAIT, &fd), 0);
        assert_int_equal(fi_recv(side.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
        if (begins)
            assert_int_equal(fi_inject(side.ep, "ball", 4, 0), 0);
        for (int i = 0; i < kRounds; ++i) {
            fi_cq_data_entry entry{};
            ssize_t got;
            while ((got = fi_cq_read(side.cq(), &entry, 1)) == -FI_EAGAIN) {
                fid *queue = &side.cq()->fid;
                pollfd p{fd, POLLIN, 0};
                if (fi_trywait(side.net.fabric, &queue, 1) == 0)
                    assert_int_equal(::poll(&p, 1, kPatience), 1);
            }
            assert_int_equal(got, 1);
            assert_int_equal(fi_recv(side.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
            if (begins ? i + 1 < kRounds : true)
                assert_int_equal(fi_inject(side.ep, "ball", 4, 0), 0);
        }
    };
    std::thread other([&] { play(pair.b, false); });
    play(pair.a, true);
    other.join();
}

void a_blocking_read_is_woken_by_a_signal_and_by_time(void **)
{
    const SimulatedHost host({}, sim::Clock::real);
    RdmaPair pair;
    fi_cq_data_entry entry{};
    assert_int_equal(fi_cq_sread(pair.a.cq(), &entry, 1, nullptr, 1), -FI_EAGAIN);
    assert_int_equal(fi_cq_signal(pair.a.cq()), 0);
    assert_int_equal(fi_cq_sread(pair.a.cq(), &entry, 1, nullptr, -1), -FI_EAGAIN);
    std::thread sender([&] { assert_int_equal(fi_inject(pair.b.ep, "now", 3, 0), 0); });
    Memory in(pair.a.domain(), 8);
    assert_int_equal(fi_recv(pair.a.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
    assert_int_equal(fi_cq_sread(pair.a.cq(), &entry, 1, nullptr, -1), 1);
    sender.join();
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_all_lengths),
        cmocka_unit_test(pieces_are_gathered_and_scattered),
        cmocka_unit_test(small_ones_go_inline_and_injected_ones_are_copied),
        cmocka_unit_test(a_program_may_want_less_inline),
        cmocka_unit_test(interrupts_are_moderated),
        cmocka_unit_test(wakes_are_counted),
        cmocka_unit_test(local_keys_are_told),
        cmocka_unit_test(injecting_without_end),
        cmocka_unit_test(a_full_queue_has_room_again),
        cmocka_unit_test(a_row_of_more_rings_once),
        cmocka_unit_test(a_row_of_more_than_the_queue_holds),
        cmocka_unit_test(selective_completion_asks_the_device_seldom),
        cmocka_unit_test(rma_reads_writes_and_tells),
        cmocka_unit_test(a_wrong_key_ends_the_connection),
        cmocka_unit_test(counters_instead_of_a_queue),
        cmocka_unit_test(receives_that_endpoints_share),
        cmocka_unit_test(sleepers_miss_nothing),
        cmocka_unit_test(a_blocking_read_is_woken_by_a_signal_and_by_time),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
