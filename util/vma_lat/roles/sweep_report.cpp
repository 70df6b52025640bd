// SPDX-License-Identifier: BSD-2-Clause
// How a sweep is shown: a table that grows by a line a step, CSV and JSON. Files have ns and whole round trips; a
// person is shown half of a round trip, as the time of one way, unless --rtt asks for whole ones.
#include "util/vma_lat/result_file.hpp"
#include "util/vma_lat/roles/sweep.hpp"

#include <cstdio>

namespace vma::lat {

namespace {

using Big = unsigned long long;

// At both ends.
Big damaged(const StepOutcome &outcome)
{
    return Big{outcome.client.damaged} + outcome.server.damaged;
}

constexpr std::size_t kShown = 4; // of kPercentiles: to 99.9

double divisor(const Options &options, const Step &step)
{
    return told(step.operation) && !options.round_trip ? 2000 : 1000;
}

const char *timed(const Step &step)
{
    return told(step.operation) ? "round-trip" : "completion";
}

double megabytes(const StepOutcome &outcome)
{
    return outcome.per_second() * outcome.step.size / 1e6;
}

} // namespace

void print_sweep_head(const Options &options)
{
    const Step &step = options.steps[0];
    std::printf("sweep over %s%s%s, %u connection%s, cq %s, threads %s, wait %s, window %u%s\n", step.provider.c_str(),
                step.domain.empty() ? "" : ", domain ", step.domain.c_str(), step.connections,
                step.connections == 1 ? "" : "s", step.progress.shared ? "shared" : "own",
                step.progress.each ? "each" : "one", name_of(step.progress.wait), step.window,
                step.verify ? ", every byte verified" : "");
    std::printf("latency in us: send and write-imm %s, write and read to their completion\n",
                options.round_trip ? "round trips" : "half of a round trip");
    std::printf("%-9s %8s %8s %9s %9s %9s %9s %9s %9s %7s %10s %10s\n", "operation", "bytes", "samples", "min", "p50",
                "p90", "p99", "p99.9", "max", "window", "MB/s", "ops/s");
    std::fflush(stdout);
}

void print_sweep_line(const Options &options, const StepOutcome &outcome)
{
    const Step &step = outcome.step;
    const Summary &latency = outcome.latency;
    const double by = divisor(options, step);
    std::printf("%-9s %8u %8llu %9.3f", name_of(step.operation), step.size, static_cast<Big>(latency.count),
                static_cast<double>(latency.min) / by);
    for (std::size_t i = 0; i < kShown; ++i)
        std::printf(" %9.3f", static_cast<double>(latency.percentiles[i]) / by);
    std::printf(" %9.3f", static_cast<double>(latency.max) / by);
    if (outcome.streamed != 0)
        std::printf(" %7u %10.1f %10.0f\n", outcome.window, megabytes(outcome), outcome.per_second());
    else
        std::printf(" %7s %10s %10s\n", "-", "-", "-");
    std::fflush(stdout);
}

Failure write_sweep_csv(const std::string &path, const std::vector<StepOutcome> &outcomes)
{
    File file(path);
    if (file.get() == nullptr)
        return file.fault("open");
    std::fprintf(file.get(), "operation,bytes,connections,cq,threads,wait,timed,samples,min_ns,mean_ns");
    for (const char *name : kPercentileNames)
        std::fprintf(file.get(), ",%s_ns", name);
    std::fprintf(file.get(), ",max_ns,window,operations,stream_ns,bytes_per_second,operations_per_second,damaged\n");
    for (const StepOutcome &outcome : outcomes) {
        const Step &step = outcome.step;
        const Summary &latency = outcome.latency;
        std::fprintf(file.get(), "%s,%u,%u,%s,%s,%s,%s,%llu,%llu,%.3f", name_of(step.operation), step.size,
                     step.connections, step.progress.shared ? "shared" : "own", step.progress.each ? "each" : "one",
                     name_of(step.progress.wait), timed(step), static_cast<Big>(latency.count),
                     static_cast<Big>(latency.min), latency.mean);
        for (const std::uint64_t ns : latency.percentiles)
            std::fprintf(file.get(), ",%llu", static_cast<Big>(ns));
        std::fprintf(file.get(), ",%llu,%u,%llu,%llu,%.1f,%.1f,%llu\n", static_cast<Big>(latency.max), outcome.window,
                     static_cast<Big>(outcome.streamed), static_cast<Big>(outcome.stream_ns),
                     outcome.per_second() * step.size, outcome.per_second(), damaged(outcome));
    }
    return file.done();
}

Failure write_sweep_json(const std::string &path, const Options &options, const std::vector<StepOutcome> &outcomes)
{
    File file(path);
    if (file.get() == nullptr)
        return file.fault("open");
    const Step &first = options.steps[0];
    std::string text =
        format("{\"tool\": \"vma_lat\", \"test\": \"sweep\", \"clock\": \"CLOCK_MONOTONIC\", "
               "\"host\": %s, \"provider\": %s, \"domain\": %s, \"connections\": %u, \"cq\": \"%s\", "
               "\"threads\": \"%s\", \"wait\": \"%s\", \"verify\": %s,\n \"steps\": [",
               quoted(options.hosts[0]).c_str(), quoted(first.provider).c_str(), quoted(first.domain).c_str(),
               first.connections, first.progress.shared ? "shared" : "own", first.progress.each ? "each" : "one",
               name_of(first.progress.wait), first.verify ? "true" : "false");
    const char *comma = "\n";
    for (const StepOutcome &outcome : outcomes) {
        const Step &step = outcome.step;
        const Summary &latency = outcome.latency;
        text += format("%s  {\"operation\": \"%s\", \"size\": %u, \"timed\": \"%s\",\n   \"ns\": {\"count\": %llu, "
                       "\"min\": %llu, \"mean\": %.3f",
                       comma, name_of(step.operation), step.size, timed(step), static_cast<Big>(latency.count),
                       static_cast<Big>(latency.min), latency.mean);
        for (std::size_t i = 0; i < kPercentiles.size(); ++i)
            text += format(", \"%s\": %llu", kPercentileNames[i], static_cast<Big>(latency.percentiles[i]));
        text += format(", \"max\": %llu},\n   \"window\": %u, \"operations\": %llu, \"stream_ns\": %llu, "
                       "\"bytes_per_second\": %.1f, \"per_second\": %.1f, \"arrived\": %llu, \"damaged\": %llu}",
                       static_cast<Big>(latency.max), outcome.window, static_cast<Big>(outcome.streamed),
                       static_cast<Big>(outcome.stream_ns), outcome.per_second() * step.size, outcome.per_second(),
                       static_cast<Big>(outcome.server.arrived), damaged(outcome));
        comma = ",\n";
    }
    text += "]}\n";
    std::fwrite(text.data(), 1, text.size(), file.get());
    return file.done();
}

} // namespace vma::lat
