// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/info/config.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <new>
#include <string>
#include <sys/stat.h>

#include "core/fd.hpp"
#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ofi/libfabric.hpp"

namespace vma::ofi {
namespace {

struct Known {
    std::string path;
    bool usable = true;
    core::ConfigFile file;
    Known *next = nullptr;
};

// The process's: each file that was ever named, newest first, none of which is freed. Without a lock, which a fork()
// could leave held in the child: of two threads that read a file at once one keeps it, and tells what is wrong with it.
constinit std::atomic<Known *> g_known{nullptr};

const char *wanted_path() noexcept
{
    if (const char *path = param(Param::config))
        return path;
    const char *path = libfabric_attached() ? ::secure_getenv("CCI_CONFIG") : nullptr;
    return path != nullptr && *path != '\0' ? path : nullptr;
}

// 0, or an errno. A pipe or a device is not waited for.
int read_file(const char *path, std::string &text)
{
    const core::UniqueFd fd(core::kernel::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat about {
    };
    if (!fd || core::kernel::fstat(fd.get(), &about) != 0)
        return errno;
    if (!S_ISREG(about.st_mode))
        return S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
    char piece[1024];
    for (;;) {
        const ssize_t got = core::kernel::read(fd.get(), piece, sizeof piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 ? 0 : errno;
        text.append(piece, static_cast<std::size_t>(got));
        if (text.size() > core::kMostConfigBytes)
            return 0; // the parser says so
    }
}

std::unique_ptr<Known> read_known(const char *path, std::vector<core::ConfigProblem> &problems)
{
    std::unique_ptr<Known> known(new (std::nothrow) Known);
    std::string text;
    if (!known)
        return known;
    known->path = path;
    if (const int error = read_file(path, text)) {
        known->usable = false;
        problems.push_back({0, true,
                            "it can't be read as a file (" + std::string(std::strerror(error)) +
                                "): no device of this provider is used"});
    } else {
        known->file = core::parse_config(text, problems);
    }
    return known;
}

void tell(const Known &known, const std::vector<core::ConfigProblem> &problems)
{
    for (const core::ConfigProblem &problem : problems) {
        const std::string line = problem.line != 0 ? ":" + std::to_string(problem.line) : std::string();
        if (problem.is_warning)
            VMA_WARN(fabric, "%s%s: %s", known.path.c_str(), line.c_str(), problem.text.c_str());
        else
            VMA_INFO(fabric, "%s%s: %s", known.path.c_str(), line.c_str(), problem.text.c_str());
    }
}

const Known *find(const Known *from, const char *path)
{
    while (from != nullptr && from->path != path)
        from = from->next;
    return from;
}

const Known *known_file(const char *path)
{
    Known *head = g_known.load(std::memory_order_acquire);
    if (const Known *known = find(head, path))
        return known;
    std::vector<core::ConfigProblem> problems;
    std::unique_ptr<Known> read = read_known(path, problems);
    if (!read)
        return nullptr;
    read->next = head;
    while (!g_known.compare_exchange_weak(read->next, read.get(), std::memory_order_acq_rel)) {
        if (const Known *known = find(read->next, path))
            return known;
    }
    const Known *const kept = read.release();
    tell(*kept, problems);
    return kept;
}

} // namespace

Configuration configuration() noexcept
{
    const char *const path = wanted_path();
    if (path == nullptr)
        return {};
    const Known *const known = known_file(path);
    return known != nullptr ? Configuration{known->usable, &known->file} : Configuration{false, nullptr};
}

} // namespace vma::ofi
