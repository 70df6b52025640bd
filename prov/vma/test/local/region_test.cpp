// SPDX-License-Identifier: BSD-2-Clause
// Writes to a peer's region (FI_OPT_VMA_REGION): the path of the sockets. Options, both inline and direct writes,
// bounds, back pressure and wake-ups, the view of what was not consumed.
#include "fabtests/unit.hpp"

#include <poll.h>
#include <thread>

#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;

Setup with_region(std::size_t bytes = 65536)
{
    Setup setup;
    setup.region = bytes;
    setup.bind_flags = FI_SELECTIVE_COMPLETION;
    return setup;
}

int put(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, std::uint64_t offset)
{
    return static_cast<int>(fi_inject_writedata(ep, buffer, length, data, 0, offset, FI_VMA_REGION_KEY));
}

void options(void **)
{
    Side side{Setup{}};
    std::size_t bytes = 0;
    const int name = static_cast<int>(FI_OPT_VMA_REGION);
    assert_int_equal(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, name, &bytes, sizeof bytes), -FI_EINVAL);
    bytes = (std::size_t{1} << 30) + 1;
    assert_int_equal(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, name, &bytes, sizeof bytes), -FI_EINVAL);
    bytes = 100;
    assert_int_equal(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, name, &bytes, 4), -FI_EINVAL);
    assert_int_equal(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, name, &bytes, sizeof bytes), 0);
    fi_vma_region region{};
    std::size_t length = sizeof region;
    assert_int_equal(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, name, &region, &length), -FI_EOPBADSTATE);
    assert_int_equal(fi_enable(side.ep), 0);
    assert_int_equal(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, name, &bytes, sizeof bytes), -FI_EOPBADSTATE);
    length = 1;
    assert_int_equal(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, name, &region, &length), -FI_ETOOSMALL);
    region = option<fi_vma_region>(side.ep, FI_OPT_VMA_REGION);
    assert_int_equal(region.len, 100);
    assert_true(region.key == FI_VMA_REGION_KEY);
    assert_non_null(region.base);
    length = sizeof bytes;
    assert_int_equal(
        fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PEER_REGION), &bytes, &length),
        -FI_ENOTCONN);
    assert_int_equal(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, 12345, &bytes, sizeof bytes), -FI_ENOPROTOOPT);
}

void writes_of_all_sizes(void **)
{
    Pair pair(with_region());
    Random random;
    assert_int_equal(option<std::size_t>(pair.a.ep, FI_OPT_VMA_PEER_REGION), 65536);
    assert_true(option<std::size_t>(pair.a.ep, FI_OPT_VMA_REGION_INJECT) >= 65536);
    std::vector<unsigned char> out(65536);
    random.fill(out.data(), out.size());
    const std::byte *region = pair.b.region();
    for (int round = 0; round < 3000; ++round) {
        const std::size_t length = round < 300 ? static_cast<std::size_t>(round) : random.below(65537);
        const std::size_t offset = random.below(65536 - length + 1);
        const std::uint64_t tag = random();
        assert_int_equal(put(pair.a.ep, out.data(), length, tag, offset), 0);
        const fi_cq_data_entry entry = next_entry(pair.b.cq);
        assert_true(entry.data == tag);
        assert_int_equal(entry.len, length);
        assert_int_equal(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        assert_ptr_equal(entry.op_context, &pair.b); // the endpoint's context
        assert_memory_equal(region + offset, out.data(), length);
    }
    assert_true(no_entry(pair.a.cq));
}

void many_entries_in_one_read(void **)
{
    Pair pair(with_region());
    for (std::uint64_t i = 0; i < 20; ++i)
        assert_int_equal(put(pair.a.ep, &i, sizeof i, i, i * 8), 0);
    fi_cq_data_entry entries[16];
    assert_int_equal(fi_cq_read(pair.b.cq, entries, 16), 16);
    for (std::uint64_t i = 0; i < 16; ++i)
        assert_true(entries[i].data == i);
    assert_int_equal(fi_cq_read(pair.b.cq, entries, 16), 4);
    assert_true(entries[3].data == 19);
    assert_int_equal(fi_cq_read(pair.b.cq, entries, 16), -FI_EAGAIN);
}

void writes_with_flags_and_completions(void **)
{
    Pair pair(with_region());
    char text[200] = "region";
    iovec iov[2] = {{text, 3}, {text + 3, 4}};
    fi_rma_iov rma{10, 7, FI_VMA_REGION_KEY};
    fi_msg_rma message{};
    message.msg_iov = iov;
    message.iov_count = 2;
    message.rma_iov = &rma;
    message.rma_iov_count = 1;
    message.context = text;
    message.data = 77;
    assert_int_equal(fi_writemsg(pair.a.ep, &message, FI_INJECT | FI_REMOTE_CQ_DATA), 0);
    assert_true(next_entry(pair.b.cq).data == 77);
    assert_string_equal(reinterpret_cast<const char *>(pair.b.region() + 10), "region");
    assert_true(no_entry(pair.a.cq));

    assert_int_equal(fi_writemsg(pair.a.ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE), 0);
    assert_true(no_entry(pair.a.cq));
    assert_true(no_entry(pair.b.cq)); // no data, no entry; but consumed
    assert_int_equal(next_entry(pair.a.cq).flags, FI_RMA | FI_WRITE);

    iov[0].iov_len = sizeof text;
    message.iov_count = 1;
    rma = {0, sizeof text, FI_VMA_REGION_KEY};
    assert_int_equal(fi_writemsg(pair.a.ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA), 0);
    assert_ptr_equal(next_entry(pair.a.cq).op_context, text);
    assert_int_equal(next_entry(pair.b.cq).len, sizeof text);
    assert_int_equal(fi_inject_write(pair.a.ep, "abc", 4, 0, 500, FI_VMA_REGION_KEY), 0);
    assert_true(no_entry(pair.b.cq));
    assert_string_equal(reinterpret_cast<const char *>(pair.b.region() + 500), "abc");
}

void bounds_are_checked_at_the_sender(void **)
{
    Pair pair(with_region(1000));
    char buffer[2000] = {};
    assert_int_equal(put(pair.a.ep, buffer, 1000, 0, 0), 0);
    assert_int_equal(put(pair.a.ep, buffer, 0, 0, 1000), 0);
    assert_int_equal(put(pair.a.ep, buffer, 1001, 0, 0), -FI_EINVAL);
    assert_int_equal(put(pair.a.ep, buffer, 1, 0, 1000), -FI_EINVAL);
    assert_int_equal(put(pair.a.ep, buffer, 1, 0, UINT64_MAX), -FI_EINVAL);
    assert_int_equal(put(pair.a.ep, buffer, 2, 0, UINT64_MAX), -FI_EINVAL);
    Pair none{Setup{}};
    assert_int_equal(put(none.a.ep, buffer, 1, 0, 0), -FI_EINVAL);
    assert_int_equal(put(none.a.ep, buffer, 0, 5, 0), 0); // a bare message
    assert_true(next_entry(none.b.cq).data == 5);
}

void a_starved_sender_is_woken(void **)
{
    Pair pair(with_region());
    std::uint64_t sent = 0;
    while (put(pair.a.ep, &sent, sizeof sent, sent, 0) == 0)
        ++sent;
    assert_int_equal(sent, vma::local::kSlotCount);
    fid *fids[] = {&pair.a.cq->fid};
    int fd = -1;
    assert_int_equal(fi_control(fids[0], FI_GETWAIT, &fd), 0);
    const auto trywait = [](fid_cq *cq) {
        auto &queue = vma::ofi::cq_of(cq);
        return queue.trywait(queue);
    };
    assert_true(no_entry(pair.a.cq));
    assert_int_equal(trywait(pair.a.cq), 0);
    pollfd wait{fd, POLLIN, 0};
    assert_int_equal(poll(&wait, 1, 0), 0);
    assert_true(next_entry(pair.b.cq).data == 0);
    fi_cq_data_entry entry;
    while (fi_cq_read(pair.b.cq, &entry, 1) > 0) {
    }
    assert_int_equal(poll(&wait, 1, kPatience), 1);
    assert_int_equal(fi_cq_read(pair.a.cq, &entry, 1), -FI_EAGAIN);
    assert_int_equal(put(pair.a.ep, &sent, sizeof sent, sent, 0), 0);

    // Room that came before the sleep is reported once, and then there may be sleep.
    while (put(pair.a.ep, &sent, sizeof sent, sent, 0) == 0)
        ++sent;
    fi_cq_data_entry entries[64];
    while (fi_cq_read(pair.b.cq, entries, 64) > 0) {
    }
    assert_int_equal(fi_cq_read(pair.a.cq, &entry, 1), -FI_EAGAIN);
    assert_int_equal(trywait(pair.a.cq), -FI_EAGAIN);
    assert_int_equal(trywait(pair.a.cq), 0);
}

void the_view_shows_what_was_not_consumed(void **)
{
    Pair pair(with_region());
    std::vector<unsigned char> out(5000);
    Random random;
    random.fill(out.data(), out.size());
    std::size_t at = 0;
    for (std::size_t length = 0; at + length <= out.size() && length < 300; length += 13) {
        if (put(pair.a.ep, out.data() + at, length, 0, at))
            break;
        at += length;
        if (length == 52)
            (void)next_entry(pair.b.cq);
    }
    const auto *view = option<const unsigned char *>(pair.a.ep, FI_OPT_VMA_PEER_VIEW);
    assert_memory_equal(view, out.data(), at);
    pair.b.endpoint().on_local_shutdown();
    pair.a.endpoint().on_peer_shutdown();
    assert_int_equal(put(pair.a.ep, "x", 1, 0, 0), -FI_ENOTCONN);
    assert_ptr_equal(option<const unsigned char *>(pair.a.ep, FI_OPT_VMA_PEER_VIEW), view);
    assert_memory_equal(view, out.data(), at);

    std::vector<unsigned char> back(at);
    Pair other(with_region());
    assert_int_equal(put(other.a.ep, out.data(), 50, 0, 3), 0);
    assert_int_equal(fi_read(other.a.ep, back.data(), 50, nullptr, 0, 3, FI_VMA_REGION_KEY, nullptr), 0);
    assert_memory_equal(back.data(), out.data(), 50);
}

int warm(fid_ep *ep, std::uint64_t offset, std::uint64_t length)
{
    const fi_vma_warm wanted = {FI_ADDR_UNSPEC, offset, length};
    return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_WARM), &wanted, sizeof wanted);
}

// Whatever is asked for, and however often: nothing is sent.
void warming_changes_nothing(void **)
{
    Pair pair(with_region());
    const std::vector<unsigned char> before(5000, 0);
    for (const std::uint64_t length : {UINT64_C(0), UINT64_C(12), UINT64_C(100), UINT64_C(4000), UINT64_MAX})
        for (const std::uint64_t offset : {UINT64_C(0), UINT64_C(63), UINT64_C(4096), UINT64_C(1) << 40, UINT64_MAX})
            assert_int_equal(warm(pair.a.ep, offset, length), 0);
    assert_true(no_entry(pair.b.cq));
    assert_memory_equal(option<const unsigned char *>(pair.a.ep, FI_OPT_VMA_PEER_VIEW), before.data(), 64);
    assert_int_equal(put(pair.a.ep, "real", 4, 7, 0), 0);
    assert_int_equal(next_entry(pair.b.cq).data, 7);
    assert_int_equal(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_WARM), &pair, 4),
                     -FI_EINVAL);
    pair.b.endpoint().on_local_shutdown();
    pair.a.endpoint().on_peer_shutdown();
    assert_int_equal(warm(pair.a.ep, 0, 12), -FI_ENOTCONN);
}

void close_leaves_no_entries(void **)
{
    Setup setup = with_region();
    Side a(setup);
    Side b(setup);
    fid_ep *second_a = a.open_endpoint(&a.domain);
    fid_ep *second_b = b.open_endpoint(&b.domain);
    for (fid_ep *ep : {a.ep, b.ep, second_a, second_b})
        assert_int_equal(fi_enable(ep), 0);
    join(a.endpoint(), b.endpoint(), true);
    join(vma::local::Endpoint::from(second_a), vma::local::Endpoint::from(second_b), true);
    for (std::uint64_t i = 0; i < 10; ++i) {
        assert_int_equal(put(a.ep, nullptr, 0, i, 0), 0);
        assert_int_equal(put(second_a, nullptr, 0, 100 + i, 0), 0);
    }
    assert_int_equal(fi_cq_read(b.cq, nullptr, 0), 0); // all are in the queue now
    assert_int_equal(fi_close(&second_b->fid), 0);
    for (std::uint64_t i = 0; i < 10; ++i)
        assert_true(next_entry(b.cq).data == i);
    assert_true(no_entry(b.cq));
    assert_int_equal(put(second_a, nullptr, 0, 1, 0), 0); // into the void
    assert_true(no_entry(b.cq));
    assert_int_equal(fi_close(&second_a->fid), 0);
}

// More endpoints than are looked at directly, each found by its bell.
void many_endpoints(void **)
{
    constexpr int kCount = 200;
    Setup setup = with_region(4096);
    Side a(setup);
    Side b(setup);
    std::vector<fid_ep *> from;
    std::vector<fid_ep *> to;
    std::vector<std::uint64_t> next(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
        from.push_back(a.open_endpoint(nullptr));
        to.push_back(b.open_endpoint(&next[i]));
        assert_int_equal(fi_enable(from[i]), 0);
        assert_int_equal(fi_enable(to[i]), 0);
        join(vma::local::Endpoint::from(from[i]), vma::local::Endpoint::from(to[i]), true);
    }
    Random random;
    std::vector<std::uint64_t> sent(kCount);
    std::size_t expected = 0;
    std::size_t received = 0;
    const auto read_all = [&] {
        fi_cq_data_entry entries[7];
        ssize_t got;
        while ((got = fi_cq_read(b.cq, entries, 7)) > 0) {
            for (ssize_t i = 0; i < got; ++i) {
                auto *counter = static_cast<std::uint64_t *>(entries[i].op_context);
                assert_true(entries[i].data == (*counter)++);
                ++received;
            }
        }
    };
    for (int round = 0; round < 20000; ++round) {
        const std::size_t which = random.below(4) ? random.below(6) : random.below(kCount);
        if (put(from[which], &round, sizeof round, sent[which], 0) == 0) {
            ++sent[which];
            ++expected;
        }
        if (random.below(50) == 0)
            read_all();
        if (random.below(1000) == 0)
            (void)vma::ofi::cq_of(b.cq).trywait(vma::ofi::cq_of(b.cq));
    }
    for (int i = 0; i < 100; ++i)
        read_all();
    assert_int_equal(received, expected);
    for (std::size_t i = 0; i < kCount; ++i) {
        assert_int_equal(fi_close(&to[i]->fid), 0);
        assert_int_equal(fi_close(&from[i]->fid), 0);
    }
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(options),
        cmocka_unit_test(writes_of_all_sizes),
        cmocka_unit_test(many_entries_in_one_read),
        cmocka_unit_test(writes_with_flags_and_completions),
        cmocka_unit_test(bounds_are_checked_at_the_sender),
        cmocka_unit_test(a_starved_sender_is_woken),
        cmocka_unit_test(the_view_shows_what_was_not_consumed),
        cmocka_unit_test(warming_changes_nothing),
        cmocka_unit_test(close_leaves_no_entries),
        cmocka_unit_test(many_endpoints),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
