// SPDX-License-Identifier: BSD-2-Clause
// Single copy by the kernel: with nobody but who has shown its mark.
#include "prov/vma/test/local/pair.hpp"

#include <csignal>
#include <sys/mman.h>
#include <sys/wait.h>

#include "local/cma.hpp"

using namespace vma;
using namespace vma::test;
using namespace vma::local;

namespace {

constexpr std::size_t kLength = 20000;

struct Bytes {
    std::vector<char> all = std::vector<char>(kLength, 'a');
    iovec halves[2] = {{all.data(), kLength / 2}, {all.data() + kLength / 2, kLength - kLength / 2}};
};

int copy(CmaDirection direction, const CmaPeer &peer, const Bytes &ours, const Bytes &theirs)
{
    return cma_copy(direction, peer, ours.halves, 2, theirs.halves, 2, kLength);
}

void by_its_mark(void **)
{
    const std::uint64_t mark = 4711;
    const CmaPeer us{::getpid(), {reinterpret_cast<std::uintptr_t>(&mark), 4711}};
    for (const CmaDirection direction : {CmaDirection::read, CmaDirection::write}) {
        Bytes ours;
        Bytes theirs;
        std::fill(theirs.all.begin(), theirs.all.end(), 'b');
        CmaPeer other = us;
        other.mark.number = 4712;
        assert_true(cma_finds(us) && !cma_finds(other));
        assert_int_equal(copy(direction, other, ours, theirs), ECONNRESET);
        other.mark = {8, 0}; // where no memory is
        assert_int_equal(copy(direction, other, ours, theirs), ECONNRESET);
        assert_true(direction == CmaDirection::read || theirs.all.front() == 'b');
        assert_int_equal(copy(direction, us, ours, theirs), 0);
        assert_true(ours.all == theirs.all);
        theirs.halves[1].iov_base = reinterpret_cast<void *>(4096);
        assert_int_equal(copy(direction, us, ours, theirs), EFAULT); // it is there, but not its bytes
    }
}

void with_the_dead(void **)
{
    const std::uint64_t mark = 4711;
    const Bytes ours; // the child has it, too
    const pid_t pid = ::fork();
    if (pid == 0) {
        for (;;)
            ::pause();
    }
    const CmaPeer peer{pid, {reinterpret_cast<std::uintptr_t>(&mark), 4711}};
    assert_int_equal(copy(CmaDirection::read, peer, ours, ours), 0);
    assert_int_equal(::kill(pid, SIGKILL), 0);
    for (const bool waited : {false, true}) {
        siginfo_t info{};
        assert_int_equal(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | (waited ? 0 : WNOWAIT)), 0);
        assert_int_equal(copy(CmaDirection::read, peer, ours, ours), ECONNRESET);
        assert_int_equal(copy(CmaDirection::write, peer, ours, ours), ECONNRESET);
    }
}

// A connection whose peer's memory is another's by now: messages and remote memory, in both directions.
void of_a_connection(void **)
{
    Side a({});
    Side b({});
    REQUIRE(fi_enable(a.ep) == 0 && fi_enable(b.ep) == 0);
    const CmaMark other{kMark.address, kMark.number + 1};
    join_one(a.endpoint(), b.endpoint(), {::getpid(), true, 0, other});
    join_one(b.endpoint(), a.endpoint(), {::getpid(), true, 0, other});
    std::vector<char> bytes(kLength, 'a');
    std::vector<char> got(kLength, 'b');
    REQUIRE(fi_recv(b.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    REQUIRE(fi_send(a.ep, bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    assert_int_equal(next_error(b.cq).err, FI_ECONNRESET);
    assert_int_equal(next_error(a.cq).err, FI_EIO);
    fid_mr *mr = nullptr;
    std::vector<char> target(kLength, 'c');
    REQUIRE(fi_mr_reg(b.domain, target.data(), target.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr,
                      nullptr) == 0);
    const auto ends = [&] {
        for (fi_cq_data_entry entry; fi_cq_read(a.cq, &entry, 1) != -FI_EAVAIL;)
            REQUIRE(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
        fi_cq_err_entry error{};
        REQUIRE(fi_cq_readerr(a.cq, &error, 0) == 1);
        return error.err;
    };
    REQUIRE(fi_write(a.ep, bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, 0, 1, nullptr) == 0);
    assert_int_equal(ends(), FI_ECONNRESET);
    assert_int_equal(target.front(), 'c');
    REQUIRE(fi_read(a.ep, bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, 0, 1, nullptr) == 0);
    assert_int_equal(ends(), FI_ECONNRESET);
    REQUIRE(fi_close(&mr->fid) == 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(by_its_mark),
        cmocka_unit_test(with_the_dead),
        cmocka_unit_test(of_a_connection),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
