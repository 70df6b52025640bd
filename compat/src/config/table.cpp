// SPDX-License-Identifier: BSD-2-Clause
// The parameters: names, defaults and ranges of the VMA manual, and a few of our own. To add one, add a field to Params
// and a row here; nothing else knows their names.
#include "compat/src/config/table.hpp"

#include "compat/src/config/log.hpp"

namespace vma::config {

namespace {

constexpr std::int64_t kSecond = 1000000; // us

constexpr std::int64_t level(Level value)
{
    return static_cast<std::int64_t>(value);
}

// The digits are those of the manual, older than the levels' own numbers.
constexpr Choice kTraceLevels[] = {
    {"none", level(Level::kNone), "NONE"},    {"panic", level(Level::kPanic), "PANIC"},
    {"error", level(Level::kError), "ERROR"}, {"warn", level(Level::kWarn), "WARNING"},
    {"warning", level(Level::kWarn), ""},     {"info", level(Level::kInfo), "INFO"},
    {"information", level(Level::kInfo), ""}, {"details", level(Level::kDetails), "DETAILS"},
    {"debug", level(Level::kDebug), "DEBUG"}, {"fine", level(Level::kFunc), "FINE"},
    {"func", level(Level::kFunc), ""},        {"finer", level(Level::kFuncAll), "FINER"},
    {"funcall", level(Level::kFuncAll), ""},  {"func_all", level(Level::kFuncAll), ""},
    {"all", level(Level::kFuncAll), ""},      {"0", level(Level::kPanic), ""},
    {"1", level(Level::kError), ""},          {"2", level(Level::kWarn), ""},
    {"3", level(Level::kInfo), ""},           {"4", level(Level::kDebug), ""},
    {"5", level(Level::kFunc), ""},           {"6", level(Level::kFuncAll), ""},
};

constexpr Choice kSpecs[] = {
    {"none", static_cast<std::int64_t>(Spec::kNone), "NONE"},
    {"0", static_cast<std::int64_t>(Spec::kNone), ""},
    {"latency", static_cast<std::int64_t>(Spec::kLatency), "Latency"},
    {"15", static_cast<std::int64_t>(Spec::kLatency), ""},
};

constexpr Choice kTimeConversion[] = {
    {"0", 0, "Disabled"}, {"1", 1, "Raw-HW time"}, {"2", 2, "Best-effort"}, {"3", 3, "Sync"}, {"4", 4, "PTP"},
};

constexpr Choice kThreadModes[] = {
    {"0", 0, "Single"},
    {"1", 1, "Multi spin lock"},
    {"2", 2, "Multi mutex lock"},
    {"3", 3, "Multi more threads than cores"},
};

constexpr Choice kCongestion[] = {
    {"socket", 2, "of the socket"},
    {"0", 0, "Reno"},
    {"lwip", 0, ""},
    {"reno", 0, ""},
    {"1", 1, "CUBIC"},
    {"cubic", 1, ""},
};

constexpr Choice kTimestampOption[] = {
    {"0", 0, "off"}, {"off", 0, ""}, {"1", 1, "on"}, {"on", 1, ""}, {"2", 2, "as the kernel says"}, {"os", 2, ""},
};

constexpr Choice kControlThread[] = {
    {"0", 0, "Disabled"},   {"disable", 0, ""},         {"1", 1, "With wakeup"},
    {"with_wakeup", 1, ""}, {"2", 2, "Without wakeup"}, {"no_wakeup", 2, ""},
};

constexpr Parameter kTable[] = {
    {.name = "VMA_SPEC",
     .label = "VMA Spec",
     .field = &Params::spec,
     .choices = kSpecs,
     .text = "A profile: defaults for other parameters, which a variable of their own still overrides. \"latency\" "
             "(15): the shortest way at the price of a processor that always polls."},
    {.name = "VMA_TRACELEVEL",
     .label = "Log Level",
     .field = &Params::trace_level,
     .fallback = level(Level::kInfo),
     .always_shown = true,
     .choices = kTraceLevels,
     .text = "What is logged: none, panic (0), error (1), warn (2), info (3), details (all parameters at start-up), "
             "debug (4; says of each connection whether it is accelerated, and if not, why), fine (5), finer (6)."},
    {.name = "VMA_LOG_DETAILS",
     .label = "Log Details",
     .field = &Params::log_details,
     .max = 3,
     .text = "What each line starts with: 0 nothing, 1 the thread, 2 process and thread, 3 also the milliseconds "
             "since the library was loaded. 2 if VMA_TRACELEVEL is debug or more."},
    {.name = "VMA_LOG_COLORS",
     .label = "Log Colors",
     .field = &Params::log_colors,
     .fallback = 1,
     .text = "Colours by level; never when the log is not a terminal."},
    {.name = "VMA_LOG_FILE",
     .label = "Log File",
     .field = &Params::log_file,
     .always_shown = true,
     .text = "The file that the log is appended to instead of stderr. One %d in it stands for the process's id."},
    {.name = "VMA_RX_POLL",
     .label = "Rx Poll Loops",
     .field = &Params::rx_poll,
     .fallback = 100000,
     .min = -1,
     .max = 100 * kSecond,
     .overrides = {{{Spec::kLatency, -1}}},
     .text = "How many microseconds a blocking receive polls before it sleeps; -1: it never sleeps, 0: it looks once."},
    {.name = "VMA_RX_UDP_POLL_OS_RATIO",
     .label = "Rx UDP Poll OS Ratio",
     .field = &Params::rx_udp_poll_os_ratio,
     .fallback = 100,
     .max = 1000000,
     .text =
         "A receive that waits on a UDP socket looks for datagrams that came by the kernel once in so many polls, and "
         "before it sleeps; 0: rarely, once in 1024."},
    {.name = "VMA_RX_POLL_INIT",
     .label = "Rx Poll Init Loops",
     .field = &Params::rx_poll_init,
     .min = -1,
     .max = 100 * kSecond,
     .text = "How many microseconds a blocking receive polls a UDP socket that no sender is accelerated to, before it "
             "sleeps; "
             "-1: it never sleeps, 0: it sleeps at once."},
    {.name = "VMA_TX_MC_LOOPBACK",
     .label = "TX MC Loopback",
     .field = &Params::tx_mc_loopback,
     .fallback = 1,
     .text = "IP_MULTICAST_LOOP and IPV6_MULTICAST_LOOP of a new UDP socket, until the program sets them."},
    {.name = "VMA_RX_BYTES_MIN",
     .label = "Rx Byte Min Limit",
     .field = &Params::rx_bytes_min,
     .fallback = 65536,
     .max = 1 << 30,
     .text = "The least bytes of datagrams that wait for a UDP socket's reader, where its SO_RCVBUF says less."},
    {.name = "VMA_TX_NONBLOCKED_EAGAINS",
     .label = "Tx non-blocked eagains",
     .field = &Params::tx_nonblocked_eagains,
     .text = "Whether a send that doesn't wait ends with EAGAIN when its datagram is lost because the receiver has no "
             "room; "
             "else it succeeds, as in the kernel."},
    {.name = "VMA_SELECT_POLL",
     .label = "Select Poll (usec)",
     .field = &Params::select_poll,
     .fallback = 100000,
     .min = -1,
     .max = 100 * kSecond,
     .overrides = {{{Spec::kLatency, -1}}},
     .text = "How many microseconds select(), poll() and epoll_wait() poll before they sleep; -1: they never sleep, "
             "0: they look once."},
    {.name = "VMA_SELECT_POLL_OS_RATIO",
     .label = "Select Poll OS Ratio",
     .field = &Params::select_poll_os_ratio,
     .fallback = 10,
     .max = 1000000,
     .overrides = {{{Spec::kLatency, 1}}},
     .text = "select(), poll() and epoll_wait() look at the descriptors that are not accelerated once in so many "
             "polls, and before they sleep; 0: rarely, once in 1024."},
    {.name = "VMA_SELECT_SKIP_OS",
     .label = "Select Skip OS",
     .field = &Params::select_skip_os,
     .fallback = 4,
     .max = 10000,
     .overrides = {{{Spec::kLatency, 1}}},
     .text = "select(), poll() and epoll_wait() look at the descriptors that are not accelerated first in every n-th "
             "call, even "
             "if an accelerated one is ready; 0: rarely."},
    {.name = "VMA_OFFLOADED_SOCKETS",
     .label = "Offloaded Sockets",
     .field = &Params::offloaded_sockets,
     .fallback = 1,
     .text = "Whether sockets are accelerated."},
    {.name = "VMA_SOCKETXTREME",
     .label = "SocketXtreme mode",
     .field = &Params::socketxtreme,
     .text = "Whether socketxtreme_poll(), of the extra API (vma_extra(3)), serves the sockets of this program."},
    {.name = "VMA_HW_TS_CONVERSION",
     .label = "HW TS Conversion",
     .field = &Params::hw_ts_conversion,
     .fallback = 3,
     .choices = kTimeConversion,
     .idle = true,
     .text = "No effect here: a device's time stamps (SO_TIMESTAMPING with SOF_TIMESTAMPING_RAW_HARDWARE) are those of "
             "its own "
             "clock, as the kernel gives them; ptp4l and phc2sys keep that clock and the system's together."},
    {.name = "VMA_THREAD_MODE",
     .label = "Thread mode",
     .field = &Params::thread_mode,
     .fallback = 1,
     .choices = kThreadModes,
     .overrides = {{{Spec::kLatency, 0}}},
     .text =
         "How the program's threads use its sockets: 0 one thread, 1 several, 2 several that sleep for a lock, 3 more "
         "threads than processors. It is shown in the header and changes nothing: sockets are safe for threads "
         "always."},
    {.name = "VMA_INTERNAL_THREAD_AFFINITY",
     .label = "Internal Thread Affinity",
     .field = &Params::internal_thread_affinity,
     .text =
         "The processors that the library's own thread runs on: a hexadecimal mask (0x3: 0 and 1), or a list "
         "(0,4,7-10; 0-10:2 is every second one). -1, as without the variable: those of the thread that starts it."},
    {.name = "VMA_INTERNAL_THREAD_CPUSET",
     .label = "Internal Thread Cpuset",
     .field = &Params::internal_thread_cpuset,
     .text = "The folder of a cpuset that the library's own thread enters when it starts, as "
             "/sys/fs/cgroup/cpuset/my_set, or of a threaded control group of version 2; in it "
             "VMA_INTERNAL_THREAD_AFFINITY is followed. Empty for the process's."},
    {.name = "VMA_LIFT_AFTER",
     .label = "Lift After (calls)",
     .field = &Params::lift_after,
     .fallback = 32,
     .min = 1,
     .max = 1000000000,
     .overrides = {{{Spec::kLatency, 1}}},
     .text = "After how many sends and receives a connection leaves the kernel."},
    {.name = "VMA_STREAM_RING",
     .label = "Stream Ring (bytes)",
     .field = &Params::stream_ring,
     .fallback = 256 << 10,
     .min = 64 << 10,
     .max = 16 << 20,
     .power_of_two = true,
     .text = "Receive buffer of an accelerated connection."},
    {.name = "VMA_REMOTE_STREAMS",
     .label = "Remote Streams",
     .field = &Params::remote_streams,
     .text = "Whether connections to other hosts are accelerated too, over RDMA devices. Only where all users of both "
             "hosts are trusted: see LIMITS."},
    {.name = "VMA_ETHERNET",
     .label = "Ethernet Ports",
     .field = &Params::ethernet,
     .text = "Interfaces, with commas between, or * for all: TCP connections and UDP sockets whose peers are reached "
             "by one of them leave "
             "the kernel for the interface itself, whoever the peer is. Needs rights; empty for none. See \"Ethernet "
             "ports\"."},
    {.name = "VMA_TCP_NODELAY",
     .label = "TCP nodelay",
     .field = &Params::tcp_nodelay,
     .text = "Whether connections on Ethernet ports send small segments at once, as with TCP_NODELAY, whatever the "
             "program says."},
    {.name = "VMA_TCP_QUICKACK",
     .label = "TCP quickack",
     .field = &Params::tcp_quickack,
     .text = "Whether connections on Ethernet ports acknowledge each segment at once."},
    {.name = "VMA_TCP_QUICKACK_THRESHOLD",
     .label = "TCP quickack threshold",
     .field = &Params::tcp_quickack_threshold,
     .max = 65535,
     .text = "Bytes of a segment above which connections on Ethernet ports delay acknowledgements in spite of "
             "VMA_TCP_QUICKACK or TCP_QUICKACK; 0 for none."},
    {.name = "VMA_TCP_MAX_SYN_RATE",
     .label = "TCP max SYN rate",
     .field = &Params::tcp_max_syn_rate,
     .max = 100000,
     .idle = true,
     .text = "No effect here: the kernel accepts connections before they come to a port, with its own limits "
             "(net.ipv4.tcp_max_syn_backlog, tcp_syncookies). Listeners of libfabric programs have FI_OPT_VMA_TCP."},
    {.name = "VMA_TCP_TIMESTAMP_OPTION",
     .label = "TCP timestamp option",
     .field = &Params::tcp_timestamp_option,
     .fallback = 2,
     .choices = kTimestampOption,
     .idle = true,
     .text =
         "No effect here: time stamps are agreed on when the kernel opens the connection (net.ipv4.tcp_timestamps)."},
    {.name = "VMA_TCP_TIMER_RESOLUTION_MSEC",
     .label = "TCP Timer Resolution (msec)",
     .field = &Params::tcp_timer_resolution_msec,
     .fallback = 100,
     .max = 1000000,
     .idle = true,
     .text = "No effect here: TCP's timers ring when they are due."},
    {.name = "VMA_TCP_CTL_THREAD",
     .label = "TCP control thread",
     .field = &Params::tcp_ctl_thread,
     .choices = kControlThread,
     .idle = true,
     .text = "No effect here: the library's thread moves TCP on where the program does not, and never between a "
             "program's own calls."},
    {.name = "VMA_TCP_CC_ALGO",
     .label = "TCP CC Algo",
     .field = &Params::tcp_cc_algo,
     .fallback = 2,
     .choices = kCongestion,
     .text = "Congestion control of connections on Ethernet ports: 0 NewReno, 1 CUBIC, \"socket\" as TCP_CONGESTION "
             "says (CUBIC for "
             "all but reno)."},
    {.name = "VMA_MTU",
     .label = "MTU",
     .field = &Params::mtu,
     .max = 65535,
     .text = "Bytes of a packet that connections on Ethernet ports send at most; 0 as the way to the peer allows."},
    {.name = "VMA_MSS",
     .label = "MSS",
     .field = &Params::mss,
     .max = 65535,
     .text = "Bytes of data and options in a segment that connections on Ethernet ports send at most; 0 as the MTU "
             "allows."},
    {.name = "VMA_GRO_STREAMS_MAX",
     .label = "GRO max streams",
     .field = &Params::gro_streams_max,
     .fallback = 32,
     .max = 2147483647,
     .overrides = {{{Spec::kLatency, 0}}},
     .text = "Connections of an Ethernet port whose segments are merged at a time (generic receive offload): those "
             "that came together and continue one another cost the TCP of this library little more than one. Nothing "
             "waits for more to come. 0 for none; more than 32, the frames that are taken at a time, are as 32."},
    {.name = "VMA_TCP_3T_RULES",
     .label = "TCP 3T rules",
     .field = &Params::tcp_3t_rules,
     .idle = true,
     .text = "No effect here: connections on Ethernet ports are steered by both addresses and ports, as their listener "
             "stays in the kernel."},
    {.name = "VMA_UDP_3T_RULES",
     .label = "UDP 3T rules",
     .field = &Params::udp_3t_rules,
     .idle = true,
     .text = "No effect here: on Ethernet ports connected UDP sockets are steered by both addresses and ports, as what "
             "others send to them is the kernel's to refuse; all others by their own."},
    {.name = "VMA_RING_DEV_MEM_TX",
     .label = "Ring On Device Memory TX",
     .field = &Params::ring_dev_mem_tx,
     .max = 256 << 10,
     .overrides = {{{Spec::kLatency, 16384}}},
     .text =
         "Bytes of an RDMA device's own memory that each connection to another host sends from what is too long to go "
         "inline; 0 for none. A device that has none, or none left, sends from the host's memory."},
    {.name = "VMA_SHM_DIR",
     .label = "Shared Memory Directory",
     .field = &Params::shm_dir,
     .text = "Where the user's processes find each other; empty for the default."},
    {.name = "VMA_PROVIDER",
     .label = "Provider Library",
     .field = &Params::provider,
     .text = "Full path of libvma-fi.so; empty to look for it beside libvma.so."},
};

constexpr Params defaults()
{
    Params params{};
    for (const Parameter &row : kTable)
        set_number(params, row, row.fallback);
    return params;
}

} // namespace

constinit Params g_params = defaults();

std::span<const Parameter> parameters()
{
    return kTable;
}

} // namespace vma::config
