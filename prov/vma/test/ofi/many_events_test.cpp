// SPDX-License-Identifier: BSD-2-Clause
// More event queues with a wait object in a fabric than the kernel lets one descriptor wake by way of another set, 500,
// and than it lets it wake at all, 1000.
#include "prov/vma/test/fixture.hpp"

#include <algorithm>
#include <poll.h>
#include <sys/resource.h>
#include <thread>
#include <vector>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::size_t kMany = 2000;
constexpr std::size_t kOthers = 100; // descriptors of everything else

// As many as there may be descriptors for.
std::size_t count_to_open()
{
    rlimit limit{};
    assert_int_equal(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max<rlim_t>(limit.rlim_cur, 4 * (kMany + kOthers)));
    assert_int_equal(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    return std::min<std::size_t>(kMany, limit.rlim_cur / 2 - kOthers);
}

fid_eq *open_one(const Net &net, fi_wait_obj wait)
{
    fi_eq_attr attr{};
    attr.wait_obj = wait;
    attr.flags = FI_WRITE;
    fid_eq *eq = nullptr;
    assert_int_equal(fi_eq_open(net.fabric, &attr, &eq, nullptr), 0);
    return eq;
}

// A thread that sleeps for it hears of what the program writes, and of a request for a connection.
void tells_of_what_comes(Net &net, fid_eq *eq)
{
    const fi_eq_entry written{};
    assert_int_equal(fi_eq_write(eq, FI_NOTIFY, &written, sizeof written, 0), sizeof written);
    std::uint32_t event = 0;
    fi_eq_entry told{};
    assert_int_equal(fi_eq_sread(eq, &event, &told, sizeof told, kPatience, 0), sizeof told);
    assert_int_equal(event, FI_NOTIFY);

    ofi::Address address;
    fid_pep *const pep = net.listen(address, eq);
    Net other;
    fid_ep *const ep = other.endpoint();
    std::thread asks([&] { static_cast<void>(fi_connect(ep, &address.sa, nullptr, 0)); });
    fi_eq_cm_entry request{};
    const ssize_t length = fi_eq_sread(eq, &event, &request, sizeof request, kPatience, 0);
    asks.join();
    assert_int_equal(length, sizeof request);
    assert_int_equal(event, FI_CONNREQ);
    const ofi::InfoPtr info(request.info);
    assert_int_equal(fi_reject(pep, info->handle, nullptr, 0), 0);
    assert_int_equal(fi_close(&ep->fid), 0);
    assert_int_equal(fi_close(&pep->fid), 0);
}

void all_of_them_are_woken(void **)
{
    const std::size_t count = count_to_open();
    OwnDirectory directory;
    Net net;
    std::vector<fid_eq *> all;
    for (std::size_t i = 0; i < count; ++i)
        all.push_back(open_one(net, i % 2 == 0 ? FI_WAIT_UNSPEC : FI_WAIT_FD));
    for (fid_eq *eq : {all.front(), all[count / 2], all.back()})
        tells_of_what_comes(net, eq);
    // The last one's descriptor is as good as the first one's, whoever else is there.
    pollfd wait{-1, POLLIN, 0};
    assert_int_equal(fi_control(&all.back()->fid, FI_GETWAIT, &wait.fd), 0);
    std::uint32_t event = 0;
    while (::poll(&wait, 1, 0) != 0) // the ends of the others' links
        assert_int_equal(fi_eq_read(all.back(), &event, nullptr, 0, 0), -FI_EAGAIN);
    const fi_eq_entry written{};
    assert_int_equal(fi_eq_write(all.back(), FI_NOTIFY, &written, sizeof written, 0), sizeof written);
    assert_int_equal(::poll(&wait, 1, 0), 1);
    for (fid_eq *eq : all)
        assert_int_equal(fi_close(&eq->fid), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(all_of_them_are_woken)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
