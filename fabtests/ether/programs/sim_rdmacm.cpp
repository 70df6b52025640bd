// SPDX-License-Identifier: BSD-2-Clause
// What the provider finds in place of rdma-core's librdmacm.so.1 (sim_dlopen.cpp): a simulated NIC (sim_nic.hpp) whose
// other ends are in the network namespace SIM_NIC_NETWORK. Only the functions that the provider calls are there.
#include <cstdlib>

#include "contrib/lab/sim/sim.hpp"
#include "fabtests/ether/programs/sim_nic.hpp"

namespace {

using vma::verbs::Table;
using Code = void (*)();

template <auto Member> struct Exported;
template <typename Result, typename... Args, Result (*Table::*Member)(Args...)> struct Exported<Member> {
    static Result call(Args... args) { return (vma::sim::table()->*Member)(args...); }
};

[[gnu::constructor]] void plug_in()
{
    const char *const network = std::getenv("SIM_NIC_NETWORK");
    static const fabtest::SimNic *const nic = new fabtest::SimNic(network != nullptr ? network : "");
    static_cast<void>(nic);
}

} // namespace

// Each under its own name, and of its own type, which only the declaration in rdma-core's header knows: so the linker
// is told where the function is by one that is asked when the library is loaded.
#pragma push_macro("ibv_query_port")
#pragma push_macro("ibv_reg_mr")
#undef ibv_query_port
#undef ibv_reg_mr
#define VMA_EXPORT(member, symbol)                                                                                     \
    extern "C" [[gnu::used]] Code sim_nic_find_##member()                                                              \
    {                                                                                                                  \
        return reinterpret_cast<Code>(&Exported<&Table::member>::call);                                                \
    }                                                                                                                  \
    extern "C" __attribute__((ifunc("sim_nic_find_" #member), visibility("default"))) void sim_nic_##member() __asm__( \
        #symbol);
VMA_VERBS_FUNCTIONS(VMA_EXPORT)
#pragma pop_macro("ibv_reg_mr")
#pragma pop_macro("ibv_query_port")
