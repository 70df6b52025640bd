// SPDX-License-Identifier: BSD-2-Clause
// A send is told of when its buffer has been read, not before: who reads the queue may write the buffer anew at once.
// The buffer can't be read at first, and what its first reader meets is a handler that looks into the queue.
#include "prov/vma/test/rdm/pair.hpp"

#include <csignal>
#include <sys/mman.h>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::size_t kPage = 65536;
constexpr std::size_t kLengths[] = {1, 8, 64, 96, 97, 1000, 8192, 8193, 60000};

// What the handler looks at, and what it has found; of one thread.
struct Watch {
    void *page;
    const local::Queue *queue;
    unsigned reads;
    bool told;
};
Watch g_watch;

void on_read(int, siginfo_t *info, void *)
{
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
    const auto page = reinterpret_cast<std::uintptr_t>(g_watch.page);
    if (at - page >= kPage)
        std::abort();
    ++g_watch.reads;
    g_watch.told |= !g_watch.queue->entries.empty();
    if (::mprotect(g_watch.page, kPage, PROT_READ) != 0)
        std::abort();
}

class Guarded
{
public:
    Guarded() : page_(::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
    {
        REQUIRE(page_ != MAP_FAILED);
        struct sigaction action = {};
        action.sa_sigaction = on_read;
        action.sa_flags = SA_SIGINFO;
        REQUIRE(::sigaction(SIGSEGV, &action, &before_) == 0);
    }
    ~Guarded()
    {
        REQUIRE(::sigaction(SIGSEGV, &before_, nullptr) == 0);
        REQUIRE(::munmap(page_, kPage) == 0);
    }
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;

    // `send(buffer)` is to end with a completion in `cq`.
    template <typename Send> void check(fid_cq *cq, Send &&send)
    {
        REQUIRE(::mprotect(page_, kPage, PROT_NONE) == 0);
        g_watch = {page_, &local::queue_of(cq), 0, false};
        REQUIRE(g_watch.queue->entries.empty());
        REQUIRE(send(page_) == 0);
        assert_int_equal(g_watch.reads, 1);
        assert_false(g_watch.told);
    }

private:
    void *page_;
    struct sigaction before_ = {};
};

void messages(void **)
{
    Guarded buffer;
    Pair pair({.cma = false});
    std::vector<std::byte> in(kPage);
    for (const std::size_t length : kLengths) {
        REQUIRE(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, nullptr) == 0);
        buffer.check(pair.a.cq, [&](void *from) { return fi_send(pair.a.ep, from, length, nullptr, 0, nullptr); });
        assert_int_equal(next_of(pair.b.cq, {pair.a.cq}).told.len, length);
        assert_int_equal(next_of(pair.a.cq, {pair.b.cq}).told.len, length);
    }
}

void datagrams(void **)
{
    OwnDirectory directory;
    Guarded buffer;
    Dgram a;
    Dgram b;
    const fi_addr_t to_b = a.insert(b.name);
    std::vector<std::byte> in(kPage);
    for (const std::size_t length : kLengths) {
        REQUIRE(fi_recv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        buffer.check(a.cq, [&](void *from) { return fi_send(a.ep, from, length, nullptr, to_b, nullptr); });
        assert_int_equal(next_entry(b.cq).len, length);
        assert_int_equal(next_entry(a.cq).len, length);
    }
}

void datagrams_to_a_group(void **)
{
    OwnDirectory directory;
    Guarded buffer;
    Dgram a;
    Dgram b;
    sockaddr_in group{};
    group.sin_family = AF_INET;
    group.sin_port = htons(7000);
    group.sin_addr.s_addr = htonl(0xefff0001U);
    fid_mc *mc = nullptr;
    REQUIRE(fi_join(b.ep, &group, FI_RECV, &mc, nullptr) == 0);
    fid_mc *sender = nullptr;
    REQUIRE(fi_join(a.ep, &group, FI_SEND, &sender, nullptr) == 0);
    std::vector<std::byte> in(kPage);
    for (const std::size_t length : kLengths) {
        REQUIRE(fi_recv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        buffer.check(a.cq,
                     [&](void *from) { return fi_send(a.ep, from, length, nullptr, fi_mc_addr(sender), nullptr); });
        assert_int_equal(next_entry(b.cq).len, length);
        assert_int_equal(next_entry(a.cq).len, length);
    }
    REQUIRE(fi_close(&mc->fid) == 0);
    REQUIRE(fi_close(&sender->fid) == 0);
}

void reliable_datagrams(void **)
{
    OwnDirectory directory;
    Guarded buffer;
    Rdm a({.single_copy = false});
    Rdm b({.single_copy = false});
    const fi_addr_t to_b = to(a, b);
    std::vector<std::byte> in(kPage);
    REQUIRE(again([&] { return fi_inject(a.ep, "x", 1, to_b); }, {b.cq}) == 0);
    REQUIRE(fi_recv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    assert_int_equal(next_of(b.cq, {a.cq}).told.len, 1);
    for (const std::size_t length : kLengths) {
        REQUIRE(fi_recv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        buffer.check(a.cq, [&](void *from) {
            return again([&] { return fi_send(a.ep, from, length, nullptr, to_b, nullptr); }, {a.cq, b.cq});
        });
        assert_int_equal(next_of(b.cq, {a.cq}).told.len, length);
        assert_int_equal(next_of(a.cq, {b.cq}).error.err, 0);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(datagrams),
        cmocka_unit_test(datagrams_to_a_group),
        cmocka_unit_test(reliable_datagrams),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
