// SPDX-License-Identifier: BSD-2-Clause
// The log: form of the lines, where they go, and that the program doesn't notice.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "compat/src/config/header.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/private_fd.hpp"

using namespace vma::config;

namespace {

std::string g_folder;

std::string path_of(const char *name)
{
    return g_folder + "/" + name;
}

std::string content_of(const std::string &path)
{
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

// The log in a file of its own for one case.
class LogFile
{
public:
    explicit LogFile(const char *name, Level level = Level::kInfo, int details = 0) : path(path_of(name))
    {
        Params params = g_params;
        params.log_file = path.c_str();
        params.trace_level = static_cast<int>(level);
        params.log_details = details;
        open_log(params);
    }
    ~LogFile() { close_log(); }
    LogFile(const LogFile &) = delete;
    LogFile &operator=(const LogFile &) = delete;
    std::string content() const { return content_of(path); }

    const std::string path;
};

// `pattern` is an extended regular expression for all of the text.
void assert_matches(const std::string &text, const std::string &pattern)
{
    regex_t compiled;
    assert_int_equal(::regcomp(&compiled, ("^(" + pattern + ")$").c_str(), REG_EXTENDED | REG_NOSUB), 0);
    const int result = ::regexec(&compiled, text.c_str(), 0, nullptr, 0);
    ::regfree(&compiled);
    if (result != 0) {
        print_error("\"%s\" does not match %s\n", text.c_str(), pattern.c_str());
        UNIT_FAIL("no match");
    }
}

void line_has_level(void **)
{
    LogFile log("level");
    VMA_LOG(kInfo, "%d sheep", 3);
    VMA_LOG(kWarn, "one wolf");
    VMA_LOG(kError, "none");
    assert_string_equal(log.content().c_str(), " VMA INFO: 3 sheep\n VMA WARNING: one wolf\n VMA ERROR: none\n");
}

void level_decides(void **)
{
    LogFile log("quiet", Level::kWarn);
    VMA_LOG(kInfo, "no");
    VMA_LOG(kDebug, "no");
    VMA_LOG(kWarn, "yes");
    assert_string_equal(log.content().c_str(), " VMA WARNING: yes\n");
}

void details(void **)
{
    {
        LogFile log("details1", Level::kInfo, 1);
        VMA_LOG(kInfo, "x");
        assert_matches(log.content(), " Tid: +[0-9]+ VMA INFO: x\n");
    }
    {
        LogFile log("details2", Level::kInfo, 2);
        VMA_LOG(kInfo, "x");
        const std::string pid = std::to_string(::getpid());
        assert_matches(log.content(), " Pid: +" + pid + " Tid: +" + pid + " VMA INFO: x\n");
    }
    {
        LogFile log("details3", Level::kDebug, 3);
        VMA_LOG(kDebug, "x");
        assert_matches(log.content(), " Time: +[0-9]+\\.[0-9]{3} Pid: +[0-9]+ Tid: +[0-9]+ VMA DEBUG: x\n");
    }
}

void long_lines_are_cut(void **)
{
    LogFile log("long");
    const std::string much(5000, 'y');
    VMA_LOG(kInfo, "%s", much.c_str());
    VMA_LOG(kInfo, "next");
    assert_matches(log.content(), " VMA INFO: y{100}y+\n VMA INFO: next\n");
}

void errno_is_kept(void **)
{
    LogFile log("errno");
    errno = ENOTTY;
    VMA_LOG(kInfo, "x");
    assert_int_equal(errno, ENOTTY);
    assert_string_equal(log.content().c_str(), " VMA INFO: x\n");
}

void file_is_appended_to(void **)
{
    for (int i = 0; i < 2; ++i) {
        LogFile log("twice");
        VMA_LOG(kInfo, "%d", i);
    }
    assert_string_equal(content_of(path_of("twice")).c_str(), " VMA INFO: 0\n VMA INFO: 1\n");
}

void name_has_process_id(void **)
{
    LogFile log("of-%d-%s");
    VMA_LOG(kInfo, "parent");
    const pid_t child = ::fork();
    if (child == 0) {
        reopen_log_in_child();
        VMA_LOG(kInfo, "child");
        ::_exit(0);
    }
    assert_int_equal(::waitpid(child, nullptr, 0), child);
    VMA_LOG(kInfo, "parent again");
    const std::string parents = content_of(path_of(("of-" + std::to_string(::getpid()) + "-%s").c_str()));
    const std::string childs = content_of(path_of(("of-" + std::to_string(child) + "-%s").c_str()));
    assert_string_equal(parents.c_str(), " VMA INFO: parent\n VMA INFO: parent again\n");
    assert_string_equal(childs.c_str(), " VMA INFO: child\n");
}

// Runs `body` in a child whose descriptor 2 is `fd`.
template <typename Body> int in_child_with_stderr(int fd, Body body)
{
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(fd, 2);
        ::_exit(body());
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    return status;
}

void broken_pipe_does_not_kill(void **)
{
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    ::close(ends[0]);
    const int status = in_child_with_stderr(ends[1], [] {
        ::signal(SIGPIPE, SIG_DFL);
        VMA_LOG(kWarn, "into the void");
        sigset_t pending;
        ::sigpending(&pending);
        return ::sigismember(&pending, SIGPIPE);
    });
    ::close(ends[1]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

// OpenSSH's part before authentication may write no file: the log's first line there ended it.
void a_limit_of_files_does_not_kill(void **)
{
    const std::string path = path_of("limited");
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    const int status = in_child_with_stderr(fd, [] {
        const rlimit none = {0, 0};
        ::setrlimit(RLIMIT_FSIZE, &none);
        ::signal(SIGXFSZ, SIG_DFL);
        VMA_LOG(kWarn, "no room for this");
        sigset_t pending;
        ::sigpending(&pending);
        return ::sigismember(&pending, SIGXFSZ);
    });
    ::close(fd);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void foreign_file_on_2_is_not_written(void **)
{
    const std::string path = path_of("data");
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    in_child_with_stderr(fd, [] {
        stderr_closed();
        VMA_LOG(kWarn, "not here");
        stderr_replaced();
        VMA_LOG(kWarn, "but here");
        return 0;
    });
    ::close(fd);
    assert_string_equal(content_of(path).c_str(), " VMA WARNING: but here\n");
}

void unwritable_file_means_stderr(void **)
{
    const std::string path = path_of("stderr");
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    in_child_with_stderr(fd, [] {
        Params params = g_params;
        params.log_file = "/nowhere/at/all";
        open_log(params);
        VMA_LOG(kInfo, "x");
        return 0;
    });
    ::close(fd);
    assert_string_equal(content_of(path).c_str(),
                        " VMA WARNING: VMA_LOG_FILE: /nowhere/at/all: No such file or directory; logging to stderr\n"
                        " VMA INFO: x\n");
}

void header_of_the_manual(void **)
{
    Params params = g_params;
    {
        LogFile log("header");
        print_header(params);
        assert_matches(log.content(),
                       " VMA INFO: -+\n"
                       " VMA INFO: VMA_VERSION: [0-9.]+-[0-9]+ Release built on [A-Z][a-z]{2} +[0-9]+ [0-9]{4} "
                       "[0-9]{2}:[0-9]{2}:[0-9]{2}\n"
                       " VMA INFO: Cmd Line: [^\n]*log_test[^\n]*\n"
                       " VMA INFO: -+\n"
                       " VMA INFO: Log Level {22}INFO {23}\\[VMA_TRACELEVEL\\]\n"
                       " VMA INFO: Log File {50}\\[VMA_LOG_FILE\\]\n"
                       " VMA INFO: -+\n");
    }
    params.rx_poll = -1;
    {
        LogFile log("header2");
        print_header(params);
        assert_true(log.content().find(
                        " VMA INFO: Rx Poll Loops                  -1                         [VMA_RX_POLL]\n") !=
                    std::string::npos);
    }
    params.cq_aim_interval_msec = 0;
    params.tcp_nodelay = true;
    {
        LogFile log("header4");
        print_header(params);
        const std::string said = log.content();
        assert_true(said.find(" VMA INFO: CQ Adaptive Moderation         Disabled                   [VMA_CQ_AIM_") !=
                    std::string::npos);
        assert_true(
            said.find(" VMA INFO: TCP nodelay                    1                          [VMA_TCP_NODELAY]") !=
            std::string::npos);
    }
    {
        LogFile log("header5", Level::kDebug);
        print_header(params);
        const std::string said = log.content();
        for (const char *const label : {"Current Time: ", "Pid: ", "System: ", "Architecture: ", "Node: "})
            assert_true(said.find(std::string(" VMA DEBUG: ") + label) != std::string::npos);
    }
    LogFile log("header3", Level::kDetails);
    print_header(params);
    assert_true(log.content().find(
                    " VMA DETAILS: Thread mode                    Multi spin lock            [VMA_THREAD_MODE]\n") !=
                std::string::npos);
}

int make_folder(void **)
{
    char name[] = "/tmp/vma-log-test-XXXXXX";
    if (::mkdtemp(name) == nullptr)
        return -1;
    g_folder = name;
    return 0;
}

int remove_folder(void **)
{
    std::filesystem::remove_all(g_folder);
    return 0;
}

std::string g_told;

void tell(int level, const char *line)
{
    g_told += std::to_string(level) + " " + line;
    if (g_told.size() < 100)
        VMA_LOG(kWarn, "said within");
}

// VMA_LOG_CB_FUNC_PTR. What it logs itself, and what a child logs, goes where the log went without it.
void lines_go_to_the_programs_function(void **)
{
    char pointer[32];
    std::snprintf(pointer, sizeof pointer, "%p", reinterpret_cast<void *>(&tell));
    ::setenv("VMA_LOG_CB_FUNC_PTR", pointer, 1);
    const LogFile log("callback", Level::kDebug, 1);
    assert_null(::getenv("VMA_LOG_CB_FUNC_PTR"));
    VMA_LOG(kDebug, "one");
    assert_matches(g_told, "5  Tid: +[0-9]+ VMA DEBUG: one\n");
    assert_matches(log.content(), " Tid: +[0-9]+ VMA WARNING: said within\n");
    const pid_t child = ::fork();
    if (child == 0) {
        reopen_log_in_child();
        VMA_LOG(kInfo, "child");
        ::_exit(g_told.find("child") == std::string::npos ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_matches(log.content(), ".*\n Tid: +[0-9]+ VMA INFO: child\n");
    const std::string much(5000, 'y');
    VMA_LOG(kInfo, "%s", much.c_str());
    assert_int_equal(g_told.back(), '\n');
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(line_has_level),
        cmocka_unit_test(level_decides),
        cmocka_unit_test(details),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(errno_is_kept),
        cmocka_unit_test(lines_go_to_the_programs_function),
        cmocka_unit_test(file_is_appended_to),
        cmocka_unit_test(name_has_process_id),
        cmocka_unit_test(broken_pipe_does_not_kill),
        cmocka_unit_test(a_limit_of_files_does_not_kill),
        cmocka_unit_test(foreign_file_on_2_is_not_written),
        cmocka_unit_test(unwritable_file_means_stderr),
        cmocka_unit_test(header_of_the_manual),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
