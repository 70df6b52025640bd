// SPDX-License-Identifier: BSD-2-Clause
// Guests whom somebody has introduced count as the users whom he has named: one of them who sends what can't be closed
// comes no more, and neither do his other processes. Nobody else is kept out by that.
#include "fabtests/unit.hpp"

#include <poll.h>
#include <unistd.h>

#include "prov/vma/test/local/guest_meeting.hpp"
#include "prov/vma/test/local/trap.hpp"

namespace {

using namespace vma::test;
using namespace vma;
using vma::core::UniqueFd;

constexpr std::uint64_t process_of(std::uint64_t user, std::uint64_t process)
{
    return user << 32 | process;
}

void introduce(fid_t fid, UniqueFd &socket, std::uint64_t number)
{
    const fi_vma_link link{socket.get(), FI_VMA_LINK_INTRODUCED, number};
    assert_int_equal(fi_setopt(fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_LINK), &link, sizeof link), 0);
    static_cast<void>(socket.release());
}

// A message that brings the end of a pipe, which no part of an offer is.
void misbehaves(Meeting &m, std::uint64_t number)
{
    Ends ends;
    introduce(&m.pep->fid, ends.b, number);
    Trap trap;
    assert_true(send_fds(ends.a.get(), 1, {trap.fd()}));
    trap.is_sent();
    static_cast<void>(m.server.poll());
    assert_true(trap.is_held());
}

void is_kept_out(Meeting &m, std::uint64_t number)
{
    Ends ends;
    introduce(&m.pep->fid, ends.b, number);
    static_cast<void>(m.server.poll());
    pollfd wait{ends.a.get(), POLLIN, 0};
    assert_int_equal(poll(&wait, 1, 0), 1);
    char byte;
    assert_true(recv(ends.a.get(), &byte, 1, MSG_DONTWAIT) <= 0);
}

void meets(Meeting &m, std::uint64_t number)
{
    Ends ends;
    introduce(&m.pep->fid, ends.b, number);
    fid_ep *const active = m.client.endpoint();
    introduce(&active->fid, ends.a, process_of(0, 1)); // whom the other one knows as another
    assert_int_equal(fi_connect(active, nullptr, "hello", 5), 0);
    const Event request = m.server.wait();
    expect(request, FI_CONNREQ, &m.pep->fid);
    fid_ep *const passive = m.server.endpoint(request.info.get());
    assert_int_equal(fi_accept(passive, nullptr, 0), 0);
    expect(m.server.wait(), FI_CONNECTED, &passive->fid);
    expect(m.client.wait(), FI_CONNECTED, &active->fid);
    m.talk(active, passive);
    close_all({&active->fid, &passive->fid});
}

void one_user_is_banned(void **)
{
    Meeting m;
    meets(m, process_of(5, 10));
    misbehaves(m, process_of(5, 10));
    is_kept_out(m, process_of(5, 10));
    is_kept_out(m, process_of(5, 11));
    meets(m, process_of(6, 10));
    forget_what_was_left_open();
}

// The introducer's numbers are not the kernel's.
void a_user_of_that_number_is_another(void **)
{
    Meeting m;
    misbehaves(m, process_of(geteuid(), 10));
    is_kept_out(m, process_of(geteuid(), 10));
    Ends ends;
    hand_over(&m.pep->fid, ends.b);
    fid_ep *const active = m.ask(ends.a);
    fid_ep *const passive = m.answer(m.server.wait());
    expect(m.server.wait(), FI_CONNECTED, &passive->fid);
    expect(m.client.wait(), FI_CONNECTED, &active->fid);
    m.talk(active, passive);
    close_all({&active->fid, &passive->fid});
    forget_what_was_left_open();
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_user_is_banned),
        cmocka_unit_test(a_user_of_that_number_is_another),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
