// SPDX-License-Identifier: BSD-2-Clause
// A library that the program opens and closes.
#include <pthread.h>

#include "fabtests/posix/programs/order/stage.hpp"

namespace {

[[gnu::constructor]] void plugin_begins()
{
    order_stage("constructor of a plugin");
    ORDER_FORK_HANDLERS("handlers of a plugin"); // gone with it
}

[[gnu::destructor]] void plugin_ends()
{
    order_stage("destructor of a plugin");
}

} // namespace

extern "C" [[gnu::visibility("default")]] void plugin_runs()
{
    order_stage("a plugin");
}
