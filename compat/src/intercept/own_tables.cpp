// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/own_tables.hpp"
#include "compat/src/intercept/sandbox.hpp"

#include <linux/close_range.h>
#include <sched.h>

#include "compat/src/base/fence.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/sandbox_trial.hpp"
#include "compat/src/engine/tables.hpp"

namespace vma::intercept {

namespace {

void leave(const char *how)
{
    leave_once(sock::g_engine_tables.sandbox.parted, how, [](const char *by) {
        sock::tables_part(by);
        note_files();
        libc::tables_come_apart();
        sock::fence_after_exchange();
        leave_numbers();
        config::set_log_level(static_cast<int>(config::Level::kNone)); // whose file has a number, too
    });
}

} // namespace

void before_unshare(int flags)
{
    if ((flags & CLONE_FILES) != 0)
        leave("unshare(CLONE_FILES)");
}

void before_close_range(unsigned first, unsigned last, int flags)
{
    constexpr unsigned kKnown = CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC;
    const auto asked = static_cast<unsigned>(flags);
    if ((asked & CLOSE_RANGE_UNSHARE) != 0 && (asked & ~kKnown) == 0 && first <= last)
        leave("close_range(CLOSE_RANGE_UNSHARE)");
}

void before_clone(unsigned long flags)
{
    if ((flags & CLONE_VM) != 0 && (flags & (CLONE_FILES | CLONE_VFORK)) == 0)
        leave("clone(CLONE_VM) without CLONE_FILES");
}

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int unshare(int flags) noexcept
{
    before_unshare(flags);
    return real.unshare(flags);
}
