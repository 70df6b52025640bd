// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/options.hpp"

#include "util/vma_lat/options_fabric.hpp"

#include <getopt.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace vma::lat {

namespace {

enum Option : int {
    kUdp = 256,
    kTcp,
    kFabric,
    kProvider,
    kTest,
    kWait,
    kSize,
    kSockets,
    kMps,
    kReplyEvery,
    kCheck,
    kDuration,
    kCount,
    kWarmUpOption,
    kTimeout,
    kGroup,
    kDataPort,
    kInterface,
    kTtl,
    kNoLoop,
    kRtt,
    kHistogram,
    kCsv,
    kJson,
    kMaxSamples,
    kPort,
    kCpu,
    kHelpOption,
    kVersion,
    kAddress,
    kClients,
    kDomain,
    kConnections,
    kOperations,
    kCq,
    kThreads,
    kFrom,
    kTo,
    kWindow,
    kStream,
    kProcesses,
    kRank,
    kPeers,
    kListenFd,
    kSeed,
};

constexpr option kOptions[] = {
    {"udp", no_argument, nullptr, kUdp},
    {"tcp", no_argument, nullptr, kTcp},
    {"fabric", required_argument, nullptr, kFabric},
    {"provider", required_argument, nullptr, kProvider},
    {"test", required_argument, nullptr, kTest},
    {"wait", required_argument, nullptr, kWait},
    {"size", required_argument, nullptr, kSize},
    {"sockets", required_argument, nullptr, kSockets},
    {"mps", required_argument, nullptr, kMps},
    {"reply-every", required_argument, nullptr, kReplyEvery},
    {"check", no_argument, nullptr, kCheck},
    {"duration", required_argument, nullptr, kDuration},
    {"count", required_argument, nullptr, kCount},
    {"warm-up", required_argument, nullptr, kWarmUpOption},
    {"timeout", required_argument, nullptr, kTimeout},
    {"group", required_argument, nullptr, kGroup},
    {"data-port", required_argument, nullptr, kDataPort},
    {"interface", required_argument, nullptr, kInterface},
    {"ttl", required_argument, nullptr, kTtl},
    {"no-loop", no_argument, nullptr, kNoLoop},
    {"rtt", no_argument, nullptr, kRtt},
    {"histogram", no_argument, nullptr, kHistogram},
    {"csv", required_argument, nullptr, kCsv},
    {"json", required_argument, nullptr, kJson},
    {"max-samples", required_argument, nullptr, kMaxSamples},
    {"port", required_argument, nullptr, kPort},
    {"cpu", required_argument, nullptr, kCpu},
    {"help", no_argument, nullptr, kHelpOption},
    {"version", no_argument, nullptr, kVersion},
    {"address", required_argument, nullptr, kAddress},
    {"clients", required_argument, nullptr, kClients},
    {"domain", required_argument, nullptr, kDomain},
    {"verify", no_argument, nullptr, kCheck},
    {"connections", required_argument, nullptr, kConnections},
    {"operations", required_argument, nullptr, kOperations},
    {"cq", required_argument, nullptr, kCq},
    {"threads", required_argument, nullptr, kThreads},
    {"from", required_argument, nullptr, kFrom},
    {"to", required_argument, nullptr, kTo},
    {"window", required_argument, nullptr, kWindow},
    {"stream", required_argument, nullptr, kStream},
    {"processes", required_argument, nullptr, kProcesses},
    {"rank", required_argument, nullptr, kRank},
    {"peers", required_argument, nullptr, kPeers},
    {"listen-fd", required_argument, nullptr, kListenFd},
    {"seed", required_argument, nullptr, kSeed},
    {nullptr, 0, nullptr, 0},
};

constexpr const char *kRoles[] = {"server", "client", "sweep", "mesh"};

// A sweep and a mesh are told of options that mean nothing to them; and the others of theirs.
bool goes_with(Role role, int option)
{
    const auto among = [option](std::initializer_list<int> list) {
        return std::find(list.begin(), list.end(), option) != list.end();
    };
    if (among({'4', '6', kPort, kCpu, kProvider, kDomain, kHelpOption, kVersion}))
        return true;
    const bool both = among({kCq, kThreads, kWindow});
    const bool sweep = both || among({kConnections, kOperations, kFrom, kTo, kStream});
    const bool mesh = both || among({kProcesses, kRank, kPeers, kListenFd, kSeed});
    if (role == Role::kSweep)
        return sweep || among({kWait, kSize, kCheck, kCount, kWarmUpOption, kTimeout, kRtt, kCsv, kJson});
    if (role == Role::kMesh)
        return mesh || among({kWait, kSize, kCount, kTimeout, kAddress});
    return !sweep && !mesh;
}

class Parser
{
public:
    explicit Parser(Options &options) : out_(options) {}

    Failure run(int argc, char **argv)
    {
        opterr = 0;
        for (int code = 0; (code = getopt_long(argc, argv, ":46", kOptions, &index_)) != -1;) {
            if (code == '?' || code == ':')
                return error(kExitUsage, "%s: %s; 'vma_lat --help' lists them all", argv[optind - 1],
                             code == ':' ? "this option needs a value" : "there is no such option");
            seen_.emplace_back(code, code < 256 ? "" : kOptions[index_].name);
            if (auto failure = take(code))
                return failure;
        }
        if (out_.help || out_.version)
            return {};
        if (optind == argc)
            return error(kExitUsage, "what to be is missing: 'vma_lat server' or 'vma_lat client HOST'");
        const std::string role = argv[optind];
        const auto *const found = std::find(std::begin(kRoles), std::end(kRoles), role);
        if (found == std::end(kRoles))
            return error(kExitUsage,
                         "'%s' is nothing that vma_lat can be: 'server', 'client', 'sweep' or 'mesh' is expected",
                         role.c_str());
        out_.role = static_cast<Role>(found - kRoles);
        for (const auto &[code, name] : seen_) {
            if (!goes_with(out_.role, code))
                return error(kExitUsage, "--%s does not go with '%s'; 'vma_lat --help' says what it is for", name,
                             role.c_str());
        }
        out_.hosts.assign(argv + optind + 1, argv + argc);
        return finish();
    }

private:
    template <typename T> Failure number(T &value, std::uint64_t least, std::uint64_t most)
    {
        return parse_number(kOptions[index_].name, optarg, value, least, most);
    }

    Failure take(int code)
    {
        switch (code) {
        case '4':
        case '6':
            out_.family = code == '4' ? AF_INET : AF_INET6;
            return {};
        case kUdp:
            kinds_.push_back(Kind::kUdp);
            return {};
        case kTcp:
            kinds_.push_back(Kind::kTcp);
            return {};
        case kFabric:
            return fabric_type();
        case kTest:
            return test_from(optarg, plan_.test) ? Failure() : one_of("ping-pong, throughput or under-load");
        case kDuration:
            return duration();
        case kCheck:
            plan_.check = true;
            return {};
        case kNoLoop:
            out_.loop = false;
            return {};
        case kRtt:
            out_.round_trip = true;
            return {};
        case kHistogram:
            out_.histogram = true;
            return {};
        case kHelpOption:
            out_.help = true;
            return {};
        case kVersion:
            out_.version = true;
            return {};
        default:
            return take_text(code);
        }
    }

    Failure take_text(int code)
    {
        switch (code) {
        case kProvider:
            return name(plan_.provider);
        case kGroup:
            return name(plan_.group);
        case kDomain:
            return name(out_.domain);
        case kWait:
            return text(texts_.wait);
        case kSize:
            return text(texts_.sizes);
        case kOperations:
            return text(texts_.operations);
        case kCq:
            return text(texts_.cq);
        case kThreads:
            return text(texts_.threads);
        case kPeers:
            return text(texts_.peers);
        case kInterface:
            out_.interface = optarg;
            return {};
        case kCsv:
            out_.csv = optarg;
            return {};
        case kJson:
            out_.json = optarg;
            return {};
        case kAddress:
            out_.address = optarg;
            return {};
        default:
            return take_number(code);
        }
    }

    Failure take_number(int code)
    {
        constexpr std::uint64_t kMany = 1000000000000;
        switch (code) {
        case kSockets:
            return number(plan_.sockets, 1, kMaxSockets);
        case kMps:
            return number(out_.load.rate, 1, 100000000);
        case kReplyEvery:
            return number(out_.load.reply_every, 1, 1000000);
        case kCount:
            return number(out_.load.count, 1, kMany);
        case kWarmUpOption:
            return number(texts_.warm_up, 0, kMany);
        case kTimeout: {
            auto failure = number(out_.load.timeout_ns, 1, 60000);
            out_.load.timeout_ns *= 1000000;
            return failure;
        }
        case kDataPort:
            return number(plan_.data_port, 1, 65535);
        case kTtl:
            return number(out_.ttl, 0, 255);
        case kMaxSamples:
            return number(out_.load.most_samples, 1, 1000000000);
        case kPort:
            return number(out_.port, 1, 65535);
        case kCpu:
            return number(out_.cpu, 0, 1023);
        case kConnections:
            return number(texts_.connections, 1, kMaxConnections);
        case kFrom:
            return number(texts_.from, 1, kMaxSize);
        case kTo:
            return number(texts_.to, 1, kMaxSize);
        case kWindow:
            return number(texts_.window, 1, kMaxWindow);
        case kStream:
            return number(texts_.stream, 0, kMaxStreamed);
        case kProcesses:
            return number(out_.mesh.processes, 2, kMaxConnections);
        case kRank:
            return number(out_.rank, 0, kMaxConnections - 1);
        case kListenFd:
            return number(out_.listen_fd, 3, 1 << 20);
        case kSeed:
            return number(out_.mesh.seed, 0, UINT64_MAX);
        default:
            return number(out_.clients, 1, kMany);
        }
    }

    Failure one_of(const char *names) { return unknown(kOptions[index_].name, optarg, names); }

    Failure text(std::string &into)
    {
        into = optarg;
        return into.empty() ? Failure(error(kExitUsage, "--%s: a value is missing", kOptions[index_].name)) : Failure();
    }

    Failure name(std::string &into)
    {
        if (*optarg == '\0' || std::strlen(optarg) > kMaxName)
            return error(kExitUsage, "--%s: 1 to %zu characters are expected", kOptions[index_].name, kMaxName);
        into = optarg;
        return {};
    }

    Failure fabric_type()
    {
        if (std::strcmp(optarg, "msg") != 0 && std::strcmp(optarg, "dgram") != 0)
            return one_of("msg or dgram");
        kinds_.push_back(*optarg == 'm' ? Kind::kFabricMsg : Kind::kFabricDgram);
        return {};
    }

    Failure duration()
    {
        char *rest = nullptr;
        const double seconds = std::strtod(optarg, &rest);
        if (*optarg == '\0' || *rest != '\0' || !(seconds >= 0.001 && seconds <= 86400))
            return error(kExitUsage, "--duration: '%s' is no number of seconds from 0.001 to 86400", optarg);
        out_.load.duration_ns = static_cast<std::uint64_t>(std::llround(seconds * 1e9));
        return {};
    }

    Failure finish()
    {
        texts_.provider = plan_.provider;
        texts_.verify = plan_.check;
        switch (out_.role) {
        case Role::kServer:
            return finish_server();
        case Role::kClient:
            return finish_client();
        case Role::kSweep:
            return finish_sweep(texts_, out_);
        case Role::kMesh:
            return finish_mesh(texts_, out_);
        }
        return {};
    }

    Failure finish_server()
    {
        if (!out_.hosts.empty())
            return error(kExitUsage, "'%s': a server takes no host; --address names where it listens",
                         out_.hosts[0].c_str());
        return {};
    }

    Failure finish_client()
    {
        if (out_.hosts.empty())
            return error(kExitUsage, "the server's host is missing: 'vma_lat client HOST'");
        if (out_.hosts.size() > 1 && (plan_.group.empty() || plan_.test != Test::kThroughput))
            return error(kExitUsage,
                         "%zu servers can only receive one group's messages: use --group and --test throughput",
                         out_.hosts.size());
        if (plan_.test == Test::kThroughput && (!out_.csv.empty() || out_.histogram))
            return error(kExitUsage,
                         "--csv and --histogram show samples, and a throughput test takes none; use --json");
        if (!texts_.wait.empty() && !wait_from(texts_.wait, plan_.wait))
            return unknown("wait", texts_.wait, "recvfrom, spin, select, poll or epoll");
        if (auto failure = parse_list("size", texts_.sizes, kMinSize, kMaxSize, sizes_))
            return failure;
        Load &load = out_.load;
        load.warm_up = texts_.warm_up.value_or(load.warm_up);
        if (load.count == 0 && load.duration_ns == 0)
            load.duration_ns = 5000000000;
        if (load.timeout_ns == 0)
            load.timeout_ns = 1000000000;
        if (load.most_samples == 0)
            load.most_samples = 4000000;
        if (load.rate == 0 && plan_.test == Test::kUnderLoad)
            load.rate = 10000;
        return make_plans();
    }

    Failure make_plans()
    {
        if (kinds_.empty())
            kinds_.push_back(Kind::kUdp);
        if (sizes_.empty())
            sizes_.push_back(plan_.size);
        if (plan_.data_port == 0)
            plan_.data_port = kDefaultPort + 1;
        for (const std::uint32_t size : sizes_) {
            for (const Kind kind : kinds_) {
                Plan plan = plan_;
                plan.kind = kind;
                plan.size = size;
                plan.domain = fabric(kind) ? out_.domain : "";
                plan.provider = !fabric(kind) ? "" : plan_.provider.empty() ? "vma" : plan_.provider;
                if (auto failure = fault_of(plan))
                    return failure;
                out_.plans.push_back(plan);
            }
        }
        return {};
    }

    Options &out_;
    Plan plan_;
    Texts texts_;
    std::vector<std::pair<int, const char *>> seen_;
    std::vector<Kind> kinds_;
    std::vector<std::uint32_t> sizes_;
    int index_ = 0;
};

} // namespace

Failure parse(int argc, char **argv, Options &options)
{
    return Parser(options).run(argc, argv);
}

} // namespace vma::lat
