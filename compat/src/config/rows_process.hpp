// SPDX-License-Identifier: BSD-2-Clause
// Rows of the table: what concerns the whole process.
#pragma once

#include "config.h"

#include "compat/src/config/table.hpp"

namespace vma::config {

inline constexpr Choice kExceptionHandling[] = {
    {"-2", -2, "-2 (exit if the library can't start)"}, {"-1", -1, "-1 (just log debug message)"},
    {"0", 0, "0 (log debug and un-offload)"},           {"1", 1, "1 (log error and un-offload)"},
    {"2", 2, "2 (log error and return error)"},         {"3", 3, "3 (log error and abort)"},
};

inline constexpr Parameter kProcessRows[] = {
    {.name = "VMA_CONFIG_FILE",
     .label = "Conf File",
     .field = &Params::config_file,
     .fallback_text = LIBVMA_CONF,
     .text =
         "The file of rules that say which sockets are accelerated: libvma.conf(5). The default need not be there."},
    {.name = "VMA_APPLICATION_ID",
     .label = "Application ID",
     .field = &Params::application_id,
     .fallback_text = "VMA_DEFAULT_APPLICATION_ID",
     .text = "Which rules of libvma.conf are this program's, besides its name. The default has those for *."},
    {.name = "VMA_SOCKETXTREME",
     .label = "SocketXtreme mode",
     .field = &Params::socketxtreme,
     .text = "Whether socketxtreme_poll(), of the extra API (vma_extra(3)), serves the sockets of this program."},
    {.name = "VMA_SPEC_PARAM1",
     .label = "Param 1:",
     .field = &Params::spec_param1,
     .fallback = 1,
     .max = kMostNumber,
     .overrides = {{{Spec::k29West, 5000}, {Spec::kWombat, 5000}}},
     .idle = true,
     .text = "No effect here: writes to pipes are not held back to be merged, under no profile."},
    {.name = "VMA_SPEC_PARAM2",
     .label = "Param 2:",
     .field = &Params::spec_param2,
     .fallback = 1,
     .max = kMostNumber,
     .overrides = {{{Spec::k29West, 50}, {Spec::kWombat, 50}}},
     .idle = true,
     .text = "No effect here, as VMA_SPEC_PARAM1."},
    {.name = "VMA_VMAD_NOTIFY_DIR",
     .label = "SERVICE output directory",
     .field = &Params::vmad_notify_dir,
     .fallback_text = "/tmp/vma",
     .idle = true,
     .text =
         "No effect here: no files are written for vmad(8), which follows its own connections' ends by the socket that "
         "FI_VMA_GUARDIAN names; vmad's --notify-dir is for processes that run with libvma itself."},
    {.name = "VMA_HANDLE_SIGINTR",
     .label = "SigIntr Ctrl-C Handle",
     .field = &Params::handle_sigintr,
     .text = "Whether the program's handler of SIGINT, when it has run, ends all threads' calls that poll accelerated "
             "sockets with EINTR, also where it was installed with SA_RESTART; without it, it ends the call of the "
             "thread that the signal came to, as in the kernel. A process without a handler ends by SIGINT either "
             "way."},
    {.name = "VMA_HANDLE_SIGSEGV",
     .label = "SegFault Backtrace",
     .field = &Params::handle_sigsegv,
     .text = "Whether a segmentation fault writes the calls that led to it into the log before the process ends. A "
             "handler that the program installs is in its place."},
    {.name = "VMA_EXCEPTION_HANDLING",
     .label = "Exception handling mode",
     .field = &Params::exception_handling,
     .fallback = -1,
     .choices = kExceptionHandling,
     .text =
         "What happens when setsockopt(2), fcntl(2) or ioctl(2) on a socket asks for what acceleration has no part "
         "in, or does not know: -1 a line at debug, and the kernel's socket gets the call; the socket goes back "
         "to the kernel if the call's meaning needs that, or may need it, as an option's that is not known. 0: it goes "
         "back in any case; 1: likewise, and the line "
         "is an error; 2: an error, and the call fails with EINVAL; 3: a line, and the process is aborted. -2: as "
         "-1, and the process ends with status 255 at its first socket if the library can't start. A socket that was "
         "to be "
         "accelerated and can't be, as the provider, its device or the directory of offers fails, stays on the kernel: "
         "in the modes 1 with an error in the log; 2: with one, and the next call on it fails with EINVAL; 3: the "
         "process is aborted."},
};

} // namespace vma::config
