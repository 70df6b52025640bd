// SPDX-License-Identifier: BSD-2-Clause
// Completion queues: attributes, formats, error entries, and fi_cq_sread() by itself.
#include "fabtests/unit.hpp"

#include <chrono>
#include <thread>

#include "fabtests/patience.hpp"
#include "prov/vma/test/local/pair.hpp"

namespace {

using namespace vma::test;

const int kTooLong = patience::milliseconds();

void attributes(void **)
{
    Side side{Setup{}};
    fid_cq *cq = nullptr;
    fi_cq_attr attr{};
    attr.size = 262'144; // as ofi_rxm opens it
    attr.wait_obj = FI_WAIT_NONE;
    assert_int_equal(fi_cq_open(side.domain, &attr, &cq, side.cq), 0);
    assert_ptr_equal(cq->fid.context, side.cq);
    fi_wait_obj object = FI_WAIT_UNSPEC;
    assert_int_equal(fi_control(&cq->fid, FI_GETWAITOBJ, &object), 0);
    assert_int_equal(object, FI_WAIT_NONE);
    int fd;
    assert_int_equal(fi_control(&cq->fid, FI_GETWAIT, &fd), -FI_ENODATA);
    char text[64];
    assert_string_equal(fi_cq_strerror(cq, ESRCH, nullptr, text, sizeof text), "No such process");
    assert_string_equal(text, "No such process");
    fi_cq_err_entry error{};
    assert_int_equal(fi_cq_readerr(cq, &error, 0), -FI_EAGAIN);
    assert_int_equal(fi_close(&cq->fid), 0);
    attr.wait_obj = FI_WAIT_UNSPEC;
    assert_int_equal(fi_cq_open(side.domain, &attr, &cq, nullptr), 0);
    assert_int_equal(fi_control(&cq->fid, FI_GETWAITOBJ, &object), 0);
    assert_int_equal(object, FI_WAIT_FD);
    assert_int_equal(fi_close(&cq->fid), 0);
    attr.wait_obj = FI_WAIT_MUTEX_COND;
    assert_int_equal(fi_cq_open(side.domain, &attr, &cq, nullptr), -FI_ENOSYS);
    attr.wait_obj = FI_WAIT_NONE;
    attr.format = static_cast<fi_cq_format>(FI_CQ_FORMAT_TAGGED + 1);
    assert_int_equal(fi_cq_open(side.domain, &attr, &cq, nullptr), -FI_EINVAL);
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.flags = FI_VMA_TIMESTAMP; // there is no NIC
    assert_int_equal(fi_cq_open(side.domain, &attr, &cq, nullptr), -FI_EOPNOTSUPP);
    assert_int_equal(fi_enable(side.ep), 0);
    assert_int_equal(fi_close(&side.cq->fid), -FI_EBUSY);
}

template <typename Entry> void one_format(fi_cq_format format, bool region)
{
    Setup setup;
    setup.format = format;
    setup.region = 4096;
    Pair pair(setup);
    char in[8];
    Entry entries[3];
    std::memset(entries, 0xee, sizeof entries);
    if (region) {
        for (std::uint64_t i = 0; i < 2; ++i)
            assert_int_equal(fi_inject_writedata(pair.a.ep, "abc", 3, 7 + i, 0, 0, FI_VMA_REGION_KEY), 0);
    } else {
        for (int i = 0; i < 2; ++i) {
            assert_int_equal(fi_recv(pair.b.ep, in, 8, nullptr, 0, &pair.b), 0);
            assert_int_equal(fi_injectdata(pair.a.ep, "abc", 3, 7 + static_cast<unsigned>(i), 0), 0);
        }
    }
    assert_int_equal(fi_cq_read(pair.b.cq, entries, 3), 2);
    for (unsigned i = 0; i < 2; ++i) {
        assert_ptr_equal(entries[i].op_context, &pair.b);
        if constexpr (!std::is_same_v<Entry, fi_cq_entry>) {
            assert_int_equal(entries[i].len, 3);
            assert_true(entries[i].flags & FI_REMOTE_CQ_DATA);
            if constexpr (!std::is_same_v<Entry, fi_cq_msg_entry>)
                assert_true(entries[i].data == 7 + i);
            if constexpr (std::is_same_v<Entry, fi_cq_tagged_entry>)
                assert_true(entries[i].tag == 0);
        }
    }
    Entry untouched;
    std::memset(&untouched, 0xee, sizeof untouched);
    assert_memory_equal(&entries[2], &untouched, sizeof untouched);
    fi_addr_t source = 0;
    assert_int_equal(fi_inject_writedata(pair.a.ep, "", 0, 1, 0, 0, FI_VMA_REGION_KEY), 0);
    assert_int_equal(fi_cq_readfrom(pair.b.cq, entries, 1, &source), 1);
    assert_true(source == FI_ADDR_NOTAVAIL);
}

void formats(void **)
{
    for (const bool region : {false, true}) {
        one_format<fi_cq_entry>(FI_CQ_FORMAT_CONTEXT, region);
        one_format<fi_cq_msg_entry>(FI_CQ_FORMAT_MSG, region);
        one_format<fi_cq_data_entry>(FI_CQ_FORMAT_DATA, region);
        one_format<fi_cq_tagged_entry>(FI_CQ_FORMAT_TAGGED, region);
    }
}

void an_error_stands_in_its_place(void **)
{
    Pair pair;
    char in[4];
    for (int i = 0; i < 3; ++i)
        assert_int_equal(fi_recv(pair.b.ep, in, 4, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_inject(pair.a.ep, "1", 2, 0), 0);
    assert_int_equal(fi_inject(pair.a.ep, "too long", 9, 0), 0);
    assert_int_equal(fi_inject(pair.a.ep, "3", 2, 0), 0);
    fi_cq_data_entry entries[8];
    assert_int_equal(fi_cq_read(pair.b.cq, entries, 8), 1);
    assert_int_equal(fi_cq_read(pair.b.cq, entries, 8), -FI_EAVAIL);
    assert_int_equal(fi_cq_read(pair.b.cq, entries, 8), -FI_EAVAIL);
    fi_cq_err_entry error{};
    char data[8];
    error.err_data = data;
    error.err_data_size = sizeof data;
    assert_int_equal(fi_cq_readerr(pair.b.cq, &error, 0), 1);
    assert_int_equal(error.err_data_size, 0);
    assert_int_equal(fi_cq_read(pair.b.cq, entries, 8), 1);
}

void sread_times_out_and_is_signalled(void **)
{
    Side side{Setup{}};
    fi_cq_data_entry entry;
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    assert_int_equal(fi_cq_sread(side.cq, &entry, 1, nullptr, 50), -FI_EAGAIN);
    assert_true(Clock::now() - start >= std::chrono::milliseconds(50));
    assert_int_equal(fi_cq_sread(side.cq, &entry, 1, nullptr, 0), -FI_EAGAIN);
    assert_int_equal(fi_cq_signal(side.cq), 0); // before
    assert_int_equal(fi_cq_sread(side.cq, &entry, 1, nullptr, kTooLong), -FI_EAGAIN);
    assert_true(Clock::now() - start < std::chrono::milliseconds(kTooLong));
    std::thread other([&side] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        REQUIRE(fi_cq_signal(side.cq) == 0); // while it sleeps
    });
    assert_int_equal(fi_cq_sread(side.cq, &entry, 1, nullptr, -1), -FI_EAGAIN);
    other.join();
}

void sread_waits_for_a_threshold(void **)
{
    Side side{Setup{}};
    Side peer{Setup{}};
    fid_cq *cq = nullptr;
    fi_cq_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    attr.wait_cond = FI_CQ_COND_THRESHOLD;
    attr.format = FI_CQ_FORMAT_DATA;
    assert_int_equal(fi_cq_open(side.domain, &attr, &cq, nullptr), 0);
    fid_ep *ep = nullptr;
    assert_int_equal(fi_endpoint(side.domain, side.info.get(), &ep, nullptr), 0);
    assert_int_equal(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(fi_enable(ep), 0);
    assert_int_equal(fi_enable(peer.ep), 0);
    join(vma::local::Endpoint::from(ep), peer.endpoint(), true);
    std::thread other([&peer] {
        for (std::uint64_t i = 0; i < 5; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            REQUIRE(fi_inject_writedata(peer.ep, nullptr, 0, i, 0, 0, FI_VMA_REGION_KEY) == 0);
        }
    });
    fi_cq_data_entry entries[8];
    const std::size_t threshold = 5;
    assert_int_equal(fi_cq_sread(cq, entries, 8, &threshold, kTooLong), 5);
    other.join();
    assert_int_equal(fi_close(&ep->fid), 0);
    assert_int_equal(fi_close(&cq->fid), 0);
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(attributes),
        cmocka_unit_test(formats),
        cmocka_unit_test(an_error_stands_in_its_place),
        cmocka_unit_test(sread_times_out_and_is_signalled),
        cmocka_unit_test(sread_waits_for_a_threshold),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
