// SPDX-License-Identifier: BSD-2-Clause
// Rows of the table: what concerns the whole process.
#pragma once

#include "compat/src/config/table.hpp"

namespace vma::config {

inline constexpr Choice kExceptionHandling[] = {
    {"-2", -2, "-2 (exit)"},
    {"-1", -1, "-1 (just log debug message)"},
    {"0", 0, "0 (log debug and un-offload)"},
    {"1", 1, "1 (log error and un-offload)"},
    {"2", 2, "2 (log error and return error)"},
    {"3", 3, "3 (log error and abort)"},
};

inline constexpr Parameter kProcessRows[] = {
    {.name = "VMA_CONFIG_FILE",
     .label = "Conf File",
     .field = &Params::config_file,
     .fallback_text = "/etc/libvma.conf",
     .text =
         "The file of rules that say which sockets are accelerated: libvma.conf(5). The default need not be there."},
    {.name = "VMA_APPLICATION_ID",
     .label = "Application ID",
     .field = &Params::application_id,
     .fallback_text = "VMA_DEFAULT_APPLICATION_ID",
     .text = "Which rules of libvma.conf are this program's, besides its name. The default has those for *."},
    {.name = "VMA_SPEC_PARAM1",
     .label = "VMA Spec parameter 1",
     .field = &Params::spec_param1,
     .fallback = 1,
     .max = kMostNumber,
     .overrides = {{{Spec::k29West, 5000}, {Spec::kWombat, 5000}}},
     .idle = true,
     .text = "No effect here: writes to pipes are not held back to be merged, under no profile."},
    {.name = "VMA_SPEC_PARAM2",
     .label = "VMA Spec parameter 2",
     .field = &Params::spec_param2,
     .fallback = 1,
     .max = kMostNumber,
     .overrides = {{{Spec::k29West, 50}, {Spec::kWombat, 50}}},
     .idle = true,
     .text = "No effect here, as VMA_SPEC_PARAM1."},
    {.name = "VMA_VMAD_NOTIFY_DIR",
     .label = "VMAD output directory",
     .field = &Params::vmad_notify_dir,
     .fallback_text = "/tmp/vma",
     .idle = true,
     .text = "No effect here: no files are written for vmad(8), whose socket FI_VMA_GUARDIAN names."},
    {.name = "VMA_HANDLE_SIGINTR",
     .label = "SigIntr Ctrl-C Handle",
     .field = &Params::handle_sigintr,
     .text = "Whether the library has a handler of its own for SIGINT: all threads' calls that wait for accelerated "
             "sockets end with EINTR, not only the call of the thread that the signal came to; then the program's "
             "handler runs, or the process ends, as if the library had none."},
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
     .text = "What happens when a call on an accelerated socket is none that the library knows (options, fcntl(2), "
             "ioctl(2)): -1 it is logged at debug and the kernel's socket gets it, which has the socket back if its "
             "meaning needs that; 0 likewise, and the socket goes back to the kernel in any case; 1 as 0, logged as an "
             "error; 2 it is logged as an error and fails with EINVAL; 3 it is logged and the process is aborted; -2 "
             "it is logged and the process ends with exit(2)'s status 1."},
};

} // namespace vma::config
