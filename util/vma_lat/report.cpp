// SPDX-License-Identifier: BSD-2-Clause
// Text for people.
#include "util/vma_lat/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace vma::lat {

namespace {

using Big = unsigned long long;

// A round trip's ns to what is shown, us.
double divisor(const Options &options)
{
    return options.round_trip ? 1000 : 2000;
}

std::string title(const Plan &plan)
{
    std::string text = name_of(plan.kind);
    if (!plan.provider.empty())
        text += " (" + plan.provider + ")";
    text += format(" %s, %u bytes, %u socket%s, %s", name_of(plan.test), plan.size, plan.sockets,
                   plan.sockets == 1 ? "" : "s", name_of(plan.wait));
    if (!plan.group.empty())
        text += ", group " + plan.group;
    return text;
}

void print_counts(const Counts &counts)
{
    if (counts.reordered + counts.duplicates + counts.damaged + counts.foreign != 0)
        std::printf(", %llu late or out of order, %llu twice, %llu damaged, %llu of others",
                    static_cast<Big>(counts.reordered), static_cast<Big>(counts.duplicates),
                    static_cast<Big>(counts.damaged), static_cast<Big>(counts.foreign));
    std::printf("\n");
}

// By which way they went, a line for each of several.
void print_ways(const Side &side, const char *indent)
{
    for (const Way &way : side.ways) {
        const std::string whose =
            side.ways.size() == 1 ? "" : format(" of %u socket%s", way.sockets, way.sockets == 1 ? "" : "s");
        std::printf("%sway%s: %s\n", indent, whose.c_str(), text_of(way).c_str());
    }
}

void print_latency(const Options &options, const Samples &samples)
{
    const Summary summary = samples.summary();
    if (summary.count == 0) {
        std::printf("  no samples\n");
        return;
    }
    const double by = divisor(options);
    const auto us = [by](auto ns) { return static_cast<double>(ns) / by; };
    std::printf("  latency in us, %s, of %llu samples%s\n", options.round_trip ? "round trips" : "half of a round trip",
                static_cast<Big>(summary.count),
                summary.exact ? "" : " (percentiles within 1 %, not every sample was kept)");
    std::printf("    min %.3f  mean %.3f", us(summary.min), summary.mean / by);
    for (std::size_t i = 0; i < kPercentiles.size(); ++i)
        std::printf("  %s %.3f", kPercentileNames[i], us(summary.percentiles[i]));
    std::printf("  max %.3f\n", us(summary.max));
    if (options.histogram)
        std::printf("%s", draw(samples.histogram(), by).c_str());
}

} // namespace

double sent_rate(const Counts &client)
{
    const std::uint64_t ns = client.last_ns - client.first_ns;
    return ns == 0 ? 0 : static_cast<double>(client.timed) * 1e9 / static_cast<double>(ns);
}

double received_rate(const Counts &server)
{
    return sent_rate(server);
}

std::string draw(const Histogram &histogram, double divisor_to_us)
{
    constexpr double kWidth = 50;
    const auto bars = histogram.bars();
    std::uint64_t most = 1;
    for (const auto &bar : bars)
        most = std::max(most, bar.count);
    std::string text;
    for (const auto &bar : bars) {
        // One message is a short bar, not none.
        const double share = std::log10(1 + static_cast<double>(bar.count)) / std::log10(1 + static_cast<double>(most));
        const auto length = static_cast<std::size_t>(std::lround(kWidth * share));
        text += format("    %12.3f us  %-50s %llu\n", static_cast<double>(bar.from) / divisor_to_us,
                       std::string(bar.count != 0 ? std::max<std::size_t>(length, 1) : 0, '#').c_str(),
                       static_cast<Big>(bar.count));
    }
    return text;
}

void print_clock(double cost_ns)
{
    std::printf("clock: CLOCK_MONOTONIC, %.0f ns a reading; a sample has one in it and one around it\n", cost_ns);
    std::fflush(stdout);
}

void print_client(const Options &options, const Outcome &outcome)
{
    const Counts &client = outcome.client;
    std::printf("%s%s\n", title(outcome.plan).c_str(), outcome.interrupted ? " (interrupted)" : "");
    std::printf("  sent %llu (%.0f a second)", static_cast<Big>(client.sent), sent_rate(client));
    if (outcome.plan.test != Test::kThroughput)
        std::printf(", replies %llu, lost %llu", static_cast<Big>(client.received), static_cast<Big>(outcome.lost));
    if (outcome.behind != 0)
        std::printf(", %llu behind the rate wanted", static_cast<Big>(outcome.behind));
    print_counts(client);
    print_ways(outcome.side, "  ");
    for (std::size_t i = 0; i < outcome.servers.size(); ++i) {
        const Counts &server = outcome.servers[i];
        std::printf("  server %s received %llu", options.hosts[i].c_str(), static_cast<Big>(server.received));
        if (server.timed != 0)
            std::printf(" (%.0f a second)", received_rate(server));
        std::printf(", lost %llu", static_cast<Big>(client.sent - std::min(client.sent, server.received)));
        print_counts(server);
        print_ways(outcome.server_sides[i], "    ");
    }
    if (outcome.plan.test != Test::kThroughput)
        print_latency(options, outcome.samples);
    std::fflush(stdout);
}

void print_comparison(const Options &options, const std::vector<Outcome> &outcomes)
{
    const bool rates = outcomes[0].plan.test == Test::kThroughput;
    std::printf("comparison, %s\n", rates                ? "messages a second"
                                    : options.round_trip ? "round trips in us"
                                                         : "half round trips in us");
    std::printf(rates ? "  %-8s %10s %12s %12s %12s\n" : "  %-8s %10s %12s %12s %12s %12s\n", "", "bytes",
                rates ? "sent" : "p50", rates ? "received" : "p99", rates ? "lost" : "p99.9", "messages");
    for (const Outcome &outcome : outcomes) {
        std::printf("  %-8s %10u", name_of(outcome.plan.kind), outcome.plan.size);
        if (rates) {
            std::printf(" %12.0f %12.0f %12llu\n", sent_rate(outcome.client),
                        outcome.servers.empty() ? 0 : received_rate(outcome.servers[0]),
                        static_cast<Big>(outcome.lost));
            continue;
        }
        const Summary summary = outcome.samples.summary();
        for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{3}})
            std::printf(" %12.3f", static_cast<double>(summary.percentiles[i]) / divisor(options));
        std::printf(" %12llu\n", static_cast<Big>(summary.count));
    }
}

void print_server(const Plan &plan, const std::string &client, const Report &server)
{
    const Counts &counts = server.counts;
    std::printf("%s, for %s\n  received %llu", title(plan).c_str(), client.c_str(), static_cast<Big>(counts.received));
    if (counts.timed != 0)
        std::printf(" (%.0f a second)", received_rate(counts));
    std::printf(", sent %llu", static_cast<Big>(counts.sent));
    print_counts(counts);
    print_ways(server.side, "  ");
    std::fflush(stdout);
}

} // namespace vma::lat
