// SPDX-License-Identifier: BSD-2-Clause
// To standard output, into a file, or to whoever asks by HTTP. The signals that end it do so between two pages.
#include "util/vma_stats/metrics/run.hpp"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "util/vma_stats/metrics/collect.hpp"
#include "util/vma_stats/metrics/listen_address.hpp"
#include "util/vma_stats/metrics/server.hpp"
#include "util/vma_stats/metrics/text_file.hpp"

namespace vma_stats {

namespace {

// Readable once the process is to end.
int open_end()
{
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGINT);
    ::sigaddset(&signals, SIGTERM);
    if (::sigprocmask(SIG_BLOCK, &signals, nullptr) != 0)
        return -1;
    return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

int fail(const std::string &what)
{
    fprintf(stderr, "vmastat: %s: %s\n", what.c_str(), strerror(errno));
    return 1;
}

bool put_page(const Options &o, const std::string &page)
{
    if (!o.prometheus_file.empty())
        return replace_file(o.prometheus_file, page);
    return fwrite(page.data(), 1, page.size(), stdout) == page.size() && fflush(stdout) == 0;
}

// False: it is to end.
bool wait_seconds(int end, unsigned seconds)
{
    pollfd wait = {end, POLLIN, 0};
    return ::poll(&wait, 1, static_cast<int>(seconds * 1000)) == 0;
}

int write_pages(const Options &o, int end)
{
    Collector collector(o);
    const unsigned cycles = o.repeats ? o.cycles : 1;
    for (unsigned cycle = 1;; ++cycle) {
        if (!put_page(o, collector.page()))
            return fail(o.prometheus_file.empty() ? "standard output" : o.prometheus_file);
        if (cycle == cycles || !wait_seconds(end, o.interval))
            return 0;
    }
}

int serve(const Options &o, int end)
{
    ListenAddress address;
    read_listen_address(o.listen, address); // it was looked at with the options
    const int listener = open_listener(address);
    if (listener < 0)
        return fail(o.listen);
    fprintf(stderr, "vmastat: serving %s\n", describe_listener(listener, address).c_str());
    Collector collector(o);
    Server server(listener, [&collector] { return collector.page(); });
    server.run(end);
    if (!address.path.empty())
        ::unlink(address.path.c_str());
    return 0;
}

} // namespace

int run_metrics(const Options &options)
{
    const int end = open_end();
    if (end < 0)
        return fail("signals");
    const int status = options.listen.empty() ? write_pages(options, end) : serve(options, end);
    ::close(end);
    return status;
}

} // namespace vma_stats
