// SPDX-License-Identifier: BSD-2-Clause
// Messages between two endpoints of the local device: every call, every protocol, errors, back pressure.
#include "fabtests/unit.hpp"

#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;

int contexts[8];

void small_message_arrives(void **)
{
    Pair pair;
    char in[64] = {};
    assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, &contexts[0]), 0);
    assert_int_equal(fi_send(pair.a.ep, "hello", 6, nullptr, 0, &contexts[1]), 0);
    const fi_cq_data_entry received = next_entry(pair.b.cq);
    assert_ptr_equal(received.op_context, &contexts[0]);
    assert_int_equal(received.flags, FI_RECV | FI_MSG);
    assert_int_equal(received.len, 6);
    assert_string_equal(in, "hello");
    const fi_cq_data_entry sent = next_entry(pair.a.cq);
    assert_ptr_equal(sent.op_context, &contexts[1]);
    assert_int_equal(sent.flags, FI_SEND | FI_MSG);
    assert_true(no_entry(pair.a.cq) && no_entry(pair.b.cq));
}

void data_comes_with_the_message(void **)
{
    Pair pair;
    char in[16];
    assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_senddata(pair.a.ep, "x", 1, nullptr, 0x1122334455667788, 0, nullptr), 0);
    fi_cq_data_entry entry = next_entry(pair.b.cq);
    assert_int_equal(entry.flags, FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA);
    assert_true(entry.data == 0x1122334455667788);
    (void)next_entry(pair.a.cq);
    assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_injectdata(pair.a.ep, "y", 1, 7, 0), 0);
    entry = next_entry(pair.b.cq);
    assert_true(entry.data == 7);
    assert_true(no_entry(pair.a.cq)); // injected
}

// Sizes around every border between protocols, and random ones.
void run_sizes(bool cma)
{
    Setup setup;
    setup.cma = cma;
    Pair pair(setup);
    Random random;
    std::vector<std::size_t> sizes = {0,     1,     7,     8,     15,    16,    17,      63,
                                      64,    103,   104,   105,   4096,  8191,  8192,    8193,
                                      16383, 16384, 16385, 65535, 65536, 65537, 1000000, 3000001};
    for (int i = 0; i < 30; ++i)
        sizes.push_back(random.below(200000));
    std::vector<unsigned char> out(3000001);
    std::vector<unsigned char> in(3000001);
    random.fill(out.data(), out.size());
    for (const std::size_t size : sizes) {
        std::memset(in.data(), 0, in.size());
        assert_int_equal(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &contexts[0]), 0);
        assert_int_equal(fi_send(pair.a.ep, out.data(), size, nullptr, 0, &contexts[1]), 0);
        bool received = false;
        bool sent = false;
        for (int i = 0; i < 10'000'000 && !(received && sent); ++i) {
            fi_cq_data_entry entry{};
            if (fi_cq_read(pair.b.cq, &entry, 1) == 1) {
                assert_int_equal(entry.len, size);
                received = true;
            }
            if (fi_cq_read(pair.a.cq, &entry, 1) == 1)
                sent = true;
        }
        assert_true(received && sent);
        assert_true(hash(in.data(), size) == hash(out.data(), size));
        assert_true(size == in.size() || in[size] == 0);
    }
}

void all_sizes_by_one_copy(void **)
{
    run_sizes(true);
}

void all_sizes_by_the_bounce_ring(void **)
{
    run_sizes(false);
}

void lists_of_buffers(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup;
        setup.cma = cma;
        Pair pair(setup);
        Random random;
        for (int round = 0; round < 300; ++round) {
            const std::size_t total = random.below(round % 3 ? 300 : 100000);
            std::vector<unsigned char> out(total + 1);
            std::vector<unsigned char> in(total + 1);
            random.fill(out.data(), total);
            const auto split = [&](std::vector<unsigned char> &bytes, iovec *iov) {
                const std::size_t count = 1 + random.below(4);
                std::size_t at = 0;
                for (std::size_t i = 0; i < count; ++i) {
                    const std::size_t part = i + 1 == count ? total - at : random.below(total - at + 1);
                    iov[i] = {bytes.data() + at, part};
                    at += part;
                }
                return count;
            };
            iovec to[4];
            iovec from[4];
            const std::size_t to_count = split(in, to);
            const std::size_t from_count = split(out, from);
            assert_int_equal(fi_recvv(pair.b.ep, to, nullptr, to_count, 0, &contexts[0]), 0);
            assert_int_equal(fi_sendv(pair.a.ep, from, nullptr, from_count, 0, &contexts[1]), 0);
            bool done[2] = {};
            for (int i = 0; i < 10'000'000 && !(done[0] && done[1]); ++i) {
                fi_cq_data_entry entry{};
                if (fi_cq_read(pair.b.cq, &entry, 1) == 1)
                    done[0] = true;
                if (fi_cq_read(pair.a.cq, &entry, 1) == 1)
                    done[1] = true;
            }
            assert_true(done[0] && done[1]);
            assert_true(in == out || std::memcmp(in.data(), out.data(), total) == 0);
        }
        iovec five[5] = {};
        assert_int_equal(fi_sendv(pair.a.ep, five, nullptr, 5, 0, nullptr), -FI_EINVAL);
        assert_int_equal(fi_recvv(pair.a.ep, five, nullptr, 5, 0, nullptr), -FI_EINVAL);
    }
}

void unexpected_messages_wait(void **)
{
    Pair pair;
    for (int i = 0; i < 5; ++i)
        assert_int_equal(fi_inject(pair.a.ep, &i, sizeof i, 0), 0);
    assert_true(no_entry(pair.b.cq));
    for (int i = 0; i < 5; ++i) {
        int in = -1;
        assert_int_equal(fi_recv(pair.b.ep, &in, sizeof in, nullptr, 0, nullptr), 0);
        (void)next_entry(pair.b.cq);
        assert_int_equal(in, i);
        assert_true(no_entry(pair.b.cq));
    }
}

void truncation_is_an_error_with_olen(void **)
{
    for (const bool cma : {true, false}) {
        for (const std::size_t size : {std::size_t{50}, std::size_t{5000}, std::size_t{100000}}) {
            Setup setup;
            setup.cma = cma;
            Pair pair(setup);
            std::vector<char> out(size, 'a');
            char in[20] = {};
            assert_int_equal(fi_recv(pair.b.ep, in, 10, nullptr, 0, &contexts[2]), 0);
            assert_int_equal(fi_send(pair.a.ep, out.data(), size, nullptr, 0, nullptr), 0);
            fi_cq_data_entry entry{};
            ssize_t got = -FI_EAGAIN;
            for (int i = 0; i < 1000 && got == -FI_EAGAIN; ++i) {
                got = fi_cq_read(pair.b.cq, &entry, 1);
                (void)fi_cq_read(pair.a.cq, &entry, 0);
            }
            assert_int_equal(got, -FI_EAVAIL);
            fi_cq_err_entry error{};
            assert_int_equal(fi_cq_readerr(pair.b.cq, &error, 0), 1);
            assert_int_equal(error.err, FI_ETRUNC);
            assert_int_equal(error.olen, size - 10);
            assert_int_equal(error.len, 10);
            assert_ptr_equal(error.op_context, &contexts[2]);
            assert_int_equal(in[9], 'a');
            assert_int_equal(in[10], 0);
            (void)next_entry(pair.a.cq); // the sender is not to blame
        }
    }
}

void selective_completion(void **)
{
    Setup setup;
    setup.bind_flags = FI_SELECTIVE_COMPLETION;
    Pair pair(setup);
    char in[8] = {};
    assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_send(pair.a.ep, "1", 2, nullptr, 0, nullptr), 0);
    assert_true(no_entry(pair.a.cq) && no_entry(pair.b.cq));
    assert_string_equal(in, "1");

    iovec to{in, sizeof in};
    iovec from{const_cast<char *>("2"), 2};
    fi_msg receive{};
    receive.msg_iov = &to;
    receive.iov_count = 1;
    receive.context = &contexts[0];
    fi_msg message = receive;
    message.msg_iov = &from;
    message.context = &contexts[1];
    assert_int_equal(fi_recvmsg(pair.b.ep, &receive, FI_COMPLETION), 0);
    assert_int_equal(fi_sendmsg(pair.a.ep, &message, FI_COMPLETION | FI_INJECT), 0);
    assert_ptr_equal(next_entry(pair.a.cq).op_context, &contexts[1]);
    assert_ptr_equal(next_entry(pair.b.cq).op_context, &contexts[0]);
}

void delivery_complete_waits_for_the_receiver(void **)
{
    Pair pair;
    char in[8];
    iovec from{const_cast<char *>("1"), 2};
    fi_msg message{};
    message.msg_iov = &from;
    message.iov_count = 1;
    message.context = &contexts[1];
    assert_int_equal(fi_sendmsg(pair.a.ep, &message, FI_DELIVERY_COMPLETE), 0);
    // Strict order: what comes later completes later, even if it needs no answer.
    assert_int_equal(fi_send(pair.a.ep, "2", 2, nullptr, 0, &contexts[2]), 0);
    assert_true(no_entry(pair.a.cq) && no_entry(pair.b.cq));
    assert_int_equal(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr), 0);
    (void)next_entry(pair.b.cq);
    assert_ptr_equal(next_entry(pair.a.cq).op_context, &contexts[1]);
    assert_ptr_equal(next_entry(pair.a.cq).op_context, &contexts[2]);
}

void full_slots_push_back(void **)
{
    Pair pair;
    unsigned sent = 0;
    while (fi_inject(pair.a.ep, &sent, sizeof sent, 0) == 0)
        ++sent;
    assert_int_equal(sent, vma::local::kSlotCount);
    assert_int_equal(pair.a.ep->ops->tx_size_left(pair.a.ep), 0);
    assert_int_equal(fi_inject(pair.a.ep, &sent, sizeof sent, 0), -FI_EAGAIN);
    // Sends that may wait do so.
    unsigned more = 1000;
    assert_int_equal(fi_send(pair.a.ep, &more, sizeof more, nullptr, 0, &contexts[0]), 0);
    assert_int_equal(fi_inject(pair.a.ep, &sent, sizeof sent, 0), -FI_EAGAIN);
    for (unsigned i = 0; i < sent; ++i) {
        unsigned in = ~0U;
        assert_int_equal(fi_recv(pair.b.ep, &in, sizeof in, nullptr, 0, nullptr), 0);
        (void)next_entry(pair.b.cq);
        assert_int_equal(in, i);
    }
    assert_ptr_equal(next_entry(pair.a.cq).op_context, &contexts[0]);
    unsigned in = 0;
    assert_int_equal(fi_recv(pair.b.ep, &in, sizeof in, nullptr, 0, nullptr), 0);
    (void)next_entry(pair.b.cq);
    assert_int_equal(in, 1000);
    assert_int_equal(pair.a.ep->ops->tx_size_left(pair.a.ep), vma::local::kSlotCount);
}

void queues_have_the_size_asked_for(void **)
{
    Setup setup;
    setup.tx_size = 4;
    setup.rx_size = 3;
    Pair pair(setup);
    static char buffer[65536];
    for (int i = 0; i < 4; ++i) // pulled by the receiver, so they stay
        assert_int_equal(fi_send(pair.a.ep, buffer, sizeof buffer, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_send(pair.a.ep, buffer, sizeof buffer, nullptr, 0, nullptr), -FI_EAGAIN);
    for (int i = 0; i < 3; ++i)
        assert_int_equal(fi_recv(pair.a.ep, buffer, 1, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_recv(pair.a.ep, buffer, 1, nullptr, 0, nullptr), -FI_EAGAIN);
    assert_int_equal(fi_inject(pair.a.ep, buffer, 4097, 0), -FI_EINVAL);
}

void a_full_completion_queue_pushes_back(void **)
{
    Setup setup;
    setup.cq_size = 2;
    Pair pair(setup);
    int in[6];
    for (int i = 0; i < 6; ++i)
        assert_int_equal(fi_recv(pair.b.ep, &in[i], sizeof in[i], nullptr, 0, &in[i]), 0);
    for (int i = 0; i < 6; ++i)
        assert_int_equal(fi_inject(pair.a.ep, &i, sizeof i, 0), 0);
    assert_int_equal(fi_cq_read(pair.b.cq, nullptr, 0), 0); // progress only
    for (int i = 0; i < 6; ++i) {
        assert_ptr_equal(next_entry(pair.b.cq).op_context, &in[i]);
        assert_int_equal(in[i], i);
    }
    assert_true(no_entry(pair.b.cq));
}

void cancelled_receives(void **)
{
    Pair pair;
    char in[8];
    assert_int_equal(fi_recv(pair.b.ep, in, 8, nullptr, 0, &contexts[0]), 0);
    assert_int_equal(fi_recv(pair.b.ep, in, 8, nullptr, 0, &contexts[1]), 0);
    assert_int_equal(fi_cancel(&pair.b.ep->fid, &contexts[0]), 0);
    assert_int_equal(fi_cancel(&pair.b.ep->fid, &contexts[5]), -FI_ENOENT);
    const fi_cq_err_entry error = next_error(pair.b.cq);
    assert_int_equal(error.err, FI_ECANCELED);
    assert_ptr_equal(error.op_context, &contexts[0]);
    assert_int_equal(fi_inject(pair.a.ep, "x", 2, 0), 0);
    assert_ptr_equal(next_entry(pair.b.cq).op_context, &contexts[1]);
}

void shared_receive_context(void **)
{
    Setup setup;
    setup.shared_receive = true;
    Pair pair(setup);
    int in[2] = {};
    assert_int_equal(fi_inject(pair.a.ep, "12", 3, 0), 0);
    assert_true(no_entry(pair.b.cq));
    assert_int_equal(fi_recv(pair.b.ep, in, 4, nullptr, 0, nullptr), -FI_EINVAL);
    assert_int_equal(fi_recv(pair.b.srx, &in[0], 4, nullptr, 0, &in[0]), 0);
    assert_int_equal(fi_recv(pair.b.srx, &in[1], 4, nullptr, 0, &in[1]), 0);
    assert_ptr_equal(next_entry(pair.b.cq).op_context, &in[0]);
    assert_int_equal(fi_inject(pair.a.ep, "34", 3, 0), 0);
    assert_ptr_equal(next_entry(pair.b.cq).op_context, &in[1]);
}

void calls_before_connecting(void **)
{
    Side side{Setup{}};
    char buffer[8] = {};
    assert_int_equal(fi_recv(side.ep, buffer, 8, nullptr, 0, nullptr), -FI_EOPBADSTATE);
    assert_int_equal(fi_send(side.ep, buffer, 8, nullptr, 0, nullptr), -FI_ENOTCONN);
    assert_int_equal(fi_enable(side.ep), 0);
    assert_int_equal(fi_recv(side.ep, buffer, 8, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_send(side.ep, buffer, 8, nullptr, 0, nullptr), -FI_ENOTCONN);
    assert_int_equal(fi_inject(side.ep, buffer, 8, 0), -FI_ENOTCONN);
}

void two_queues(void **)
{
    Setup setup;
    setup.two_queues = true;
    Pair pair(setup);
    std::vector<char> out(100000, 'q');
    std::vector<char> in(100000);
    assert_int_equal(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &contexts[0]), 0);
    assert_int_equal(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &contexts[1]), 0);
    assert_ptr_equal(next_entry(pair.b.cq).op_context, &contexts[0]);
    assert_true(no_entry(pair.a.cq));
    assert_ptr_equal(next_entry(pair.a.tx_cq).op_context, &contexts[1]);
    assert_true(in == out);
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(small_message_arrives),
        cmocka_unit_test(data_comes_with_the_message),
        cmocka_unit_test(all_sizes_by_one_copy),
        cmocka_unit_test(all_sizes_by_the_bounce_ring),
        cmocka_unit_test(lists_of_buffers),
        cmocka_unit_test(unexpected_messages_wait),
        cmocka_unit_test(truncation_is_an_error_with_olen),
        cmocka_unit_test(selective_completion),
        cmocka_unit_test(delivery_complete_waits_for_the_receiver),
        cmocka_unit_test(full_slots_push_back),
        cmocka_unit_test(queues_have_the_size_asked_for),
        cmocka_unit_test(a_full_completion_queue_pushes_back),
        cmocka_unit_test(cancelled_receives),
        cmocka_unit_test(shared_receive_context),
        cmocka_unit_test(calls_before_connecting),
        cmocka_unit_test(two_queues),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
