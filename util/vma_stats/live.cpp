// SPDX-License-Identifier: BSD-2-Clause
// The screen and the keys of the full-screen view. A look a second at the file; a key is answered at once.
#include "util/vma_stats/live.hpp"

#define NCURSES_NOMACROS 1 // functions, as any other library's
#include <curses.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <optional>

#include "util/vma_stats/kernel_sockets.hpp"
#include "util/vma_stats/live_rows.hpp"
#include "util/vma_stats/processes.hpp"

namespace vma_stats {

namespace {

constexpr int kEscape = 27;
constexpr int kDelete = 127;
constexpr double kLookMs = 1000;
constexpr const char *kKeys =
    " q quit  n next process  s sort  r reverse  a all/accelerated/kernel  / filter  p pause  z zero  +/- interval ";

volatile sig_atomic_t g_stopped = 0;

// From newterm() to endwin().
class Screen
{
public:
    Screen() : terminal_(::newterm(nullptr, stdout, stdin))
    {
        if (terminal_ == nullptr)
            return;
        struct sigaction stop = {};
        stop.sa_handler = [](int) { g_stopped = 1; };
        for (const int number : {SIGINT, SIGTERM, SIGHUP})
            ::sigaction(number, &stop, nullptr); // in place of curses' own, which don't return
        ::cbreak();
        ::noecho();
        ::keypad(stdscr, TRUE);
        ::set_escdelay(25);
        ::curs_set(0);
    }
    ~Screen()
    {
        if (terminal_ == nullptr)
            return;
        ::endwin();
        ::delscreen(terminal_);
    }
    Screen(const Screen &) = delete;
    Screen &operator=(const Screen &) = delete;
    bool is_open() const { return terminal_ != nullptr; }

private:
    SCREEN *terminal_;
};

void put(int line, const std::string &text, attr_t look = A_NORMAL)
{
    if (line < 0 || line >= LINES)
        return;
    ::attrset(static_cast<int>(look));
    ::mvaddnstr(line, 0, text.c_str(), COLS - 1);
    ::attrset(static_cast<int>(A_NORMAL));
}

std::string padded(std::string text)
{
    if (text.size() < static_cast<std::size_t>(COLS))
        text.resize(static_cast<std::size_t>(COLS), ' ');
    return text;
}

class Live
{
public:
    Live(const Options &options, pid_t pid) : options_(options), pid_(pid), interval_(options.interval) {}

    void run()
    {
        look();
        while (g_stopped == 0) {
            draw();
            if (!wait_for_key())
                return;
        }
    }

private:
    // ---- the process

    void choose_next(int step)
    {
        const std::vector<Found> all = list_files(options_.folder);
        if (all.empty())
            return;
        const auto here = std::find_if(all.begin(), all.end(), [this](const Found &one) { return one.pid >= pid_; });
        const auto count = static_cast<long>(all.size());
        long place = here - all.begin();
        if (here != all.end() && here->pid == pid_)
            place += step;
        pid_ = all[static_cast<std::size_t>((place % count + count) % count)].pid;
        now_.reset();
        before_.reset();
        look();
    }

    void choose_first()
    {
        for (const Found &one : list_files(options_.folder)) {
            Snapshot s;
            std::string error;
            if (read_snapshot(one.path, s, error) && lives(s) &&
                (options_.name.empty() || executable_of(one.pid) == options_.name)) {
                pid_ = one.pid;
                return;
            }
        }
    }

    void look()
    {
        if (pid_ == 0)
            choose_first();
        Snapshot fresh;
        error_.clear();
        if (pid_ == 0 || !read_snapshot(path_of(options_.folder, pid_), fresh, error_)) {
            alive_ = false;
            return;
        }
        alive_ = lives(fresh);
        if (alive_)
            ask_kernel(fresh);
        add_reasons(fresh);
        before_ = std::move(now_);
        now_ = std::move(fresh);
    }

    // ---- the screen

    void draw()
    {
        ::erase();
        int line = 0;
        if (!now_) {
            put(line++, padded(title(0, 0)), A_REVERSE);
            put(line + 1, pid_ == 0
                              ? "No process with libvma.so has a file in " + options_.folder + ": waiting for one."
                              : path_of(options_.folder, pid_) + ": " + error_);
        } else {
            draw_process(line);
        }
        put(LINES - 1,
            padded(asking_          ? " filter: " + choice_.filter + "_"
                   : !note_.empty() ? " " + note_
                                    : kKeys),
            A_REVERSE);
        ::refresh();
    }

    void draw_process(int line)
    {
        const Shown shown = {&*now_, before_ ? &*before_ : &*now_, &options_};
        std::size_t sockets = 0;
        std::size_t offloaded = 0;
        const std::vector<std::string> rows = make_rows(shown, choice_, sockets, offloaded);
        put(line++, padded(title(sockets, offloaded)), A_REVERSE);
        put(line++, std::string("sorted by ") + name_of(choice_.order) + (choice_.reverse ? ", reversed" : "") +
                        "; shown: " + name_of(choice_.kind) +
                        (choice_.filter.empty() ? "" : ", with \"" + choice_.filter + "\""));
        for (const std::string &mux : mux_lines(shown))
            if (line < LINES / 2)
                put(line++, mux);
        for (const std::string &port : port_lines(shown))
            if (line < LINES / 2)
                put(line++, port);
        put(line++, title_of_rows(), A_BOLD);
        first_ = std::clamp(first_, 0, std::max(static_cast<int>(rows.size()) - 1, 0));
        for (std::size_t i = static_cast<std::size_t>(first_); i < rows.size() && line < LINES - 1; ++i)
            put(line++, rows[i]);
    }

    std::string title(std::size_t sockets, std::size_t offloaded) const
    {
        std::string text = " vma_stats";
        if (now_) {
            text += "  " + program_of(*now_) + " pid " + std::to_string(pid_);
            if (!alive_)
                text += " (ended)";
            text += "  " + std::to_string(sockets) + " sockets, " + std::to_string(offloaded) + " accelerated";
        }
        return text + "  every " + std::to_string(interval_) + " s" + (paused_ ? "  [paused]" : "");
    }

    // ---- the keys. False: leave

    bool wait_for_key()
    {
        const double since = now_ ? (clock_seconds() - now_->seconds) * 1000 : 0;
        const double left = kLookMs * interval_ - (now_ ? since : 0);
        ::timeout(static_cast<int>(std::clamp(left, 1.0, kLookMs * interval_)));
        const int key = ::getch();
        if (key == ERR) {
            if (errno != EINTR && !paused_)
                look();
            errno = 0;
            return true;
        }
        return asking_ ? answer_filter(key) : answer(key);
    }

    static double clock_seconds()
    {
        timespec t = {};
        ::clock_gettime(CLOCK_MONOTONIC, &t);
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
    }

    bool answer_filter(int key)
    {
        if (key == '\n' || key == KEY_ENTER || key == kEscape) {
            asking_ = false;
            if (key == kEscape)
                choice_.filter.clear();
        } else if (key == KEY_BACKSPACE || key == kDelete || key == '\b') {
            if (!choice_.filter.empty())
                choice_.filter.pop_back();
        } else if (key >= ' ' && key < kDelete && choice_.filter.size() < 60) {
            choice_.filter += static_cast<char>(key);
        }
        return true;
    }

    bool answer(int key)
    {
        note_.clear();
        switch (key) {
        case 'q':
        case 'Q':
            return false;
        case 'n':
        case 'N':
            choose_next(key == 'n' ? 1 : -1);
            return true;
        case 's':
            choice_.order = after(choice_.order);
            return true;
        case 'r':
            choice_.reverse = !choice_.reverse;
            return true;
        case 'a':
            choice_.kind = after(choice_.kind);
            return true;
        case '/':
            asking_ = true;
            choice_.filter.clear();
            return true;
        case 'p':
            paused_ = !paused_;
            return true;
        case 'z':
            zero();
            return true;
        default:
            move(key);
            return true;
        }
    }

    void move(int key)
    {
        constexpr unsigned kLongest = 60;
        if (key == '+' && interval_ < kLongest)
            ++interval_;
        else if (key == '-' && interval_ > 1)
            --interval_;
        else if (key == KEY_DOWN || key == KEY_NPAGE)
            first_ += key == KEY_DOWN ? 1 : LINES / 2;
        else if (key == KEY_UP || key == KEY_PPAGE)
            first_ -= key == KEY_UP ? 1 : LINES / 2;
        else if (key == KEY_HOME)
            first_ = 0;
    }

    void zero()
    {
        if (!now_)
            return;
        note_ = zero_counters(path_of(options_.folder, pid_), *now_)
                    ? "the totals of all readers begin at zero"
                    : std::string("counters can't be zeroed: ") + strerror(errno);
    }

    template <typename Enum> static Enum after(Enum value)
    {
        const int next = static_cast<int>(value) + 1;
        return static_cast<Enum>(next == static_cast<int>(Enum::kEnd) ? 0 : next);
    }

    const Options &options_;
    pid_t pid_;
    unsigned interval_; // s
    std::optional<Snapshot> now_;
    std::optional<Snapshot> before_;
    bool alive_ = false;
    bool paused_ = false;
    bool asking_ = false; // for the filter
    int first_ = 0;       // row that is shown
    Choice choice_;
    std::string note_;
    std::string error_;
};

} // namespace

int run_live(const Options &options, pid_t pid)
{
    const Screen screen;
    if (!screen.is_open()) {
        fprintf(stderr, "vmastat: the live view needs a terminal, and TERM to name it\n");
        return 1;
    }
    Live(options, pid).run();
    return 0;
}

} // namespace vma_stats
