// SPDX-License-Identifier: BSD-2-Clause
// What is said of names in VMA_ETHERNET that are no ports. The kernel's bond is one that the test makes up: few kernels
// of test machines have any.
#include "fabtests/unit.hpp"

#include <net/if.h> // before linux/if.h, which knows it

#include <linux/if_bonding.h>
#include <linux/sockios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/libc/real.hpp"

using namespace vma;

namespace {

// What is logged while `names` are looked at.
std::string said_of(const char *names)
{
    char path[] = "/tmp/vma-ports-test-XXXXXX";
    ::close(::mkstemp(path));
    config::g_params.ethernet = names;
    config::g_params.log_file = path;
    config::g_params.trace_level = static_cast<int>(config::Level::kWarn);
    config::open_log(config::g_params);
    sock::warn_about_port_names();
    config::close_log();
    config::g_params.ethernet = nullptr;
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    std::filesystem::remove(path);
    return text.str();
}

void no_such_interface(void **)
{
    assert_string_equal(said_of("nowhere0").c_str(),
                        " VMA WARNING: Interface nowhere0 will not be offloaded: VMA_ETHERNET names it, and there is "
                        "none\n");
    const std::string both = said_of("nowhere0,,nowhere1");
    assert_true(both.find("nowhere0 ") != std::string::npos && both.find("nowhere1 ") != std::string::npos);
}

void ports_are_passed(void **)
{
    assert_string_equal(said_of("lo").c_str(), "");
    assert_string_equal(said_of("*").c_str(), "");
    assert_string_equal(said_of("").c_str(), "");
    assert_string_equal(said_of(nullptr).c_str(), "");
}

int bond_of_two(int, unsigned long request, void *argument)
{
    const auto *const asked = static_cast<const ifreq *>(argument);
    if (request == SIOCBONDINFOQUERY && std::strcmp(asked->ifr_name, "lo") == 0) {
        reinterpret_cast<ifbond *>(asked->ifr_data)->num_slaves = 2;
        return 0;
    }
    if (request == SIOCBONDSLAVEINFOQUERY) {
        auto *const slave = reinterpret_cast<ifslave *>(asked->ifr_data);
        std::snprintf(slave->slave_name, sizeof slave->slave_name, "ens%d", slave->slave_id);
        return 0;
    }
    errno = EOPNOTSUPP;
    return -1;
}

void a_bond_is_told_by_what_is_in_it(void **)
{
    const auto real = libc::real.ioctl;
    libc::real.ioctl = reinterpret_cast<decltype(libc::real.ioctl)>(&bond_of_two);
    const std::string said = said_of("lo");
    libc::real.ioctl = real;
    assert_string_equal(said.c_str(),
                        " VMA WARNING: Interface lo will not be offloaded: it is a bond, and VMA_ETHERNET takes those "
                        "that are in it: ens0 ens1 \n");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(no_such_interface),
        cmocka_unit_test(ports_are_passed),
        cmocka_unit_test(a_bond_is_told_by_what_is_in_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
