// SPDX-License-Identifier: BSD-2-Clause
// More completion queues in a fabric than the kernel lets one descriptor wake by way of another set (500), each in use,
// and all of them in one epoll set of the program's.
#include "prov/vma/test/rdm/pair.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>

using namespace vma;
using namespace vma::test;

namespace {

constexpr int kWaitMs = 60000;
constexpr std::size_t kMany = 600;
constexpr std::size_t kEach = 6; // descriptors of one, and a little more

// As many as there may be descriptors for.
std::size_t count_to_open()
{
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max<rlim_t>(limit.rlim_cur, kMany * kEach * 2));
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return std::min<std::size_t>(kMany, limit.rlim_cur / kEach);
}

struct One {
    fid_cq *cq = nullptr;
    fid_ep *ep = nullptr;
    int fd = -1; // its wait object
};

// Endpoints of the domain of `home`, each with a queue of its own.
One open_one(const Rdm &home)
{
    One one;
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 16;
    attr.wait_obj = FI_WAIT_FD;
    REQUIRE(fi_cq_open(home.domain, &attr, &one.cq, nullptr) == 0);
    REQUIRE(fi_control(&one.cq->fid, FI_GETWAIT, &one.fd) == 0);
    REQUIRE(fi_endpoint(home.domain, home.info.get(), &one.ep, nullptr) == 0);
    REQUIRE(fi_ep_bind(one.ep, &one.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
    REQUIRE(fi_ep_bind(one.ep, &home.av->fid, 0) == 0);
    REQUIRE(fi_enable(one.ep) == 0);
    return one;
}

sockaddr_in name_of(fid_ep *ep)
{
    sockaddr_in name{};
    std::size_t length = sizeof name;
    REQUIRE(fi_getname(&ep->fid, &name, &length) == 0 && length == sizeof name);
    return name;
}

bool may_sleep(const Rdm &home, const One &one)
{
    fid *waits[] = {&one.cq->fid};
    return fi_trywait(home.fabric, waits, 1) == 0;
}

void read_until_quiet(const Rdm &home, const One &one)
{
    pollfd wait{one.fd, POLLIN, 0};
    while (!may_sleep(home, one) || ::poll(&wait, 1, 0) != 0)
        REQUIRE(fi_cq_read(one.cq, nullptr, 0) <= 0);
}

// The first that it hears of its sender wakes who sleeps on it.
void takes_from_a_new_sender(int set, const Rdm &home, One &one)
{
    char in[8] = {};
    REQUIRE(fi_recv(one.ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, &one) == 0);
    read_until_quiet(home, one);
    {
        Rdm sender;
        REQUIRE(fi_inject(sender.ep, "new", 3, sender.insert(name_of(one.ep))) == 0);
        for (Entry entry; !read_entry(one.cq, entry);) {
            if (!may_sleep(home, one))
                continue;
            // A new fabric tries all names of the directory, so others are woken too: for what anybody sees to.
            epoll_event event{};
            do {
                REQUIRE(::epoll_wait(set, &event, 1, kWaitMs) == 1);
                static_cast<void>(may_sleep(home, *static_cast<One *>(event.data.ptr)));
            } while (event.data.ptr != &one);
        }
    }
    read_until_quiet(home, one); // also of its end
    assert_memory_equal(in, "new", 3);
}

void all_of_them_are_woken(void **)
{
    const std::size_t count = count_to_open();
    OwnDirectory directory;
    Rdm home;
    std::vector<One> all(count);
    const int set = ::epoll_create1(EPOLL_CLOEXEC);
    REQUIRE(set >= 0);
    for (One &one : all) {
        one = open_one(home);
        epoll_event interest{};
        interest.events = EPOLLIN;
        interest.data.ptr = &one;
        REQUIRE(::epoll_ctl(set, EPOLL_CTL_ADD, one.fd, &interest) == 0);
    }
    for (One *one : {&all.front(), &all[count / 2], &all.back()})
        takes_from_a_new_sender(set, home, *one);
    REQUIRE(::close(set) == 0);
    for (const One &one : all) {
        REQUIRE(fi_close(&one.ep->fid) == 0);
        REQUIRE(fi_close(&one.cq->fid) == 0);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(all_of_them_are_woken)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
