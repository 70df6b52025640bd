// SPDX-License-Identifier: BSD-2-Clause
// FI_OPT_VMA_RATE_LIMIT on the local device: what waits for its turn, its order, who is woken, long messages in pieces.
// How exact the rate is, is pacer_test's business: nothing here measures time. What must not go has a rate of a byte a
// second.
#include "fabtests/unit.hpp"

#include <cstring>
#include <memory>
#include <poll.h>
#include <vector>

#include "fabtests/patience.hpp"
#include "prov/vma/test/local/dgram_pair.hpp"

namespace {

using namespace vma::test;

constexpr int kLimit = static_cast<int>(FI_OPT_VMA_RATE_LIMIT);
const int kPatience = patience::milliseconds(); // in which a wake-up that is not lost comes

void limit(fid_ep *ep, std::uint64_t rate, std::uint32_t burst)
{
    const fi_vma_rate_limit wanted{rate, burst, 0};
    assert_int_equal(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, kLimit, &wanted, sizeof wanted), 0);
}

std::uint64_t due(fid_ep *ep)
{
    return option<std::uint64_t>(ep, FI_OPT_VMA_RATE_DUE);
}

// Sleeps on the queue's descriptor as fi_trywait() allows.
void sleep_on(fid_fabric *fabric, fid_cq *cq)
{
    int fd = -1;
    assert_int_equal(fi_control(&cq->fid, FI_GETWAIT, &fd), 0);
    fid *waits[] = {&cq->fid};
    if (fabric->ops->trywait(fabric, waits, 1) != 0)
        return;
    pollfd one{fd, POLLIN, 0};
    assert_int_equal(poll(&one, 1, kPatience), 1);
}

void options_of(fid_ep *ep)
{
    fi_vma_rate_limit wanted{};
    assert_int_equal(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, kLimit, &wanted, sizeof wanted - 1), -FI_EINVAL);
    assert_int_equal(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, kLimit, nullptr, sizeof wanted), -FI_EINVAL);
    auto now = option<fi_vma_rate_limit>(ep, FI_OPT_VMA_RATE_LIMIT);
    assert_int_equal(now.rate, 0);
    assert_int_equal(now.max_burst, 0);
    wanted = {1'000'000'000, 0, 9000};
    assert_int_equal(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, kLimit, &wanted, sizeof wanted), 0);
    now = option<fi_vma_rate_limit>(ep, FI_OPT_VMA_RATE_LIMIT);
    assert_int_equal(now.rate, wanted.rate);
    assert_int_equal(now.max_burst, 2'000'000);
    assert_int_equal(now.typical_packet, 9000);
    wanted = {UINT64_MAX, 5, 0};
    assert_int_equal(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, kLimit, &wanted, sizeof wanted), 0);
    assert_int_equal(option<fi_vma_rate_limit>(ep, FI_OPT_VMA_RATE_LIMIT).rate, 0);
    limit(ep, 7, 5);
    assert_int_equal(option<fi_vma_rate_limit>(ep, FI_OPT_VMA_RATE_LIMIT).max_burst, 5);
    assert_int_equal(due(ep), 0);
    std::uint32_t small = 0;
    std::size_t length = sizeof small;
    assert_int_equal(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, kLimit, &small, &length), -FI_ETOOSMALL);
    limit(ep, 0, 0);
}

void options(void **)
{
    Side side{Setup{}};
    options_of(side.ep);
    limit(side.ep, 1000, 0); // before fi_enable() too
    assert_int_equal(fi_enable(side.ep), 0);
    assert_int_equal(option<fi_vma_rate_limit>(side.ep, FI_OPT_VMA_RATE_LIMIT).rate, 1000);
    limit(side.ep, 0, 0);
    options_of(side.ep);
    Dgram dgram;
    options_of(dgram.ep);
}

// What waits is in the queue, in order, and goes when the limit is lifted; what it is not, goes at once.
void messages_wait_in_order(void **)
{
    for (const bool cma : {false, true}) {
        Setup setup;
        setup.cma = cma;
        Pair pair(setup);
        std::vector<unsigned char> out(41'000); // the longest, from the furthest place
        std::vector<unsigned char> in(out.size() * 4);
        Random().fill(out.data(), out.size());
        const std::size_t lengths[] = {10, 100, 40'000, 300}; // inline, in the bounce ring, long
        limit(pair.a.ep, 1, 20);
        std::size_t at = 0;
        for (const std::size_t length : lengths) {
            assert_int_equal(fi_recv(pair.b.ep, in.data() + at, length, nullptr, 0, in.data() + at), 0);
            assert_int_equal(fi_send(pair.a.ep, out.data() + at % 1000, length, nullptr, 0, out.data() + at), 0);
            at += length;
        }
        at = 0;
        bool first = true;
        for (const std::size_t length : lengths) {
            if (!first && at == lengths[0]) {
                assert_true(no_entry(pair.b.cq));
                assert_true(no_entry(pair.a.cq));
                assert_true(due(pair.a.ep) > 0);
                limit(pair.a.ep, 0, 0);
                assert_int_equal(due(pair.a.ep), 0);
            }
            const fi_cq_data_entry arrived = next_entry(pair.b.cq);
            assert_ptr_equal(arrived.op_context, in.data() + at);
            assert_int_equal(arrived.len, length);
            assert_memory_equal(in.data() + at, out.data() + at % 1000, length);
            assert_ptr_equal(next_entry(pair.a.cq).op_context, out.data() + at);
            at += length;
            first = false;
        }
    }
}

// The queue takes what it always takes: no more.
void the_transmit_queue_has_its_size(void **)
{
    Setup setup;
    setup.tx_size = 8;
    Pair pair(setup);
    const char bytes[100] = {};
    limit(pair.a.ep, 1, 20); // the next one is due after a minute
    unsigned taken = 0;
    while (fi_send(pair.a.ep, bytes, sizeof bytes, nullptr, 0, nullptr) == 0)
        ++taken;
    assert_in_range(taken, 8, 9); // one has gone
}

// Faster than the test, so that it ends, and in many pieces: at 200 MB/s 1 MiB takes 5 ms.
void long_ones_arrive_whole(void **)
{
    for (const bool cma : {false, true}) {
        Setup setup;
        setup.cma = cma;
        setup.region = 1 << 20;
        Pair pair(setup);
        std::vector<unsigned char> out(1 << 20);
        std::vector<unsigned char> in(out.size());
        Random().fill(out.data(), out.size());
        limit(pair.a.ep, 200'000'000, 10'001);
        const auto progress = [&pair](fid_cq *cq) {
            fi_cq_data_entry entry{};
            while (fi_cq_read(cq, &entry, 1) != 1)
                fi_cq_read(cq == pair.a.cq ? pair.b.cq : pair.a.cq, nullptr, 0);
            return entry;
        };
        assert_int_equal(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, nullptr), 0);
        assert_int_equal(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr), 0);
        assert_int_equal(progress(pair.b.cq).len, in.size());
        assert_memory_equal(in.data(), out.data(), in.size());
        progress(pair.a.cq);

        std::fill(in.begin(), in.end(), std::uint8_t{0});
        fid_mr *mr = nullptr;
        assert_int_equal(
            fi_mr_reg(pair.b.domain, in.data(), in.size(), FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 5, 0, &mr, nullptr), 0);
        assert_int_equal(fi_write(pair.a.ep, out.data(), out.size(), nullptr, 0, 0, 5, nullptr), 0);
        progress(pair.a.cq);
        std::vector<unsigned char> back(in.size());
        assert_int_equal(fi_read(pair.a.ep, back.data(), back.size(), nullptr, 0, 0, 5, nullptr), 0);
        progress(pair.a.cq); // a read comes after the write
        assert_memory_equal(back.data(), out.data(), out.size());
        assert_int_equal(fi_close(&mr->fid), 0);

        assert_int_equal(fi_writedata(pair.a.ep, out.data(), out.size(), nullptr, 7, 0, 0, FI_VMA_REGION_KEY, nullptr),
                         0);
        assert_int_equal(progress(pair.b.cq).data, 7);
        assert_memory_equal(pair.b.region(), out.data(), out.size());
        progress(pair.a.cq);
    }
}

// The limit may come and go while a message is half on its way.
void a_limit_that_changes_within_a_message(void **)
{
    Pair pair;
    std::vector<unsigned char> out(100'000);
    std::vector<unsigned char> in(out.size());
    Random().fill(out.data(), out.size());
    assert_int_equal(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, nullptr), 0);
    limit(pair.a.ep, 1, 4000);
    assert_int_equal(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr), 0);
    assert_true(no_entry(pair.b.cq));
    limit(pair.a.ep, 2'000'000'000, 50'000);
    while (fi_cq_read(pair.a.cq, nullptr, 0) == -FI_EAGAIN && due(pair.a.ep) != 0) {
    }
    limit(pair.a.ep, 0, 0);
    for (fi_cq_data_entry entry{}; fi_cq_read(pair.b.cq, &entry, 1) != 1;)
        fi_cq_read(pair.a.cq, nullptr, 0);
    assert_memory_equal(in.data(), out.data(), in.size());
}

void injected_ones_are_refused_until_they_are_due(void **)
{
    Setup setup;
    setup.region = 65536;
    setup.bind_flags = FI_SELECTIVE_COMPLETION;
    Pair pair(setup);
    char bytes[100] = {};
    const auto put = [&](std::size_t length) {
        return fi_inject_writedata(pair.a.ep, bytes, length, length, 0, 0, FI_VMA_REGION_KEY);
    };
    limit(pair.a.ep, 1, 200);
    assert_int_equal(put(100), 0);
    assert_int_equal(put(100), -FI_EAGAIN);
    const std::uint64_t when = due(pair.a.ep);
    assert_true(when > 0);
    assert_int_equal(fi_inject(pair.a.ep, bytes, 100, 0), -FI_EAGAIN);
    assert_true(due(pair.a.ep) >= when);
    assert_int_equal(put(0), 0); // without bytes it is free
    assert_int_equal(next_entry(pair.b.cq).data, 100);
    assert_int_equal(next_entry(pair.b.cq).data, 0);
    assert_true(no_entry(pair.b.cq));
    limit(pair.a.ep, 20'000, 200);
    while (put(100) != 0)
        sleep_on(pair.a.fabric, pair.a.cq);
    assert_int_equal(next_entry(pair.b.cq).data, 100);
}

// fi_cq_sread() and the descriptor end a sleep when the time has come, and not only then.
void sleepers_are_woken(void **)
{
    Pair pair;
    char out[1000] = {};
    char in[1000];
    limit(pair.a.ep, 100'000, 1000); // 5 ms each
    for (unsigned i = 0; i < 6; ++i) {
        assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr), 0);
        assert_int_equal(fi_send(pair.a.ep, out, 500, nullptr, 0, out + i), 0);
    }
    fi_cq_data_entry entry{};
    for (unsigned i = 0; i < 3; ++i) {
        assert_int_equal(fi_cq_sread(pair.a.cq, &entry, 1, nullptr, kPatience), 1);
        assert_ptr_equal(entry.op_context, out + i);
    }
    for (unsigned i = 3; i < 6; ++i) {
        while (fi_cq_read(pair.a.cq, &entry, 1) != 1)
            sleep_on(pair.a.fabric, pair.a.cq);
        assert_ptr_equal(entry.op_context, out + i);
    }
    // Nothing waits any more: a sleep is one again.
    fid *waits[] = {&pair.a.cq->fid};
    assert_int_equal(pair.a.fabric->ops->trywait(pair.a.fabric, waits, 1), 0);
    int fd = -1;
    assert_int_equal(fi_control(&pair.a.cq->fid, FI_GETWAIT, &fd), 0);
    pollfd one{fd, POLLIN, 0};
    assert_int_equal(poll(&one, 1, 0), 0);
}

// What was refused makes no completion: nothing but its time can end a sleep that has no end, and then it may go. So it
// is when there is no limit any more.
template <typename Send> void wake_when_due(fid_ep *ep, fid_cq *cq, Send send)
{
    limit(ep, 20'000, 200); // 5 ms each
    for (unsigned refused = 0; refused < 3;) {
        const ssize_t result = send();
        if (result == 0)
            continue;
        assert_int_equal(result, -FI_EAGAIN);
        if (++refused == 3)
            limit(ep, 0, 0);
        fi_cq_data_entry entry{};
        ssize_t got;
        while ((got = fi_cq_sread(cq, &entry, 1, nullptr, -1)) == 1) { // of those that went
        }
        assert_int_equal(got, -FI_EAGAIN);
        assert_int_equal(send(), 0);
    }
}

void a_blocking_read_ends_when_what_was_refused_is_due(void **)
{
    char bytes[100] = {};
    Dgram from;
    Dgram to;
    const fi_addr_t there = from.insert(to.name);
    wake_when_due(from.ep, from.cq, [&] { return fi_send(from.ep, bytes, 100, nullptr, there, nullptr); });

    Setup setup;
    setup.region = 65536;
    Pair pair(setup);
    wake_when_due(pair.a.ep, pair.a.cq, [&] { return fi_inject(pair.a.ep, bytes, 100, 0); });
    wake_when_due(pair.a.ep, pair.a.cq,
                  [&] { return fi_inject_writedata(pair.a.ep, bytes, 100, 1, 0, 0, FI_VMA_REGION_KEY); });
}

// Each at its own rate, one queue: none waits for another.
void many_on_one_queue(void **)
{
    constexpr unsigned kCount = 20;
    Setup setup;
    Side sending(setup);
    std::vector<std::unique_ptr<Side>> peers;
    std::vector<fid_ep *> endpoints;
    char bytes[300] = {};
    for (unsigned i = 0; i < kCount; ++i) {
        peers.push_back(std::make_unique<Side>(setup));
        endpoints.push_back(i == 0 ? sending.ep : sending.open_endpoint(nullptr));
        assert_int_equal(fi_enable(endpoints[i]), 0);
        assert_int_equal(fi_enable(peers[i]->ep), 0);
        join(vma::local::Endpoint::from(endpoints[i]), peers[i]->endpoint(), true);
        limit(endpoints[i], i % 5 == 0 ? 1 : 100'000 * i, 200);
        for (unsigned k = 0; k < 5; ++k) {
            assert_int_equal(fi_recv(peers[i]->ep, bytes, sizeof bytes, nullptr, 0, nullptr), 0);
            assert_int_equal(fi_send(endpoints[i], bytes, 100, nullptr, 0, reinterpret_cast<void *>(i)), 0);
        }
    }
    unsigned seen[kCount] = {};
    for (unsigned total = 0; total < 16 * 5 + 4; ++total) { // of the slow ones the first goes at once
        fi_cq_data_entry entry{};
        assert_int_equal(fi_cq_sread(sending.cq, &entry, 1, nullptr, kPatience), 1);
        ++seen[reinterpret_cast<std::uintptr_t>(entry.op_context)];
    }
    for (unsigned i = 0; i < kCount; ++i)
        assert_int_equal(seen[i], i % 5 == 0 ? 1 : 5);
    for (unsigned i = 1; i < kCount; ++i)
        assert_int_equal(fi_close(&endpoints[i]->fid), 0);
}

void what_waits_at_the_end_is_cancelled(void **)
{
    Pair pair;
    char bytes[vma::local::kSlotPayload] = {}; // the longest that goes whole, however little the limit lets go
    limit(pair.a.ep, 1, 10);
    for (unsigned i = 0; i < 3; ++i)
        assert_int_equal(fi_send(pair.a.ep, bytes, sizeof bytes, nullptr, 0, bytes + i), 0);
    assert_ptr_equal(next_entry(pair.a.cq).op_context, bytes);
    pair.a.endpoint().on_local_shutdown();
    for (unsigned i = 1; i < 3; ++i) {
        const fi_cq_err_entry error = next_error(pair.a.cq);
        assert_int_equal(error.err, FI_ECANCELED);
        assert_ptr_equal(error.op_context, bytes + i);
    }
    assert_int_equal(due(pair.a.ep), 0);
}

void datagrams_are_refused_until_they_are_due(void **)
{
    Dgram from;
    Dgram to;
    const fi_addr_t there = from.insert(to.name);
    char bytes[100] = {};
    char in[100];
    for (unsigned i = 0; i < 8; ++i)
        assert_int_equal(fi_recv(to.ep, in, sizeof in, nullptr, 0, nullptr), 0);
    limit(from.ep, 1, 200);
    assert_int_equal(fi_send(from.ep, bytes, 100, nullptr, there, nullptr), 0);
    assert_int_equal(fi_send(from.ep, bytes, 100, nullptr, there, nullptr), -FI_EAGAIN);
    assert_int_equal(fi_inject(from.ep, bytes, 1, there), -FI_EAGAIN);
    fi_msg message{};
    const iovec iov{bytes, 100};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = there;
    assert_int_equal(fi_sendmsg(from.ep, &message, FI_VMA_TELL_DROP), -FI_EAGAIN);
    assert_true(due(from.ep) > 0);
    assert_int_equal(fi_send(from.ep, bytes, 0, nullptr, there, nullptr), 0);
    assert_int_equal(from.drops(FI_OPT_VMA_TX_DROPS), 0);
    assert_int_equal(fi_cntr_read(from.sends), 2);

    limit(from.ep, 20'000, 200);
    fi_cq_data_entry entry{};
    for (unsigned i = 0; i < 3; ++i) {
        while (fi_send(from.ep, bytes, 100, nullptr, there, nullptr) != 0) {
            while (fi_cq_read(from.cq, &entry, 1) == 1) {
            }
            sleep_on(from.fabric, from.cq);
        }
    }
    limit(from.ep, 0, 0);
    assert_int_equal(fi_send(from.ep, bytes, 100, nullptr, there, nullptr), 0);
    std::size_t lengths = 0;
    for (unsigned i = 0; i < 6; ++i) {
        for (ssize_t got; (got = fi_cq_sread(to.cq, &entry, 1, nullptr, kPatience)) != 1;)
            assert_int_equal(got, -FI_EAGAIN);
        lengths += entry.len;
    }
    assert_int_equal(lengths, 500);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(options),
        cmocka_unit_test(messages_wait_in_order),
        cmocka_unit_test(the_transmit_queue_has_its_size),
        cmocka_unit_test(long_ones_arrive_whole),
        cmocka_unit_test(a_limit_that_changes_within_a_message),
        cmocka_unit_test(injected_ones_are_refused_until_they_are_due),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(a_blocking_read_ends_when_what_was_refused_is_due),
        cmocka_unit_test(many_on_one_queue),
        cmocka_unit_test(what_waits_at_the_end_is_cancelled),
        cmocka_unit_test(datagrams_are_refused_until_they_are_due),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
