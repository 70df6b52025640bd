// SPDX-License-Identifier: BSD-2-Clause
// The limit is told only to who asks for a device: within a host nothing is locked.
#include "compat/src/config/troubles.hpp"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compat/src/config/log.hpp"

namespace vma::config {

namespace {

constexpr const char *kStars = "*************************************************************";

void warn_about_level()
{
    if (!log_enabled(Level::kDebug))
        return;
    VMA_LOG(kWarn, "%s", kStars);
    VMA_LOG(kWarn, "* VMA is currently configured with high log level           *");
    VMA_LOG(kWarn, "* Application performance will decrease in this log level!  *");
    VMA_LOG(kWarn, "* This log level is recommended for debugging purposes only *");
    VMA_LOG(kWarn, "%s", kStars);
}

bool may_lock_all()
{
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
    return ::syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective & 1U << CAP_IPC_LOCK) != 0;
}

void warn_about_locked_memory(const Params &params)
{
    const bool device = (params.ethernet != nullptr && *params.ethernet != '\0') || params.remote_streams;
    rlimit limit = {};
    if (!device || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max == RLIM_INFINITY || may_lock_all())
        return;
    VMA_LOG(kWarn, "%s", kStars);
    VMA_LOG(kWarn, "Your current max locked memory is: %llu. Please change it to unlimited.",
            static_cast<unsigned long long>(limit.rlim_max));
    VMA_LOG(kWarn, "Set this user's default to `ulimit -l unlimited`.");
    VMA_LOG(kWarn, "%s", kStars);
}

} // namespace

void warn_about_troubles(const Params &params)
{
    warn_about_level();
    warn_about_locked_memory(params);
}

} // namespace vma::config
