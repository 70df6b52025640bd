// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/ether/programs/sim_nic.hpp"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>

#include "contrib/lab/sim/sim.hpp"
#include "fabtests/ether/programs/commands.hpp"
#include "fabtests/ether/programs/packet_socket.hpp"

namespace fabtest {

using namespace vma;

SimNic::SimNic(const std::string &network)
{
    const core::UniqueFd home(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    const core::UniqueFd there(::open(network.c_str(), O_RDONLY | O_CLOEXEC));
    if (!home || !there || ::setns(there.get(), CLONE_NEWNET) != 0)
        die(network.c_str(), errno);
    wire_ = open_packet_socket("right");
    host_ = open_packet_socket("left");
    if (::setns(home.get(), CLONE_NEWNET) != 0)
        die("setns", errno);
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
}

void SimNic::remove()
{
    sim::remove_device(0);
}

} // namespace fabtest
