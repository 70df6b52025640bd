// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/rules/rules.hpp"

#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <string>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rules/parser.hpp"

namespace vma::rules {

struct Node {
    Rule rule;
    const Node *next = nullptr;
};

[[VMA_STARTUP_DATA]] constinit Rules g_rules;

namespace {

std::atomic<const Node *> &rules_of(Role role)
{
    return g_rules.first[static_cast<std::size_t>(role)];
}

void put_first(const Rule &rule)
{
    auto node = std::make_unique<Node>();
    node->rule = rule;
    node->next = rules_of(rule.role).load(std::memory_order_relaxed);
    while (!rules_of(rule.role).compare_exchange_weak(node->next, node.get(), std::memory_order_release)) {
    }
    static_cast<void>(node.release());
    g_rules.any.store(true, std::memory_order_release);
}

class Log final : public Reporter
{
public:
    explicit Log(const char *name) : name_(name) {}
    void report(const Problem &problem) override
    {
        is_wrong_ = is_wrong_ || problem.is_error;
        if (problem.is_error)
            VMA_LOG(kError, "%s:%u:%u: %s; this line is left out", name_, problem.line, problem.column, problem.text);
        else
            VMA_LOG(kWarn, "%s:%u:%u: %s", name_, problem.line, problem.column, problem.text);
    }
    bool is_wrong() const { return is_wrong_; }

private:
    const char *name_;
    bool is_wrong_ = false;
};

// A file that nobody asked for need not be there.
[[VMA_AT_STARTUP]] void tell_unreadable(const char *path, int error)
{
    if (error == ENOENT && std::strcmp(path, kDefaultPath) == 0) {
        VMA_LOG(kDebug, "%s is not there: no rules", path);
        return;
    }
    const char *const why = error == EINVAL  ? "it is not a regular file"
                            : error == EFBIG ? "it is larger than 1 MiB"
                                             : std::strerror(error);
    VMA_LOG(kWarn, "cannot read the rules of %s: %s; there are none", path, why);
}

void tell(const Rule &rule)
{
    VMA_LOG(kFunc, "%s: %s, by line %u of the rules", kRoleNames[static_cast<std::size_t>(rule.role)],
            means_kernel(rule) ? "os" : "vma", rule.line);
}

[[VMA_AT_STARTUP]] void read_own_section()
{
    std::string name(PATH_MAX, '\0');
    char id[256];
    config::expand_process_id(config::params().config_file, name.data(), name.size());
    const char *const path = name.c_str();
    config::expand_process_id(config::params().application_id, id, sizeof id);
    File file;
    Log log(path);
    if (const int error = read_file(path, file, log); error != 0)
        return tell_unreadable(path, error);
    bool id_is_known = true;
    const Section *const section = section_of(file, program_invocation_short_name, id, id_is_known);
    if (!id_is_known)
        VMA_LOG(kWarn, "VMA_APPLICATION_ID=%s: %s has no such application-id", id, path);
    if (section == nullptr)
        return;
    VMA_LOG(kDebug, "%s: %zu rules, of application-id %s %s", path, section->rules.size(), section->program.c_str(),
            section->id.c_str());
    for (auto rule = section->rules.rbegin(); rule != section->rules.rend(); ++rule)
        put_first(*rule);
}

} // namespace

[[VMA_AT_STARTUP]] void load()
{
    if (g_rules.loaded.test_and_set(std::memory_order_acq_rel))
        return;
    const int saved = errno;
    read_own_section();
    errno = saved;
}

int add(const char *line)
{
    Log log("add_conf_rule");
    const Statement statement = line != nullptr ? parse_line(line, 1, log) : Statement();
    if (statement.kind == Kind::kRule) {
        put_first(statement.rule);
        return 0;
    }
    if (!log.is_wrong())
        VMA_LOG(kError, "add_conf_rule: expected a line that starts with \"use\"; nothing is added");
    errno = EINVAL;
    return -1;
}

bool says_kernel(Role role, const sockaddr_in6 &first, const sockaddr_in6 *second)
{
    for (const Node *node = rules_of(role).load(std::memory_order_acquire); node != nullptr; node = node->next) {
        if (!matches(node->rule, first, second))
            continue;
        tell(node->rule);
        return means_kernel(node->rule);
    }
    return false;
}

} // namespace vma::rules
