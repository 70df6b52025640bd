// SPDX-License-Identifier: BSD-2-Clause
// Writes log lines to stderr or VMA_LOG_FILE. The file's descriptor is out of the program's reach (private_fd.hpp), and
// a line never costs the program more than the time of a write: no SIGPIPE, no change of errno.
#include "compat/src/config/log.hpp"

#include <time.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "compat/src/config/log_callback.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/config/stacks.hpp"
#include "compat/src/config/state.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/report.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/this_thread.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::config {

[[VMA_STARTUP_DATA]] constinit ConfigState g_config{.log_level = static_cast<int>(Level::kWarn), .log = {}};

namespace {

constexpr std::size_t kLineSize = 1100;
constexpr int kStderr = 2;

struct Look {
    const char *name;
    const char *color;
};

Look look_of(Level level)
{
    switch (level) {
    case Level::kNone:
    case Level::kPanic:
        return {"PANIC", "\033[0;31m"};
    case Level::kError:
        return {"ERROR", "\033[0;31m"};
    case Level::kWarn:
        return {"WARNING", "\033[0;31m"};
    case Level::kInfo:
        return {"INFO", ""};
    case Level::kDetails:
        return {"DETAILS", ""};
    case Level::kDebug:
        return {"DEBUG", ""};
    case Level::kFunc:
        return {"FINE", "\033[2m"};
    case Level::kFuncAll:
        break;
    }
    return {"FINER", "\033[2m"};
}

// A buffer that text is added to until it is full.
class Line
{
public:
    void add(const char *format, ...) __attribute__((format(printf, 2, 3)))
    {
        std::va_list arguments;
        va_start(arguments, format);
        add_list(format, arguments);
        va_end(arguments);
    }
    void add_list(const char *format, std::va_list arguments) __attribute__((format(printf, 2, 0)))
    {
        const int length = std::vsnprintf(text_ + used_, sizeof text_ - kTail - used_, format, arguments);
        if (length > 0)
            used_ += static_cast<std::size_t>(length);
        if (used_ > sizeof text_ - kTail - 1)
            used_ = sizeof text_ - kTail - 1;
    }
    void finish(const char *tail) // shorter than kTail; a line that was cut gets its end too
    {
        const std::size_t length = std::strlen(tail);
        std::memcpy(text_ + used_, tail, length + 1);
        used_ += length;
    }
    const char *text() const { return text_; }
    std::size_t size() const { return used_; }

private:
    static constexpr std::size_t kTail = 8;
    char text_[kLineSize];
    std::size_t used_ = 0;
};

double milliseconds_since(const timespec &start)
{
    timespec now;
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec - start.tv_sec) * 1e3 +
           static_cast<double>(now.tv_nsec - start.tv_nsec) / 1e6;
}

void add_prefix(Line &line, Level level)
{
    const Look look = look_of(level);
    if (g_config.log.colors)
        line.add("%s", look.color);
    const int details = __atomic_load_n(&g_config.log.details, __ATOMIC_RELAXED);
    if (details >= 3)
        line.add(" Time: %9.3f", milliseconds_since(g_config.log.start));
    if (details >= 2 && !g_config.log.bare)
        line.add(" Pid: %5d", ::getpid());
    if (details >= 1 && !g_config.log.bare)
        line.add(" Tid: %5d", ::gettid());
    line.add(" VMA %s: ", look.name); // the blank is libvma's, and in its users' patterns
}

// Blocks what a write may send to this thread (SIGPIPE: nobody reads; SIGXFSZ: RLIMIT_FSIZE), and takes back what our
// own caused.
class NoWriteSignals
{
public:
    NoWriteSignals()
    {
        ::sigemptyset(&ours_);
        ::sigaddset(&ours_, SIGPIPE);
        ::sigaddset(&ours_, SIGXFSZ);
        ::pthread_sigmask(SIG_BLOCK, &ours_, &before_);
        for (const int signal : {SIGPIPE, SIGXFSZ})
            if (::sigismember(&before_, signal) == 1 && is_pending(signal))
                ::sigdelset(&ours_, signal); // it is the program's
    }
    ~NoWriteSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoWriteSignals(const NoWriteSignals &) = delete;
    NoWriteSignals &operator=(const NoWriteSignals &) = delete;
    void take_back() const
    {
        const timespec now = {};
        ::sigtimedwait(&ours_, nullptr, &now);
    }

private:
    static bool is_pending(int signal)
    {
        sigset_t pending;
        return ::sigpending(&pending) == 0 && ::sigismember(&pending, signal) == 1;
    }

    sigset_t ours_;
    sigset_t before_;
};

struct InCallback {
    bool &called = libc::t_libc.in_log_callback;
    void end() { called = false; }
};

// What the function itself causes to be logged goes where the log went before. It may jump.
bool call_back(Level level, const Line &line)
{
    InCallback in;
    const LogCallback callback = g_config.log.callback.load(std::memory_order_acquire);
    if (callback == nullptr || in.called)
        return false;
    const libc::WhenLeft<InCallback, &InCallback::end> left(in);
    in.called = true;
    struct {
        LogCallback callback;
        int level;
        const char *text;
    } told = {callback, static_cast<int>(level), line.text()};
    const auto tell = [](void *what) {
        const auto &[function, severity, text] = *static_cast<decltype(told) *>(what);
        function(severity, text);
    };
    call_on_programs_stack(tell, &told);
    in.end();
    return true;
}

void write_line(Level level, const Line &line)
{
    if (call_back(level, line))
        return;
    const int file = g_config.log.file.load(std::memory_order_acquire);
    if (file < 0 && !g_config.log.stderr_usable.load(std::memory_order_relaxed))
        return;
    if (g_config.log.bare) {
        (void)!libc::uncancelled::write(file >= 0 ? file : kStderr, line.text(), line.size());
        return;
    }
    const NoWriteSignals quiet;
    if (libc::uncancelled::write(file >= 0 ? file : kStderr, line.text(), line.size()) < 0 &&
        (errno == EPIPE || errno == EFBIG))
        quiet.take_back();
}

int open_file(const char *name)
{
    char(&path)[PATH_MAX] = g_texts.log;
    expand_process_id(name, path, sizeof path);
    const int fd = libc::real.open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        const int error = errno;
        VMA_LOG(kWarn, "VMA_LOG_FILE: %s: %s; logging to stderr", path, std::strerror(error));
        return -1;
    }
    return libc::make_private(fd);
}

} // namespace

namespace {

__attribute__((format(printf, 2, 0))) void log_list(Level level, const char *format, std::va_list arguments)
{
    const int saved = errno;
    Line line;
    add_prefix(line, level);
    line.add_list(format, arguments);
    line.finish(g_config.log.colors ? "\033[0m\n" : "\n");
    write_line(level, line);
    errno = saved;
}

} // namespace

void log_line(Level level, const char *format, ...)
{
    std::va_list arguments;
    va_start(arguments, format);
    log_list(level, format, arguments);
    va_end(arguments);
}

void log_last_line(Level level, const char *text)
{
    g_config.log.bare = true;
    if (log_enabled(level))
        log_line(level, "%s", text);
    set_log_level(static_cast<int>(Level::kNone));
}

void set_log_level(int level)
{
    __atomic_store_n(&g_config.log_level, level, __ATOMIC_RELAXED);
    if (auto *const changed = g_config.log.level_changed.load(std::memory_order_relaxed))
        changed(level);
}

[[VMA_AT_STARTUP]] void observe_log_level(void (*changed)(int level))
{
    g_config.log.level_changed.store(changed, std::memory_order_relaxed);
    changed(__atomic_load_n(&g_config.log_level, __ATOMIC_RELAXED));
}

void set_log_details(int details)
{
    __atomic_store_n(&g_config.log.details, details, __ATOMIC_RELAXED);
}

[[VMA_AT_STARTUP]] void open_log(const Params &params)
{
    ::clock_gettime(CLOCK_MONOTONIC, &g_config.log.start);
    g_config.log_level = params.trace_level;
    g_config.log.details = params.log_details;
    g_config.log.name = params.log_file;
    if (g_config.log.name != nullptr)
        g_config.log.file.store(open_file(g_config.log.name), std::memory_order_release);
    const int file = g_config.log.file.load(std::memory_order_relaxed);
    g_config.log.callback.store(take_log_callback(), std::memory_order_release);
    g_config.log.colors = params.log_colors && log_enabled(Level::kError) &&
                          ::isatty(file >= 0 ? file : kStderr) == 1 &&
                          g_config.log.callback.load(std::memory_order_relaxed) == nullptr;
}

void close_log()
{
    g_config.log.callback.store(nullptr, std::memory_order_release);
    const int file = g_config.log.file.exchange(-1, std::memory_order_acq_rel);
    if (file >= 0)
        libc::close_private(file);
}

void reopen_log_in_child()
{
    g_config.log.callback.store(nullptr, std::memory_order_release); // as in VMA: it may be the parent's affair alone
    if (g_config.log.name == nullptr || std::strstr(g_config.log.name, "%d") == nullptr)
        return;
    close_log();
    g_config.log.file.store(open_file(g_config.log.name), std::memory_order_release);
}

void stderr_closed()
{
    g_config.log.stderr_usable.store(false, std::memory_order_relaxed);
}

void stderr_replaced()
{
    g_config.log.stderr_usable.store(true, std::memory_order_relaxed);
}

} // namespace vma::config

namespace vma::libc {

void report_panic(const char *text)
{
    VMA_LOG(kPanic, "%s", text);
}

void report_error(const char *format, ...)
{
    if (!config::log_enabled(config::Level::kError))
        return;
    std::va_list arguments;
    va_start(arguments, format);
    config::log_list(config::Level::kError, format, arguments);
    va_end(arguments);
}

} // namespace vma::libc
