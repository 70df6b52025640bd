// SPDX-License-Identifier: BSD-2-Clause
// Load and unload of libvma.so. Nothing happens at load time but reading the parameters and printing the header;
// devices open at the first socket that needs one.
#include "compat/src/intercept/export.hpp"

#include "compat/src/config/asked.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/libc/crash.hpp"
#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/process/call_trace.hpp"
#include "compat/src/rules/rules.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/stats/region.hpp"

namespace {

[[gnu::constructor(101)]] void library_load()
{
    vma::libc::keep_pages_small();
    const bool opened = vma::config::is_opened();
    opened ? vma::libc::resolve_real() : vma::libc::resolve_real_at_start();
    vma::config::load_params();
    vma::config::observe_log_level(vma::sock::trace_calls);
    vma::rules::load();
    if (vma::config::params().handle_sigintr)
        vma::libc::let_interrupts_end_all_polling();
    if (vma::config::params().handle_sigsegv)
        vma::libc::trace_crashes();
    if (opened)
        vma::libc::handlers_bypass_us();
    vma::sock::register_fork_handlers();
    vma::sock::adopt_inherited(vma::intercept::number_tracked);
    vma::extra::set_accept(vma::intercept::accept_tracked);
}

// DT_FINI, which the compiler's _fini() is else: it does nothing either, at the other end of the code, on a page that
// nobody needs.
extern "C" [[gnu::visibility("hidden")]] [[VMA_AT_STARTUP]] void vma_fini() {}

[[gnu::destructor]] void process_ends()
{
    if (!vma::libc::in_vfork_child() && !vma::sock::sandboxed()) { // there is nothing left to end in a sandbox
        vma::sock::process_ends();
        vma::stats::dump_open_to_file();
        vma::stats::remove_file();
    }
}

} // namespace

// libvma has it, for programs that load and unload the library themselves. We can't be unloaded, as signal handlers
// lead through us.
VMA_EXPORT int vma_exit()
{
    vma::config::close_log();
    return 0;
}
