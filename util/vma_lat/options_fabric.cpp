// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/options_fabric.hpp"

#include <algorithm>
#include <charconv>

namespace vma::lat {

namespace {

constexpr std::uint32_t kLargest = 8U << 20;         // bytes, of a sweep unless it names sizes
constexpr std::uint64_t kSingleBytes = 128ULL << 20; // what the first part of a step moves at most by itself
constexpr std::uint64_t kStreamBytes = 512ULL << 20; // the second part
constexpr std::uint64_t kDefaultTimeout = 10 * 1000000000ULL;

Failure parse_progress(const Texts &texts, Progress &progress)
{
    if (!texts.wait.empty() && !model_from(texts.wait, progress.wait))
        return unknown("wait", texts.wait, "poll, channel or epoll");
    if (!texts.cq.empty()) {
        progress.shared = texts.cq == "shared";
        if (!progress.shared && texts.cq != "own")
            return unknown("cq", texts.cq, "own or shared");
    }
    if (!texts.threads.empty()) {
        progress.each = texts.threads == "each";
        if (!progress.each && texts.threads != "one")
            return unknown("threads", texts.threads, "one or each");
    }
    return {};
}

Failure parse_operations(std::string_view text, std::vector<Operation> &operations)
{
    for (const std::string_view each : split(text, ',')) {
        Operation operation{};
        if (!operation_from(each, operation))
            return unknown("operations", each, "send, write, read or write-imm");
        operations.push_back(operation);
    }
    return {};
}

Failure sweep_sizes(const Texts &texts, std::vector<std::uint32_t> &sizes)
{
    if (!texts.sizes.empty()) {
        if (texts.from || texts.to)
            return error(kExitUsage, "--size names the sizes, and --from and --to the first and the last: use one way");
        return parse_list("size", texts.sizes, 1, kMaxSize, sizes);
    }
    const std::uint64_t last = texts.to.value_or(std::max(kLargest, texts.from.value_or(1)));
    for (std::uint64_t size = texts.from.value_or(1); size <= last; size *= 2)
        sizes.push_back(static_cast<std::uint32_t>(size));
    if (sizes.empty())
        return error(kExitUsage, "--from %u is more than --to %u", *texts.from, *texts.to);
    return {};
}

std::uint32_t usual(std::uint64_t bytes, std::uint32_t size, std::uint32_t least, std::uint32_t most)
{
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / size, least, most));
}

} // namespace

Failure finish_sweep(const Texts &texts, Options &options)
{
    if (options.hosts.size() != 1)
        return error(kExitUsage, "a sweep takes one server's host: 'vma_lat sweep HOST'");
    Step step;
    if (auto failure = parse_progress(texts, step.progress))
        return failure;
    std::vector<Operation> operations;
    if (auto failure =
            parse_operations(texts.operations.empty() ? "send,write,read,write-imm" : texts.operations, operations))
        return failure;
    std::vector<std::uint32_t> sizes;
    if (auto failure = sweep_sizes(texts, sizes))
        return failure;
    if (options.load.timeout_ns == 0)
        options.load.timeout_ns = kDefaultTimeout;
    step.verify = texts.verify;
    step.connections = texts.connections.value_or(1);
    step.window = texts.window.value_or(step.window);
    step.provider = texts.provider.empty() ? "vma" : texts.provider;
    step.domain = options.domain;
    for (const Operation operation : operations) {
        for (const std::uint32_t size : sizes) {
            step.operation = operation;
            step.size = size;
            step.single = static_cast<std::uint32_t>(std::min<std::uint64_t>(
                options.load.count != 0 ? options.load.count : usual(kSingleBytes, size, 16, 1000), UINT32_MAX));
            step.streamed = texts.stream.value_or(usual(kStreamBytes, size, 64, 20000));
            step.warm_up = static_cast<std::uint32_t>(
                std::min<std::uint64_t>(texts.warm_up.value_or(std::min(step.single, 100U)), UINT32_MAX));
            if (auto failure = fault_of(step))
                return failure;
            options.steps.push_back(step);
        }
    }
    return {};
}

Failure finish_mesh(const Texts &texts, Options &options)
{
    MeshPlan &mesh = options.mesh;
    if (!options.hosts.empty())
        return error(kExitUsage, "'%s': a mesh takes no host; --peers names its members", options.hosts[0].c_str());
    if (auto failure = parse_progress(texts, mesh.progress))
        return failure;
    std::vector<std::uint32_t> sizes;
    if (auto failure = parse_list("size", texts.sizes, 1, kMaxSize, sizes))
        return failure;
    if (sizes.size() > 1)
        return error(kExitUsage, "--size: the blocks of a mesh have one size, and %zu are named", sizes.size());
    mesh.size = sizes.empty() ? mesh.size : sizes[0];
    mesh.window = texts.window.value_or(mesh.window);
    mesh.count = options.load.count != 0 ? options.load.count : mesh.count;
    mesh.provider = texts.provider.empty() ? "vma" : texts.provider;
    if (options.load.timeout_ns == 0)
        options.load.timeout_ns = kDefaultTimeout;
    if (!texts.peers.empty()) {
        for (const std::string_view peer : split(texts.peers, ','))
            options.peers.emplace_back(peer);
    }
    const bool by_hand = options.rank >= 0;
    if (by_hand != !options.peers.empty() || by_hand != (mesh.processes == 0))
        return error(kExitUsage, "a mesh is started by --processes N, or each of its members by --rank I --peers "
                                 "HOST:PORT,...");
    if (options.listen_fd >= 0 && !by_hand)
        return error(kExitUsage, "--listen-fd is for a member, and --rank is missing");
    if (by_hand)
        mesh.processes = static_cast<std::uint32_t>(options.peers.size());
    if (mesh.processes < 2 || mesh.processes > kMaxConnections)
        return error(kExitUsage, "--peers: a mesh has 2 to %u members, and %u are named", kMaxConnections,
                     mesh.processes);
    if (by_hand && options.rank >= static_cast<int>(mesh.processes))
        return error(kExitUsage, "--rank %d: --peers names members 0 to %u", options.rank, mesh.processes - 1);
    if (std::uint64_t{mesh.size} * mesh.processes > kMostExposed)
        return error(kExitUsage,
                     "blocks of %u bytes from each of %u members are too many: %llu MiB in all are the most", mesh.size,
                     mesh.processes, static_cast<unsigned long long>(kMostExposed >> 20));
    return fault_of(mesh.progress, mesh.processes - 1);
}

Failure parse_number(const char *name, std::string_view text, std::uint64_t &value, std::uint64_t least,
                     std::uint64_t most)
{
    const char *last = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data(), last, value);
    if (problem != std::errc() || rest != last || value < least || value > most)
        return error(kExitUsage, "--%s: '%.*s' is no number from %llu to %llu", name, static_cast<int>(text.size()),
                     text.data(), static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
    return {};
}

std::vector<std::string_view> split(std::string_view text, char at)
{
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t end = text.find(at);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos)
            return parts;
        text.remove_prefix(end + 1);
    }
}

Failure parse_list(const char *name, std::string_view text, std::uint64_t least, std::uint64_t most,
                   std::vector<std::uint32_t> &numbers)
{
    if (text.empty())
        return {};
    for (const std::string_view each : split(text, ',')) {
        numbers.push_back(0);
        if (auto failure = parse_number(name, each, numbers.back(), least, most))
            return failure;
    }
    return {};
}

Error unknown(const char *name, std::string_view text, const char *names)
{
    return error(kExitUsage, "--%s: '%.*s' is unknown: %s is expected", name, static_cast<int>(text.size()),
                 text.data(), names);
}

} // namespace vma::lat
