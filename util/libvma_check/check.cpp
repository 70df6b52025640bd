// SPDX-License-Identifier: BSD-2-Clause
// Reads libvma.conf as the library does, tells what is wrong with it, and which rule a socket would meet.
#include "util/libvma_check/check.hpp"

#include <getopt.h>

#include <arpa/inet.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "config.h"

#include "compat/src/rules/parser.hpp"

namespace libvma_check {

namespace {

using namespace vma::rules;

constexpr char kHelp[] = R"(libvma-check: checks libvma.conf, and tells which rule a socket meets

usage: libvma-check [OPTIONS] [ROLE ADDRESS:PORT [ADDRESS:PORT]]

  -f, --file FILE        instead of VMA_CONFIG_FILE or )" LIBVMA_CONF R"(
  -p, --program NAME     of this program, without its folder (*: the rules for all)
  -i, --id ID            instead of VMA_APPLICATION_ID
  -h, --help
  -V, --version

ROLE and its addresses:
  tcp_server    LOCAL             a listening socket, and those that it accepts
  tcp_client    REMOTE [LOCAL]    a socket that connects
  udp_receiver  LOCAL or GROUP    what comes to a bound socket, or to a member of a group
  udp_sender    REMOTE            what goes to an address
  udp_connect   REMOTE [LOCAL]    a connected UDP socket

Addresses are 10.0.0.1:80, [2001:db8::1]:80, and *:80 of a socket that is bound to none.
Exit status: 0 the file has no errors; 1 it has, or can't be read; 2 wrong usage.

  libvma-check --program curl tcp_client 192.168.1.5:80
)";

constexpr option kOptions[] = {
    {"file", required_argument, nullptr, 'f'}, {"program", required_argument, nullptr, 'p'},
    {"id", required_argument, nullptr, 'i'},   {"help", no_argument, nullptr, 'h'},
    {"version", no_argument, nullptr, 'V'},    {nullptr, 0, nullptr, 0},
};

const char *g_tool = "libvma-check"; // begins what is said

constexpr int kFine = 0;
constexpr int kWrong = 1;
constexpr int kUsage = 2;

struct Question {
    const char *file = kDefaultPath;
    const char *program = "*";
    const char *id = kDefaultId;
    bool asks = false;
    Role role = Role::kTcpServer;
    sockaddr_in6 first = {};
    sockaddr_in6 second = {};
    bool has_second = false;
};

class Printer final : public Reporter
{
public:
    explicit Printer(const char *name) : name_(name) {}
    void report(const Problem &problem) override
    {
        errors_ += problem.is_error ? 1 : 0;
        std::fprintf(stderr, "%s:%u:%u: %s: %s\n", name_, problem.line, problem.column,
                     problem.is_error ? "error" : "note", problem.text);
    }
    unsigned errors() const { return errors_; }

private:
    const char *name_;
    unsigned errors_ = 0;
};

const char *from_environment(const char *name, const char *otherwise)
{
    const char *const value = ::secure_getenv(name);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

bool read_address(const char *text, sockaddr_in6 &out)
{
    Range range;
    std::string why;
    if (!parse_range(text, range, why)) {
        std::fprintf(stderr, "%s: %s: %s\n", g_tool, text, why.c_str());
        return false;
    }
    if ((!range.any_address && range.bits != 128) || range.first_port != range.last_port) {
        std::fprintf(stderr, "%s: %s: expected one address and one port\n", g_tool, text);
        return false;
    }
    out = {};
    out.sin6_family = AF_INET6;
    out.sin6_addr = range.address;
    if (range.any_address)
        out.sin6_addr.s6_addr[10] = out.sin6_addr.s6_addr[11] = 0xff; // 0.0.0.0
    out.sin6_port = htons(range.first_port);
    return true;
}

bool read_role(const char *text, Role &out)
{
    for (std::size_t i = 0; i < kRoles; ++i) {
        if (std::strcmp(text, kRoleNames[i]) == 0) {
            out = static_cast<Role>(i);
            return true;
        }
    }
    std::fprintf(stderr, "%s: %s is no role (tcp_server, tcp_client, udp_receiver, udp_sender, udp_connect)\n", g_tool,
                 text);
    return false;
}

bool read_question(int count, char **words, Question &q)
{
    if (count == 0)
        return true;
    q.asks = true;
    if (!read_role(words[0], q.role))
        return false;
    const int most = has_second(q.role) ? 3 : 2;
    if (count < 2 || count > most) {
        std::fprintf(stderr, "%s: %s wants %s; see libvma-check --help\n", g_tool, words[0],
                     most == 3 ? "one address:port, or two" : "one address:port");
        return false;
    }
    q.has_second = count == 3;
    return read_address(words[1], q.first) && (!q.has_second || read_address(words[2], q.second));
}

void answer(const Question &q, const Section *section)
{
    for (std::size_t i = 0; section != nullptr && i < section->rules.size(); ++i) {
        const Rule &rule = section->rules[i];
        if (rule.role != q.role || !matches(rule, q.first, q.has_second ? &q.second : nullptr))
            continue;
        std::printf("%s: line %u (use %s %s) of application-id %s %s\n", means_kernel(rule) ? "os" : "vma", rule.line,
                    kTransportNames[static_cast<std::size_t>(rule.transport)],
                    kRoleNames[static_cast<std::size_t>(rule.role)], section->program.c_str(), section->id.c_str());
        return;
    }
    std::printf("vma: no rule matches\n");
}

void describe(const Question &q, const File &file, const Section *section)
{
    std::size_t rules = 0;
    for (const Section &one : file.sections)
        rules += one.rules.size();
    std::printf("%s: %zu application-ids, %zu rules\n", q.file, file.sections.size(), rules);
    if (section == nullptr)
        std::printf("program %s, id %s: no rules, all sockets are accelerated\n", q.program, q.id);
    else
        std::printf("program %s, id %s: application-id %s %s, %zu rules\n", q.program, q.id, section->program.c_str(),
                    section->id.c_str(), section->rules.size());
}

int answer_or_describe(const Question &q)
{
    File file;
    Printer printer(q.file);
    if (const int error = read_file(q.file, file, printer); error != 0) {
        const char *const why = error == EINVAL  ? "not a regular file"
                                : error == EFBIG ? "larger than 1 MiB"
                                                 : std::strerror(error);
        std::fprintf(stderr, "%s: %s: %s\n", g_tool, q.file, why);
        return kWrong;
    }
    bool id_is_known = true;
    const Section *const section = section_of(file, q.program, q.id, id_is_known);
    if (!id_is_known)
        std::fprintf(stderr, "%s: %s has no application-id with the id %s\n", g_tool, q.file, q.id);
    if (q.asks)
        answer(q, section);
    else
        describe(q, file, section);
    if (printer.errors() != 0)
        std::fprintf(stderr, "%u lines are wrong and left out\n", printer.errors());
    return printer.errors() == 0 ? kFine : kWrong;
}

} // namespace

int check(const char *tool, int argc, char **argv)
{
    g_tool = tool;
    Question q;
    q.file = from_environment("VMA_CONFIG_FILE", q.file);
    q.id = from_environment("VMA_APPLICATION_ID", q.id);
    for (int found; (found = getopt_long(argc, argv, "f:p:i:hV", kOptions, nullptr)) != -1;) {
        switch (found) {
        case 'f':
            q.file = optarg;
            break;
        case 'p':
            q.program = optarg;
            break;
        case 'i':
            q.id = optarg;
            break;
        case 'h':
            std::fputs(kHelp, stdout);
            return kFine;
        case 'V':
            std::printf("libvma-check %s\n", PACKAGE_VERSION);
            return kFine;
        default:
            return kUsage;
        }
    }
    return read_question(argc - optind, argv + optind, q) ? answer_or_describe(q) : kUsage;
}

} // namespace libvma_check
