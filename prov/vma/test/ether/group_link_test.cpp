// SPDX-License-Identifier: BSD-2-Clause
// How processes that share a NIC find each other, with both ends here: who may join, and what an answer may be.
#include "fabtests/unit.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/kernel.hpp"
#include "ether/xdp/group_link.hpp"

using namespace vma;
using namespace vma::ether;

namespace {

constexpr unsigned kInterface = 4'000'000; // nobody's

bool has_af_xdp()
{
    return static_cast<bool>(core::UniqueFd(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0)));
}

core::UniqueFd accepted(const core::UniqueFd &listener)
{
    return core::UniqueFd(core::kernel::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

ino_t number_of(int fd)
{
    struct stat status {
    };
    assert_int_equal(::fstat(fd, &status), 0);
    return status.st_ino;
}

void one_listens_and_others_ask(void **)
{
    if (!has_af_xdp())
        UNIT_SKIP("no right to open AF_XDP sockets");
    uid_t holder = 0;
    assert_false(static_cast<bool>(ask_member(kInterface, holder)));
    assert_int_equal(errno, ECONNREFUSED);
    core::UniqueFd listener = listen_for_members(kInterface);
    assert_true(static_cast<bool>(listener));
    assert_false(static_cast<bool>(listen_for_members(kInterface)));
    assert_int_equal(errno, EADDRINUSE);
    assert_true(static_cast<bool>(listen_for_members(kInterface + 1)));

    const core::UniqueFd asking = ask_member(kInterface, holder);
    assert_true(static_cast<bool>(asking));
    std::vector<core::UniqueFd> got;
    assert_int_equal(receive_answer(asking.get(), 1, got), -ETIMEDOUT);
    core::UniqueFd there = accepted(listener);
    assert_int_equal(static_cast<int>(read_question(there.get())), static_cast<int>(Asked::kRight));
    there.reset();
    assert_int_equal(receive_answer(asking.get(), 1000, got), -ECONNRESET);
    assert_true(got.empty());
}

// More than a message takes; each arrives as what it was, in order.
void all_descriptors_arrive(void **)
{
    int ends[2];
    assert_int_equal(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    const core::UniqueFd here(ends[0]);
    const core::UniqueFd there(ends[1]);
    for (const std::size_t count : {std::size_t{1}, std::size_t{200}, std::size_t{453}}) {
        std::vector<core::UniqueFd> kept;
        std::vector<int> given;
        while (given.size() < count) {
            kept.emplace_back(::memfd_create("group_link_test", MFD_CLOEXEC));
            assert_true(static_cast<bool>(kept.back()));
            given.push_back(kept.back().get());
        }
        assert_true(send_answer(here.get(), 0, given));
        std::vector<core::UniqueFd> got;
        assert_int_equal(receive_answer(there.get(), 1000, got), 0);
        assert_int_equal(got.size(), count);
        for (std::size_t i = 0; i < count; ++i)
            assert_int_equal(number_of(got[i].get()), number_of(given[i]));
    }
}

void a_refusal_has_its_reason(void **)
{
    int ends[2];
    assert_int_equal(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    const core::UniqueFd here(ends[0]);
    const core::UniqueFd there(ends[1]);
    std::vector<core::UniqueFd> got;
    assert_true(send_answer(here.get(), -EBUSY, {}));
    assert_int_equal(receive_answer(there.get(), 1000, got), -EBUSY);
    const struct {
        std::int32_t status;
        std::uint32_t descriptors;
    } wrong[] = {{5, 0}, {0, 1'000'000}};
    for (const auto &answer : wrong) {
        assert_int_equal(::send(here.get(), &answer, sizeof answer, 0), sizeof answer);
        assert_int_equal(receive_answer(there.get(), 1000, got), -EPROTO);
    }
    assert_int_equal(::send(here.get(), "x", 1, 0), 1);
    assert_int_equal(receive_answer(there.get(), 1000, got), -EPROTO);
}

// `shown`: descriptors that come with it.
Asked asked(const void *question, std::size_t length, std::initializer_list<int> shown)
{
    int ends[2];
    assert_int_equal(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    const core::UniqueFd here(ends[0]);
    const core::UniqueFd there(ends[1]);
    assert_int_equal(static_cast<int>(read_question(there.get())), static_cast<int>(Asked::kNothingYet));
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    iovec part{const_cast<void *>(question), length};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (shown.size() != 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(shown.size() * sizeof(int));
        cmsghdr *const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(shown.size() * sizeof(int));
        std::memcpy(CMSG_DATA(rights), shown.begin(), shown.size() * sizeof(int));
    }
    assert_true(::sendmsg(here.get(), &header, 0) >= 0);
    return read_question(there.get());
}

void who_shows_no_right_does_not_join(void **)
{
    if (!has_af_xdp())
        UNIT_SKIP("no right to open AF_XDP sockets");
    const core::UniqueFd proof(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
    const core::UniqueFd other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const std::uint32_t right = 2;
    const std::uint32_t wrong = 3; // another version
    const auto is = [](Asked a, Asked b) { assert_int_equal(static_cast<int>(a), static_cast<int>(b)); };
    is(asked(&right, sizeof right, {proof.get()}), Asked::kRight);
    is(asked(&right, sizeof right, {}), Asked::kWrong);
    is(asked(&right, sizeof right, {other.get()}), Asked::kWrong);
    is(asked(&right, sizeof right, {STDOUT_FILENO}), Asked::kWrong);
    is(asked(&right, sizeof right, {proof.get(), proof.get()}), Asked::kWrong);
    is(asked(&wrong, sizeof wrong, {proof.get()}), Asked::kWrong);
    is(asked(&right, 1, {proof.get()}), Asked::kWrong);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_listens_and_others_ask),
        cmocka_unit_test(all_descriptors_arrive),
        cmocka_unit_test(a_refusal_has_its_reason),
        cmocka_unit_test(who_shows_no_right_does_not_join),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
