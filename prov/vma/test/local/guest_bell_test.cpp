// SPDX-License-Identifier: BSD-2-Clause
// What a guest does to the bell that it was given: it wakes us or it doesn't, and it takes no more than its share.
#include "fabtests/unit.hpp"

#include <poll.h>
#include <sys/socket.h>

#include "local/queue.hpp"
#include "local/strangers.hpp"
#include "prov/vma/test/local/pair.hpp"
#include "prov/vma/test/local/trap.hpp"

namespace {

using namespace vma::test;
using namespace vma;

local::GuestDoorbell &bell_of(const Side &side)
{
    return *side.endpoint().guest;
}

// What a sleep's end does; the guest has said that it rang.
bool wakes(const Side &side)
{
    local::Queue &queue = local::queue_of(side.cq);
    local::Mapping page;
    assert_int_equal(local::map_shared(bell_of(side).memory_fd(), sizeof(local::DoorbellPage), page), 0);
    ++reinterpret_cast<local::DoorbellPage *>(page.data())->wakes;
    const core::SpinGuard guard(queue.lock);
    queue.guests.arm();
    return queue.guests.disarm();
}

Setup as_guests()
{
    Setup setup;
    setup.guests = true;
    return setup;
}

// A kernel that refuses the sender is made to be as the others are.
void no_bell_lets_it_go(void **)
{
    for (int way = 0; way < 4; ++way) {
        Trap trap;
        {
            Pair pair(as_guests());
            let_rights_in(bell_of(pair.b).wake_fd(), true, local::kStrangersCalls);
            const int bell = bell_of(pair.b).bell_fd();
            if (way != 0)
                assert_int_equal(send(bell, "x", 1, way == 1 ? 0 : MSG_OOB), 1);
            assert_true(send_fds(bell, 1, {trap.fd()}, way == 3 ? MSG_OOB : 0));
            trap.is_sent();
            for (int i = 0; i < 4; ++i)
                static_cast<void>(wakes(pair.b));
            assert_true(trap.is_held());
            assert_false(wakes(pair.b));
            int set = -1;
            assert_int_equal(fi_control(&pair.b.cq->fid, FI_GETWAIT, &set), 0);
            pollfd wait{set, POLLIN, 0};
            assert_int_equal(poll(&wait, 1, 0), 0); // it keeps nobody awake
        }
        assert_true(trap.is_held());
        forget_what_was_left_open();
    }
}

void a_bell_is_told_to_let_nothing_in(void **)
{
    const Pair pair(as_guests());
    int value = -1;
    socklen_t length = sizeof value;
    if (getsockopt(bell_of(pair.b).wake_fd(), SOL_SOCKET, kPassRights, &value, &length) != 0)
        return; // Linux before 6.16
    const Trap trap;
    assert_false(send_fds(bell_of(pair.b).bell_fd(), 1, {trap.fd()}));
    assert_int_equal(errno, EPERM);
}

// Who ends its own bell is woken no more, and nobody is kept awake.
void a_bell_that_is_over_rings_no_more(void **)
{
    const Pair pair(as_guests());
    assert_int_equal(send(bell_of(pair.b).bell_fd(), "x", 1, 0), 1);
    assert_true(wakes(pair.b));
    assert_int_equal(shutdown(bell_of(pair.b).bell_fd(), SHUT_RDWR), 0);
    assert_false(wakes(pair.b));
    int set = -1;
    assert_int_equal(fi_control(&pair.b.cq->fid, FI_GETWAIT, &set), 0);
    pollfd wait{set, POLLIN, 0};
    assert_int_equal(poll(&wait, 1, 0), 0);
}

// One user's many processes take half of the places, and the next one finds some.
void no_user_takes_the_last_bell(void **)
{
    const Side side(as_guests());
    assert_int_equal(fi_enable(side.ep), 0);
    local::Queue &queue = local::queue_of(side.cq);
    const core::SpinGuard guard(queue.lock);
    std::vector<local::GuestDoorbell *> taken;
    std::uint64_t process = 1000;
    const auto take_all = [&](uid_t user) {
        const std::size_t before = taken.size();
        local::GuestDoorbell *bell = nullptr;
        while (queue.guests.use(++process, user, bell) == 0)
            taken.push_back(bell);
        return taken.size() - before;
    };
    assert_int_equal(take_all(1), local::GuestDoorbells::kMost / 2);
    for (uid_t user = 2; user < 7; ++user)
        assert_true(take_all(user) > 0);
    for (local::GuestDoorbell *bell : taken)
        queue.guests.release(*bell);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(no_bell_lets_it_go),
        cmocka_unit_test(a_bell_is_told_to_let_nothing_in),
        cmocka_unit_test(a_bell_that_is_over_rings_no_more),
        cmocka_unit_test(no_user_takes_the_last_bell),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
