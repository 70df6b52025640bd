// SPDX-License-Identifier: BSD-2-Clause
// The words that say when to look for offers: whoever comes at the same time as others gets the same ones, and no lock
// makes it so.
#include "fabtests/unit.hpp"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/generation.hpp"

using namespace vma;

namespace {

constexpr int kProcesses = 8;

struct Said {
    std::uint32_t id;
    std::uint32_t offers; // after its own has been counted
};

// Processes that ask for the words at the same moment, and have them until the end.
class Oversubscription
{
public:
    explicit Oversubscription(const char *directory)
    {
        assert_int_equal(::pipe(begin_), 0);
        assert_int_equal(::pipe(said_), 0);
        assert_int_equal(::pipe(end_), 0);
        for (pid_t &pid : pids_) {
            pid = static_cast<pid_t>(libc::real.syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
            assert_true(pid >= 0);
            if (pid == 0)
                live(directory);
        }
        ::close(begin_[1]);
        ::close(end_[0]);
        ::close(said_[1]);
    }
    ~Oversubscription()
    {
        ::close(end_[1]);
        for (const pid_t pid : pids_) {
            int status = -1;
            assert_int_equal(::waitpid(pid, &status, 0), pid);
            assert_int_equal(status, 0);
        }
        ::close(begin_[0]);
        ::close(said_[0]);
    }
    Oversubscription(const Oversubscription &) = delete;
    Oversubscription &operator=(const Oversubscription &) = delete;

    Said hear() const
    {
        Said said = {};
        assert_int_equal(libc::real.read(said_[0], &said, sizeof said), sizeof said);
        return said;
    }

private:
    [[noreturn]] void live(const char *directory) const
    {
        char byte = 0;
        ::close(begin_[1]);
        ::close(end_[1]);
        if (libc::real.read(begin_[0], &byte, 1) != 0)
            _exit(1);
        Said said = {};
        sock::Generations *const words = sock::map_generations(directory, said.id);
        if (words == nullptr)
            _exit(2);
        said.offers = words->offers.fetch_add(1) + 1;
        if (libc::real.write(said_[1], &said, sizeof said) != sizeof said || libc::real.read(end_[0], &byte, 1) != 0)
            _exit(3);
        _exit(0);
    }

    int begin_[2] = {};
    int said_[2] = {};
    int end_[2] = {};
    std::array<pid_t, kProcesses> pids_{};
};

int count_names(const char *directory)
{
    DIR *const list = ::opendir(directory);
    assert_non_null(list);
    int count = 0;
    while (const dirent *const entry = ::readdir(list))
        count += strncmp(entry->d_name, "generation-", 11) == 0 ? 1 : 0;
    ::closedir(list);
    return count;
}

void all_have_the_same(void **)
{
    constexpr int kRounds = 30; // in each the words of the one before have gone with their processes
    char directory[] = "/tmp/vma-test-XXXXXX";
    assert_non_null(::mkdtemp(directory));
    std::uint32_t before = 0;
    for (int round = 0; round < kRounds; ++round) {
        const Oversubscription oversubscription(directory);
        const Said first = oversubscription.hear();
        std::uint32_t most = first.offers;
        for (int i = 1; i < kProcesses; ++i) {
            const Said said = oversubscription.hear();
            assert_int_equal(said.id, first.id);
            most = said.offers > most ? said.offers : most;
        }
        assert_int_equal(most, kProcesses);
        assert_int_not_equal(first.id, before);
        before = first.id;
        assert_int_equal(count_names(directory), 1);
    }
    assert_int_equal(::system((std::string("rm -r ") + directory).c_str()), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(all_have_the_same),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
