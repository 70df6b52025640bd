// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/step.hpp"

#include "util/vma_lat/measure/wire.hpp"

#include <array>

namespace vma::lat {

namespace {

constexpr std::array<const char *, 4> kOperations = {"send", "write", "read", "write-imm"};
constexpr std::array<const char *, 3> kModels = {"poll", "channel", "epoll"};
constexpr std::size_t kMaxWords = 400; // of a tally

bool between(std::uint64_t value, std::uint64_t least, std::uint64_t most)
{
    return value >= least && value <= most;
}

} // namespace

const char *name_of(Operation operation)
{
    return kOperations[static_cast<std::size_t>(operation)];
}

const char *name_of(Model model)
{
    return kModels[static_cast<std::size_t>(model)];
}

bool operation_from(std::string_view name, Operation &operation)
{
    return find_name(kOperations, name, operation);
}

bool model_from(std::string_view name, Model &model)
{
    return find_name(kModels, name, model);
}

Failure fault_of(const Progress &progress, std::uint32_t connections)
{
    if (progress.each && progress.shared)
        return error(kExitUsage, "--threads each goes with --cq own: of a shared queue a thread would read what is for "
                                 "another");
    if (progress.wait == Model::kChannel && !progress.shared && !progress.each && connections > 1)
        return error(kExitUsage,
                     "--wait channel sleeps on one completion queue, and one thread has %u: use --wait epoll, "
                     "--cq shared or --threads each",
                     connections);
    return {};
}

Failure fault_of(const Step &step)
{
    if (!between(step.size, 1, kMaxSize))
        return error(kExitUsage, "an operation can't have %u bytes: 1 to %u are possible", step.size, kMaxSize);
    if (!between(step.connections, 1, kMaxConnections))
        return error(kExitUsage, "%u connections are not possible: 1 to %u are", step.connections, kMaxConnections);
    if (!between(step.window, 1, kMaxWindow))
        return error(kExitUsage, "a window can't have %u operations: 1 to %u are possible", step.window, kMaxWindow);
    if (step.warm_up > kMaxSingle || step.single > kMaxSingle || step.streamed > kMaxStreamed)
        return error(kExitUsage, "too many operations: %u one by one and %u in a window are the most", kMaxSingle,
                     kMaxStreamed);
    if (std::uint64_t{step.single} * step.connections > kMostSampled)
        return error(kExitUsage, "%u samples of each of %u connections are too many: %llu in all are the most",
                     step.single, step.connections, static_cast<unsigned long long>(kMostSampled));
    if (std::uint64_t{step.size} * step.connections > kMostExposed)
        return error(kExitUsage, "%u bytes for each of %u connections are too many: %llu MiB in all are the most",
                     step.size, step.connections, static_cast<unsigned long long>(kMostExposed >> 20));
    if (step.provider.empty())
        return error(kExitUsage, "a sweep needs a libfabric provider");
    return fault_of(step.progress, step.connections);
}

Bytes encode(const Step &step)
{
    Writer writer;
    for (const unsigned flag : {static_cast<unsigned>(step.operation), static_cast<unsigned>(step.progress.wait),
                                unsigned{step.progress.shared}, unsigned{step.progress.each}, unsigned{step.verify}})
        writer.number(static_cast<std::uint8_t>(flag));
    for (const std::uint32_t number :
         {step.size, step.connections, step.window, step.warm_up, step.single, step.streamed})
        writer.number(number);
    writer.number(step.seed);
    writer.text(step.provider);
    writer.text(step.domain);
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, Step &step)
{
    Reader reader(bytes);
    std::array<std::uint8_t, 5> flags{};
    for (std::uint8_t &flag : flags)
        reader.number(flag);
    for (std::uint32_t *number :
         {&step.size, &step.connections, &step.window, &step.warm_up, &step.single, &step.streamed})
        reader.number(*number);
    reader.number(step.seed);
    step.provider = reader.text(kMaxName);
    step.domain = reader.text(kMaxName);
    if (!reader.complete() || flags[0] >= kOperations.size() || flags[1] >= kModels.size() || flags[2] > 1 ||
        flags[3] > 1 || flags[4] > 1)
        return malformed("step");
    step.operation = static_cast<Operation>(flags[0]);
    step.progress = {static_cast<Model>(flags[1]), flags[2] != 0, flags[3] != 0};
    step.verify = flags[4] != 0;
    return fault_of(step);
}

Bytes encode(const std::vector<Region> &regions)
{
    Writer writer;
    writer.number(static_cast<std::uint16_t>(regions.size()));
    for (const Region &region : regions) {
        writer.number(region.address);
        writer.number(region.key);
        writer.number(region.slots);
    }
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, std::vector<Region> &regions)
{
    Reader reader(bytes);
    std::uint16_t count = 0;
    reader.number(count);
    if (count > kMaxConnections)
        return malformed("list of regions");
    regions.assign(count, {});
    bool fine = true;
    for (Region &region : regions) {
        reader.number(region.address);
        reader.number(region.key);
        reader.number(region.slots);
        fine = fine && between(region.slots, 1, kMaxWindow);
    }
    if (!fine || !reader.complete())
        return malformed("list of regions");
    return {};
}

Bytes encode(const Tally &tally)
{
    Writer writer;
    writer.number(tally.arrived);
    writer.number(tally.damaged);
    writer.text(tally.first.substr(0, kMaxWords));
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, Tally &tally)
{
    Reader reader(bytes);
    reader.number(tally.arrived);
    reader.number(tally.damaged);
    tally.first = reader.text(kMaxWords);
    if (!reader.complete())
        return malformed("tally");
    return {};
}

} // namespace vma::lat
