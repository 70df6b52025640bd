// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/ether/programs/sim_nic.hpp"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "contrib/lab/sim/sim.hpp"
#include "fabtests/ether/programs/commands.hpp"
#include "fabtests/ether/programs/packet_socket.hpp"

namespace fabtest {

using namespace vma;

namespace {

void enter(const char *network)
{
    const core::UniqueFd there(::open(network, O_RDONLY | O_CLOEXEC));
    if (!there || ::setns(there.get(), CLONE_NEWNET) != 0)
        die(network, errno);
}

} // namespace

SimNic::SimNic(const char *interface, const std::string &network)
{
    const core::UniqueFd home(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    enter(network.c_str());
    wire_ = open_packet_socket("right");
    host_ = open_packet_socket("left");
    if (!home || ::setns(home.get(), CLONE_NEWNET) != 0)
        die("setns", errno);
    name_interface(interface);
    sim::Config config;
    config.devices.resize(1);
    config.devices[0].wire = wire_.get();
    config.devices[0].host = host_.get();
    sim::reset(config);
    verbs::use_table(sim::table());
}

SimNic::~SimNic()
{
    sim::reset({});
    std::error_code ignored;
    std::filesystem::remove_all(sysfs_, ignored);
}

void SimNic::name_interface(const char *interface)
{
    char path[] = "/tmp/vma-sim-nic-XXXXXX";
    if (::mkdtemp(path) == nullptr)
        die("mkdtemp", errno);
    sysfs_ = path;
    const std::string table = sysfs_ + "/class/infiniband/sim0/ports/1/gid_attrs/ndevs";
    std::error_code error;
    std::filesystem::create_directories(table, error);
    std::ofstream(table + "/0") << interface << '\n';
    if (error)
        die(table.c_str(), error.value());
}

} // namespace fabtest
