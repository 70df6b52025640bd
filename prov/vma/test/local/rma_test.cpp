// SPDX-License-Identifier: BSD-2-Clause
// Registrations, and reads and writes of registered memory: by single copy, through slots and the bounce ring.
#include "fabtests/unit.hpp"

#include "fabtests/patience.hpp"
#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;

struct Registered {
    std::vector<unsigned char> memory;
    fid_mr *mr = nullptr;

    Registered(Side &side, std::size_t bytes, std::uint64_t key,
               std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE)
        : memory(bytes)
    {
        REQUIRE(fi_mr_reg(side.domain, memory.data(), bytes, access, 0, key, 0, &mr, nullptr) == 0);
    }
    ~Registered()
    {
        if (mr)
            REQUIRE(fi_close(&mr->fid) == 0);
    }
    Registered(const Registered &) = delete;
    Registered &operator=(const Registered &) = delete;
};

const int kLong = patience::milliseconds();

// The completion of an operation of `from`, with `target` making progress.
fi_cq_err_entry finish(Side &from, Side &target)
{
    fi_cq_err_entry error{};
    for (int i = 0; i < 10'000'000; ++i) {
        fi_cq_data_entry entry{};
        (void)fi_cq_read(target.cq, &entry, 0);
        const ssize_t got = fi_cq_read(from.cq, &entry, 1);
        if (got == 1) {
            error.op_context = entry.op_context;
            error.flags = entry.flags;
            return error;
        }
        if (got == -FI_EAVAIL) {
            REQUIRE(fi_cq_readerr(from.cq, &error, 0) == 1);
            return error;
        }
    }
    const bool completed = false;
    REQUIRE(completed);
    return error;
}

void registration(void **)
{
    Side side{Setup{}};
    fid_domain *domain = side.domain;
    char memory[64];
    fid_mr *mr = nullptr;
    fid_mr *other = nullptr;
    assert_int_equal(fi_mr_reg(domain, memory, 64, FI_REMOTE_READ, 0, 0x80000001, 0, &mr, memory), 0);
    assert_true(fi_mr_key(mr) == 0x80000001);
    assert_ptr_equal(mr->fid.context, memory);
    assert_non_null(fi_mr_desc(mr));
    assert_int_equal(fi_mr_reg(domain, memory, 64, 0, 0, 0x80000001, 0, &other, nullptr), -FI_ENOKEY);
    assert_int_equal(fi_mr_reg(domain, memory, 64, 0, 0, FI_VMA_REGION_KEY, 0, &other, nullptr), -FI_ENOKEY);
    assert_int_equal(fi_mr_reg(domain, memory, 64, UINT64_C(1) << 62, 0, 1, 0, &other, nullptr), -FI_EINVAL);
    // Bits that only libfabric's core knows are none of our business.
    assert_int_equal(fi_mr_reg(domain, memory, 64, 0, 0, UINT64_MAX - 5, UINT64_C(1) << 60, &other, nullptr), 0);
    assert_int_equal(fi_close(&other->fid), 0);
    iovec five[5] = {};
    assert_int_equal(fi_mr_regv(domain, five, 5, 0, 0, 1, 0, &other, nullptr), -FI_EINVAL);
    // A buffer of FI_MR_DMABUF (libfabric 2.0) is no vector, whatever the address looks like.
    assert_int_equal(fi_mr_reg(domain, memory, 64, 0, 0, 1, UINT64_C(1) << 40, &other, nullptr), -FI_EOPNOTSUPP);
    assert_int_equal(fi_mr_refresh(mr, five, 1, 0), 0);
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_mr_reg(domain, memory, 64, 0, 0, 0x80000001, 0, &mr, nullptr), 0); // the key is free again
    assert_int_equal(fi_close(&mr->fid), 0);
    vma::ofi::domain_of(side.domain).prov_key = true;
    assert_int_equal(fi_mr_reg(domain, memory, 64, 0, 0, 7, 0, &mr, nullptr), 0);
    assert_int_equal(fi_mr_reg(domain, memory, 64, 0, 0, 7, 0, &other, nullptr), 0);
    assert_true(fi_mr_key(mr) != fi_mr_key(other));
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_close(&other->fid), 0);
}

void all_sizes(bool cma)
{
    Setup setup;
    setup.cma = cma;
    Pair pair(setup);
    Random random;
    constexpr std::size_t kBytes = 1'000'000;
    Registered target(pair.b, kBytes, 5);
    std::vector<unsigned char> model(kBytes);
    std::vector<unsigned char> buffer(kBytes);
    const std::size_t sizes[] = {0, 1, 95, 96, 97, 104, 105, 4095, 4096, 4097, 16384, 16385, 65536, 70000, kBytes};
    for (int round = 0; round < 120; ++round) {
        const std::size_t length = round < 15 ? sizes[round] : random.below(random.below(3) ? 5000 : kBytes);
        const std::size_t offset = random.below(kBytes - length + 1);
        if (round % 3 != 2) {
            random.fill(buffer.data(), length);
            std::memcpy(model.data() + offset, buffer.data(), length);
            assert_int_equal(fi_write(pair.a.ep, buffer.data(), length, nullptr, 0, offset, 5, &target), 0);
            const fi_cq_err_entry done = finish(pair.a, pair.b);
            assert_int_equal(done.err, 0);
            assert_int_equal(done.flags, FI_RMA | FI_WRITE);
            (void)no_entry(pair.b.cq);
            assert_true(target.memory == model);
        } else {
            assert_int_equal(fi_read(pair.a.ep, buffer.data(), length, nullptr, 0, offset, 5, &target), 0);
            const fi_cq_err_entry done = finish(pair.a, pair.b);
            assert_int_equal(done.err, 0);
            assert_int_equal(done.flags, FI_RMA | FI_READ);
            assert_memory_equal(buffer.data(), model.data() + offset, length);
        }
    }
}

void all_sizes_by_one_copy(void **)
{
    all_sizes(true);
}

void all_sizes_by_the_bounce_ring(void **)
{
    all_sizes(false);
}

void lists_on_both_sides(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup;
        setup.cma = cma;
        Pair pair(setup);
        Random random;
        Registered low(pair.b, 50'000, 1);
        Registered high(pair.b, 50'000, 2);
        for (int round = 0; round < 100; ++round) {
            const std::size_t half = random.below(round % 2 ? 100 : 40'000);
            std::vector<unsigned char> bytes(2 * half + 1);
            random.fill(bytes.data(), bytes.size());
            const std::size_t cut = random.below(2 * half + 1);
            iovec iov[2] = {{bytes.data(), cut}, {bytes.data() + cut, 2 * half - cut}};
            fi_rma_iov rma[3] = {{100, half, 1}, {0, 0, 99}, {200, half, 2}};
            fi_msg_rma message{};
            message.msg_iov = iov;
            message.iov_count = 2;
            message.rma_iov = rma;
            message.rma_iov_count = 3;
            assert_int_equal(fi_writemsg(pair.a.ep, &message, FI_DELIVERY_COMPLETE), 0);
            assert_int_equal(finish(pair.a, pair.b).err, 0);
            assert_memory_equal(low.memory.data() + 100, bytes.data(), half);
            assert_memory_equal(high.memory.data() + 200, bytes.data() + half, half);
            std::vector<unsigned char> back(bytes.size());
            iov[0].iov_base = back.data();
            iov[1].iov_base = back.data() + cut;
            assert_int_equal(fi_readmsg(pair.a.ep, &message, 0), 0);
            assert_int_equal(finish(pair.a, pair.b).err, 0);
            assert_memory_equal(back.data(), bytes.data(), 2 * half);
        }
    }
}

void data_with_a_write(void **)
{
    for (const bool cma : {true, false}) {
        for (const std::size_t length : {std::size_t{0}, std::size_t{8}, std::size_t{3000}, std::size_t{200'000}}) {
            Setup setup;
            setup.cma = cma;
            Pair pair(setup);
            Registered target(pair.b, 200'000, 3);
            std::vector<unsigned char> bytes(length, 0xab);
            assert_int_equal(fi_writedata(pair.a.ep, bytes.data(), length, nullptr, 0xfeedfacecafe, 0, 0, 3, nullptr),
                             0);
            fi_cq_data_entry entry{};
            for (int i = 0; i < 1'000'000 && fi_cq_read(pair.b.cq, &entry, 1) != 1; ++i)
                (void)fi_cq_read(pair.a.cq, nullptr, 0);
            assert_int_equal(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
            assert_true(entry.data == 0xfeedfacecafe);
            assert_int_equal(entry.len, length);
            assert_true(length == 0 || target.memory[length - 1] == 0xab);
            (void)next_entry(pair.a.cq);
        }
    }
}

void errors_come_as_entries(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup;
        setup.cma = cma;
        Pair pair(setup);
        Registered readable(pair.b, 100, 1, FI_REMOTE_READ);
        Registered writable(pair.b, 100, 2, FI_REMOTE_WRITE);
        char buffer[200] = {};
        const auto write_error = [&](std::size_t length, std::uint64_t offset, std::uint64_t key) {
            assert_int_equal(fi_write(pair.a.ep, buffer, length, nullptr, 0, offset, key, &pair), 0);
            const fi_cq_err_entry error = finish(pair.a, pair.b);
            assert_ptr_equal(error.op_context, &pair);
            return error.err;
        };
        assert_int_equal(write_error(10, 0, 77), FI_ENOKEY);
        assert_int_equal(write_error(10, 0, 1), FI_EACCES);
        assert_int_equal(write_error(10, 91, 2), FI_EINVAL);
        assert_int_equal(write_error(101, 0, 2), FI_EINVAL);
        assert_int_equal(write_error(10, UINT64_MAX, 2), FI_EINVAL);
        assert_int_equal(write_error(100, 0, 2), 0);
        assert_int_equal(fi_read(pair.a.ep, buffer, 10, nullptr, 0, 0, 2, nullptr), 0);
        assert_int_equal(finish(pair.a, pair.b).err, FI_EACCES);
        // The connection goes on.
        assert_int_equal(fi_read(pair.a.ep, buffer, 10, nullptr, 0, 0, 1, nullptr), 0);
        assert_int_equal(finish(pair.a, pair.b).err, 0);
    }
}

void a_closed_registration_is_out_of_reach(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup;
        setup.cma = cma;
        Pair pair(setup);
        char buffer[100] = {};
        {
            Registered target(pair.b, 100, 9);
            assert_int_equal(fi_read(pair.a.ep, buffer, 100, nullptr, 0, 0, 9, nullptr), 0);
            assert_int_equal(finish(pair.a, pair.b).err, 0);
        }
        assert_int_equal(fi_read(pair.a.ep, buffer, 100, nullptr, 0, 0, 9, nullptr), 0);
        assert_int_equal(finish(pair.a, pair.b).err, FI_ENOKEY);
        // The same key for other memory.
        Registered fresh(pair.b, 50, 9);
        fresh.memory[49] = 42;
        assert_int_equal(fi_read(pair.a.ep, buffer, 50, nullptr, 0, 0, 9, nullptr), 0);
        assert_int_equal(finish(pair.a, pair.b).err, 0);
        assert_int_equal(buffer[49], 42);
        assert_int_equal(fi_read(pair.a.ep, buffer, 51, nullptr, 0, 0, 9, nullptr), 0);
        assert_int_equal(finish(pair.a, pair.b).err, FI_EINVAL);
    }
}

void injected_writes(void **)
{
    Pair pair;
    Registered target(pair.b, 5000, 4);
    char buffer[4096];
    for (const std::size_t length : {std::size_t{1}, std::size_t{96}, std::size_t{97}, std::size_t{4096}}) {
        std::memset(buffer, static_cast<int>(length & 0x7f), sizeof buffer);
        ssize_t result;
        for (int i = 0; (result = fi_inject_write(pair.a.ep, buffer, length, 0, 10, 4)) == -FI_EAGAIN; ++i) {
            assert_true(i < 1000);
            (void)fi_cq_read(pair.b.cq, nullptr, 0);
            (void)fi_cq_read(pair.a.cq, nullptr, 0);
        }
        assert_int_equal(result, 0);
        std::memset(buffer, 0, sizeof buffer);
        assert_true(no_entry(pair.b.cq) && no_entry(pair.a.cq));
        assert_int_equal(target.memory[10 + length - 1], length & 0x7f);
    }
    assert_int_equal(fi_inject_write(pair.a.ep, buffer, 4097, 0, 0, 4), -FI_EINVAL);
}

void virtual_addresses(void **)
{
    Side a{Setup{}};
    Setup setup;
    setup.mr_mode = FI_MR_VIRT_ADDR;
    Side b(setup);
    assert_int_equal(fi_enable(a.ep), 0);
    assert_int_equal(fi_enable(b.ep), 0);
    join(a.endpoint(), b.endpoint(), true);
    Registered target(b, 100'000, 8);
    const auto base = reinterpret_cast<std::uintptr_t>(target.memory.data());
    std::vector<char> bytes(60'000, 'v');
    assert_int_equal(fi_write(a.ep, bytes.data(), bytes.size(), nullptr, 0, base + 100, 8, nullptr), 0);
    assert_int_equal(finish(a, b).err, 0);
    assert_int_equal(fi_write(a.ep, "w", 1, nullptr, 0, base, 8, nullptr), 0);
    assert_int_equal(finish(a, b).err, 0);
    (void)no_entry(b.cq);
    assert_int_equal(target.memory[0], 'w');
    assert_int_equal(target.memory[60'099], 'v');
    assert_int_equal(fi_write(a.ep, "w", 1, nullptr, 0, 0, 8, nullptr), 0);
    assert_int_equal(finish(a, b).err, FI_EINVAL);
}

// Writes, sends and reads in one stream keep their order, whatever way each of them goes.
void order_is_kept(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup;
        setup.cma = cma;
        Pair pair(setup);
        Random random;
        Registered target(pair.b, 100'000, 6);
        std::vector<std::vector<unsigned char>> sources;
        std::vector<unsigned char> messages(300);
        std::size_t outstanding = 0;
        std::uint64_t got = 0;
        sources.reserve(200);
        for (int round = 0; round < 200; ++round)
            sources.emplace_back(random.below(round % 4 ? 2000 : 100'000) + 1, static_cast<unsigned char>(round + 1));
        for (unsigned char &message : messages)
            assert_int_equal(fi_recv(pair.b.ep, &message, 1, nullptr, 0, nullptr) == 0 || &message >= &messages[256],
                             1);
        const auto poll = [&] {
            fi_cq_data_entry entry{};
            if (fi_cq_read(pair.a.cq, &entry, 1) == 1)
                --outstanding;
            if (fi_cq_read(pair.b.cq, &entry, 1) == 1) {
                // When the message of a round is here, so is its write.
                assert_int_equal(messages[got], static_cast<unsigned char>(got + 1));
                const unsigned char there = target.memory[0];
                assert_true(there >= static_cast<unsigned char>(got + 1) || got + 1 > 255);
                ++got;
            }
        };
        for (std::size_t round = 0; round < 200; ++round) {
            while (fi_write(pair.a.ep, sources[round].data(), sources[round].size(), nullptr, 0, 0, 6, nullptr))
                poll();
            ++outstanding;
            const auto tag = static_cast<unsigned char>(round + 1);
            while (fi_inject(pair.a.ep, &tag, 1, 0))
                poll();
            if (random.below(3) == 0)
                poll();
        }
        for (int i = 0; i < 1'000'000 && (outstanding || got < 200); ++i)
            poll();
        assert_int_equal(outstanding, 0);
        assert_int_equal(got, 200);
        assert_int_equal(target.memory[0], 200);
    }
}

void counters_of_both_sides(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup;
        setup.cma = cma;
        Side a(setup);
        Side b(setup);
        fid_cntr *counters[4];
        for (int i = 0; i < 4; ++i) {
            fi_cntr_attr attr{};
            assert_int_equal(fi_cntr_open(i < 2 ? a.domain : b.domain, &attr, &counters[i], nullptr), 0);
        }
        assert_int_equal(fi_ep_bind(a.ep, &counters[0]->fid, FI_SEND | FI_WRITE), 0);
        assert_int_equal(fi_ep_bind(a.ep, &counters[1]->fid, FI_READ), 0);
        assert_int_equal(fi_ep_bind(b.ep, &counters[2]->fid, FI_REMOTE_WRITE | FI_REMOTE_READ), 0);
        assert_int_equal(fi_ep_bind(b.ep, &counters[3]->fid, FI_RECV), 0);
        assert_int_equal(fi_enable(a.ep), 0);
        assert_int_equal(fi_enable(b.ep), 0);
        join(a.endpoint(), b.endpoint(), cma);
        Registered target(b, 100'000, 1);
        std::vector<char> bytes(100'000);
        char in[8];
        assert_int_equal(fi_recv(b.ep, in, 8, nullptr, 0, nullptr), 0);
        assert_int_equal(fi_write(a.ep, bytes.data(), bytes.size(), nullptr, 0, 0, 1, nullptr), 0);
        assert_int_equal(fi_write(a.ep, bytes.data(), 10, nullptr, 0, 0, 1, nullptr), 0);
        assert_int_equal(fi_read(a.ep, bytes.data(), bytes.size(), nullptr, 0, 0, 1, nullptr), 0);
        assert_int_equal(fi_send(a.ep, "x", 1, nullptr, 0, nullptr), 0);
        assert_int_equal(fi_write(a.ep, bytes.data(), 10, nullptr, 0, 0, 99, nullptr), 0); // no such key
        for (int i = 0; i < 100'000 && (fi_cntr_read(counters[2]) < 3 || !fi_cntr_readerr(counters[0])); ++i)
            (void)fi_cntr_read(counters[0]);
        assert_int_equal(fi_cntr_wait(counters[3], 1, 1000), 0);
        assert_int_equal(fi_cntr_read(counters[0]), 3);
        assert_int_equal(fi_cntr_readerr(counters[0]), 1);
        assert_int_equal(fi_cntr_read(counters[1]), 1);
        assert_int_equal(fi_cntr_read(counters[2]), 3);
        assert_int_equal(fi_cntr_wait(counters[3], 2, 20), -FI_ETIMEDOUT);
        assert_int_equal(fi_close(&counters[3]->fid), -FI_EBUSY);
        assert_int_equal(fi_close(&a.ep->fid), 0);
        assert_int_equal(fi_close(&b.ep->fid), 0);
        a.ep = b.ep = nullptr;
        for (fid_cntr *counter : counters)
            assert_int_equal(fi_close(&counter->fid), 0);
    }
}

// fi_mr_bind(): of each registration, whatever way its accesses take, and also where the counter comes after a peer has
// been told of it.
void counters_of_registrations(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup;
        setup.cma = cma;
        Pair pair(setup);
        Registered counted(pair.b, 100'000, 1);
        Registered other(pair.b, 100'000, 2);
        std::vector<char> bytes(100'000);
        assert_int_equal(fi_read(pair.a.ep, bytes.data(), bytes.size(), nullptr, 0, 0, 1, nullptr), 0);
        (void)finish(pair.a, pair.b); // granted
        fi_cntr_attr attr{};
        fid_cntr *writes = nullptr;
        fid_cntr *reads = nullptr;
        fid_cntr *elsewhere = nullptr;
        assert_int_equal(fi_cntr_open(pair.b.domain, &attr, &writes, nullptr), 0);
        assert_int_equal(fi_cntr_open(pair.b.domain, &attr, &reads, nullptr), 0);
        assert_int_equal(fi_cntr_open(pair.a.domain, &attr, &elsewhere, nullptr), 0);
        assert_int_equal(fi_mr_bind(counted.mr, &writes->fid, 0), -FI_EBADFLAGS);
        assert_int_equal(fi_mr_bind(counted.mr, &writes->fid, FI_WRITE), -FI_EBADFLAGS);
        assert_int_equal(fi_mr_bind(counted.mr, &pair.b.cq->fid, FI_REMOTE_WRITE), -FI_EINVAL);
        assert_int_equal(fi_mr_bind(counted.mr, &elsewhere->fid, FI_REMOTE_WRITE), -FI_EINVAL);
        assert_int_equal(fi_mr_bind(counted.mr, &writes->fid, FI_REMOTE_WRITE), 0);
        assert_int_equal(fi_mr_bind(counted.mr, &reads->fid, FI_REMOTE_WRITE), -FI_EINVAL);
        assert_int_equal(fi_mr_bind(counted.mr, &reads->fid, FI_REMOTE_READ), 0);
        for (const std::size_t length : {std::size_t{10}, std::size_t{3000}, bytes.size()}) {
            assert_int_equal(fi_write(pair.a.ep, bytes.data(), length, nullptr, 0, 0, 1, nullptr), 0);
            (void)finish(pair.a, pair.b);
            assert_int_equal(fi_write(pair.a.ep, bytes.data(), length, nullptr, 0, 0, 2, nullptr), 0);
            (void)finish(pair.a, pair.b);
            assert_int_equal(fi_read(pair.a.ep, bytes.data(), length, nullptr, 0, 0, 1, nullptr), 0);
            (void)finish(pair.a, pair.b);
        }
        assert_int_equal(fi_cntr_wait(writes, 3, kLong), 0);
        assert_int_equal(fi_cntr_wait(reads, 3, kLong), 0);
        assert_true(no_entry(pair.b.cq));
        assert_int_equal(fi_cntr_read(writes), 3);
        assert_int_equal(fi_cntr_read(reads), 3);
        assert_int_equal(fi_close(&writes->fid), -FI_EBUSY);
        assert_int_equal(fi_close(&counted.mr->fid), 0);
        counted.mr = nullptr;
        for (fid_cntr *counter : {writes, reads, elsewhere})
            assert_int_equal(fi_close(&counter->fid), 0);
    }
}

// fi_cq(3): a write's data consume nothing that was posted, so there is no context. ofi_rxm takes one for a buffer of
// its own.
void written_data_have_no_context(void **)
{
    for (const bool cma : {true, false}) {
        Setup setup;
        setup.cma = cma;
        Pair pair(setup);
        Registered target(pair.b, 100'000, 1);
        std::vector<char> bytes(100'000);
        std::uint64_t data = 0;
        for (const std::size_t length : {std::size_t{0}, std::size_t{10}, std::size_t{3000}, bytes.size()}) {
            assert_int_equal(fi_writedata(pair.a.ep, bytes.data(), length, nullptr, ++data, 0, 0, 1, nullptr), 0);
            (void)finish(pair.a, pair.b);
            const fi_cq_data_entry entry = next_entry(pair.b.cq);
            assert_null(entry.op_context);
            assert_int_equal(entry.data, data);
            assert_true((entry.flags & FI_REMOTE_CQ_DATA) != 0);
        }
    }
}

void fences_and_zero_length_operations(void **)
{
    Pair pair;
    Registered target(pair.b, 100, 1);
    char buffer[8] = "fence";
    iovec iov{buffer, 8};
    fi_rma_iov rma{0, 8, 1};
    fi_msg_rma message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.rma_iov = &rma;
    message.rma_iov_count = 1;
    assert_int_equal(fi_writemsg(pair.a.ep, &message, FI_FENCE), 0);
    assert_int_equal(fi_writemsg(pair.a.ep, &message, FI_FENCE), 0);
    assert_int_equal(finish(pair.a, pair.b).err, 0);
    assert_int_equal(finish(pair.a, pair.b).err, 0);
    rma.len = 7;
    assert_int_equal(fi_writemsg(pair.a.ep, &message, 0), -FI_EINVAL); // lengths differ
    assert_int_equal(fi_read(pair.a.ep, buffer, 0, nullptr, 0, 0, 1, nullptr), 0);
    assert_int_equal(finish(pair.a, pair.b).err, 0);
    assert_int_equal(fi_write(pair.a.ep, buffer, 0, nullptr, 0, 100, 1, nullptr), 0);
    assert_int_equal(finish(pair.a, pair.b).err, 0);
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(registration),
        cmocka_unit_test(all_sizes_by_one_copy),
        cmocka_unit_test(all_sizes_by_the_bounce_ring),
        cmocka_unit_test(lists_on_both_sides),
        cmocka_unit_test(data_with_a_write),
        cmocka_unit_test(errors_come_as_entries),
        cmocka_unit_test(a_closed_registration_is_out_of_reach),
        cmocka_unit_test(injected_writes),
        cmocka_unit_test(virtual_addresses),
        cmocka_unit_test(order_is_kept),
        cmocka_unit_test(counters_of_both_sides),
        cmocka_unit_test(counters_of_registrations),
        cmocka_unit_test(written_data_have_no_context),
        cmocka_unit_test(fences_and_zero_length_operations),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
