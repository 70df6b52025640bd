// SPDX-License-Identifier: BSD-2-Clause
// The directory of names: who may own it, which names are free, which are dead.
#include "prov/vma/test/fixture.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "local/cm/directory.hpp"

using namespace vma;
using namespace vma::test;
using local::Directory;
using local::PortName;

namespace {

std::shared_ptr<Directory> opened()
{
    int error = -1;
    std::shared_ptr<Directory> directory = Directory::open(&error);
    assert_int_equal(error, 0);
    return directory;
}

int error_of(const std::string &path)
{
    int error = 0;
    assert_null(Directory::open_at(path, &error).get());
    return error;
}

void it_is_made_and_closed_to_others(void **)
{
    const OwnDirectory own;
    const std::string path = own.path() + "/sub";
    int error = 0;
    assert_non_null(Directory::open_at(path, &error).get());
    struct stat info {
    };
    assert_int_equal(::stat(path.c_str(), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    ::rmdir(path.c_str());
}

void one_that_others_may_enter_is_not_used(void **)
{
    const OwnDirectory own;
    assert_int_equal(::chmod(own.path().c_str(), 0755), 0);
    assert_int_equal(error_of(own.path()), -FI_EACCES);
}

void one_of_another_user_is_not_used(void **)
{
    if (::geteuid() != 0)
        UNIT_SKIP("only root can make a directory of another user");
    const OwnDirectory own;
    assert_int_equal(::chown(own.path().c_str(), 65534, 65534), 0);
    assert_int_equal(error_of(own.path()), -FI_EACCES);
}

void what_is_no_directory_is_not_used(void **)
{
    const OwnDirectory own;
    const std::string file = own.path() + "/file";
    ::close(::open(file.c_str(), O_CREAT | O_WRONLY, 0600));
    assert_int_equal(error_of(file), -ENOTDIR);
    const std::string link = own.path() + "/link";
    assert_int_equal(::symlink("/tmp", link.c_str()), 0);
    assert_int_equal(error_of(link), -ENOTDIR);
    assert_int_equal(error_of(own.path() + "/none/none"), -ENOENT);
}

void ports_are_given_once(void **)
{
    const OwnDirectory own;
    const auto directory = opened();
    PortName one;
    PortName two;
    assert_int_equal(directory->reserve(4000, one), 0);
    assert_int_equal(one.port(), 4000);
    assert_int_equal(directory->reserve(4000, two), -FI_EADDRINUSE);
    assert_int_equal(opened()->reserve(4000, two), -FI_EADDRINUSE);
    one.reset();
    assert_int_equal(directory->reserve(4000, two), 0);
    PortName any[64];
    for (PortName &name : any) {
        assert_int_equal(directory->reserve(0, name), 0);
        assert_int_not_equal(name.port(), 0);
    }
    assert_int_equal(own.names().size(), 65);
}

void names_go_with_their_holders(void **)
{
    const OwnDirectory own;
    {
        PortName name;
        assert_int_equal(opened()->reserve(0, name), 0);
        const PortName moved = std::move(name);
        assert_int_equal(own.names().size(), 1);
    }
    assert_int_equal(own.names().size(), 0);
}

void connecting(void **)
{
    const OwnDirectory own;
    const auto directory = opened();
    int error = 0;
    assert_false(static_cast<bool>(directory->connect(4001, &error)));
    assert_int_equal(error, -FI_ECONNREFUSED);
    PortName name;
    assert_int_equal(directory->reserve(4001, name), 0);
    assert_true(static_cast<bool>(directory->connect(4001, &error)));
    assert_int_equal(error, 0);
}

// Killed in a moment where it holds names.
void kill_a_holder(std::uint16_t port, int names)
{
    int ready[2];
    assert_int_equal(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto directory = opened();
        PortName held[8];
        for (int i = 0; i < names; ++i)
            directory->reserve(static_cast<std::uint16_t>(port + i), held[i]);
        [[maybe_unused]] const ssize_t told = ::write(ready[1], "", 1);
        ::pause();
        _exit(0);
    }
    char byte;
    assert_int_equal(::read(ready[0], &byte, 1), 1);
    assert_int_equal(::kill(child, SIGKILL), 0);
    assert_int_equal(::waitpid(child, nullptr, 0), child);
    ::close(ready[0]);
    ::close(ready[1]);
}

void the_dead_leave_nothing_for_long(void **)
{
    const OwnDirectory own;
    const auto directory = opened();
    PortName alive;
    assert_int_equal(directory->reserve(5000, alive), 0);
    kill_a_holder(5001, 3);
    assert_int_equal(own.names().size(), 4);
    int error = 0;
    assert_false(static_cast<bool>(directory->connect(5001, &error)));
    assert_int_equal(error, -FI_ECONNREFUSED);
    PortName taken;
    assert_int_equal(directory->reserve(5002, taken), 0); // a dead one's port is free
    opened();                                             // and the next start removes the others
    assert_int_equal(own.names().size(), 2);
    assert_true(static_cast<bool>(directory->connect(5000, &error)));
}

// One was stopped while it removed what the dead had left. Only that waits for it, and the port of a dead one is not
// free.
void nobody_waits_for_who_has_the_lock(void **)
{
    const OwnDirectory own;
    kill_a_holder(5001, 1);
    const int held = ::open(own.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(::flock(held, LOCK_EX | LOCK_NB), 0);
    const auto directory = opened();
    PortName any;
    PortName free;
    PortName taken;
    assert_int_equal(directory->reserve(0, any), 0);
    assert_int_equal(directory->reserve(5000, free), 0);
    assert_int_equal(directory->reserve(5001, taken), -FI_EADDRINUSE);
    assert_int_equal(own.names().size(), 3);
    ::close(held);
    assert_int_equal(directory->reserve(5001, taken), 0);
    assert_int_equal(own.names().size(), 3);
}

// Killed between the two steps of making a name.
void a_listener_without_a_port_is_removed(void **)
{
    const OwnDirectory own;
    const std::string name = own.path() + "/t-0123abcd";
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path) - 1);
    assert_int_equal(::bind(socket, reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
    assert_int_equal(::listen(socket, 1), 0);
    opened();
    assert_int_equal(own.names().size(), 1);
    ::close(socket);
    opened();
    assert_int_equal(own.names().size(), 0);
}

void what_is_not_ours_stays(void **)
{
    const OwnDirectory own;
    ::close(::open((own.path() + "/notes").c_str(), O_CREAT | O_WRONLY, 0600));
    ::close(::open((own.path() + "/1-77").c_str(), O_CREAT | O_WRONLY, 0600)); // like a name, but a file
    const auto directory = opened();
    assert_int_equal(own.names().size(), 2);

    PortName name;
    assert_int_equal(directory->reserve(6000, name), 0);
    const std::vector<std::string> names = own.names();
    std::string path;
    for (const std::string &item : names) {
        if (item.ends_with("-6000"))
            path = own.path() + "/" + item;
    }
    name.reset();
    ::close(::open(path.c_str(), O_CREAT | O_WRONLY, 0600));
    assert_int_equal(directory->reserve(6000, name), -FI_EADDRINUSE);
    int error = 0;
    assert_false(static_cast<bool>(directory->connect(6000, &error)));
    assert_int_equal(error, -FI_ECONNREFUSED);
}

void long_paths(void **)
{
    const OwnDirectory own;
    const std::string path = own.path() + "/" + std::string(150, 'x');
    int error = 0;
    {
        const auto directory = Directory::open_at(path, &error);
        assert_non_null(directory.get());
        PortName name;
        assert_int_equal(directory->reserve(0, name), 0);
        assert_true(static_cast<bool>(directory->connect(name.port(), &error)));
    }
    ::rmdir(path.c_str());
}

void a_child_doesn_t_remove_its_parent_s_names(void **)
{
    const OwnDirectory own;
    PortName name;
    assert_int_equal(opened()->reserve(0, name), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        name.reset();
        _exit(own.names().size() == 1 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(it_is_made_and_closed_to_others),
        cmocka_unit_test(one_that_others_may_enter_is_not_used),
        cmocka_unit_test(one_of_another_user_is_not_used),
        cmocka_unit_test(what_is_no_directory_is_not_used),
        cmocka_unit_test(ports_are_given_once),
        cmocka_unit_test(names_go_with_their_holders),
        cmocka_unit_test(connecting),
        cmocka_unit_test(the_dead_leave_nothing_for_long),
        cmocka_unit_test(nobody_waits_for_who_has_the_lock),
        cmocka_unit_test(a_listener_without_a_port_is_removed),
        cmocka_unit_test(what_is_not_ours_stays),
        cmocka_unit_test(long_paths),
        cmocka_unit_test(a_child_doesn_t_remove_its_parent_s_names),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
