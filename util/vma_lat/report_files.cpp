// SPDX-License-Identifier: BSD-2-Clause
// CSV and JSON for programs. All times are in ns, all latencies whole round trips.
#include "util/vma_lat/report.hpp"
#include "util/vma_lat/result_file.hpp"

#include <cstdio>

namespace vma::lat {

namespace {

using Big = unsigned long long;

std::string ways_json(const Side &side)
{
    std::string text;
    for (const Way &way : side.ways) {
        text += format("%s{\"sockets\": %u, \"way\": \"%s\", \"device\": %s, \"peer_user\": %s, \"introduced\": %s, ",
                       text.empty() ? "" : ", ", way.sockets, name_of(way.carrier), quoted(way.device).c_str(),
                       way.other_user ? std::to_string(way.user).c_str() : "null", way.introduced ? "true" : "false");
        text += format("\"reason\": %s, \"bytes\": %llu, \"kernel_bytes\": %llu}", quoted(way.reason).c_str(),
                       static_cast<Big>(way.bytes), static_cast<Big>(way.kernel_bytes));
    }
    return "[" + text + "]";
}

std::string side_json(const Counts &counts, const Side &side)
{
    return format("{\"sent\": %llu, \"received\": %llu, \"reordered\": %llu, \"duplicates\": %llu, \"damaged\": %llu, "
                  "\"foreign\": %llu, \"per_second\": %.1f, \"library\": %s, \"ways\": %s}",
                  static_cast<Big>(counts.sent), static_cast<Big>(counts.received), static_cast<Big>(counts.reordered),
                  static_cast<Big>(counts.duplicates), static_cast<Big>(counts.damaged),
                  static_cast<Big>(counts.foreign), sent_rate(counts), side.library ? "true" : "false",
                  ways_json(side).c_str());
}

std::string latency_json(const Samples &samples)
{
    const Summary summary = samples.summary();
    std::string text = format("{\"count\": %llu, \"kept\": %zu, \"exact\": %s", static_cast<Big>(summary.count),
                              samples.kept(), summary.exact ? "true" : "false");
    if (summary.count != 0) {
        text += format(", \"min\": %llu, \"mean\": %.3f", static_cast<Big>(summary.min), summary.mean);
        for (std::size_t i = 0; i < kPercentiles.size(); ++i)
            text += format(", \"%s\": %llu", kPercentileNames[i], static_cast<Big>(summary.percentiles[i]));
        text += format(", \"max\": %llu", static_cast<Big>(summary.max));
    }
    text += ", \"histogram\": [";
    const char *comma = "";
    for (const auto &bar : samples.histogram().bars()) {
        text += format("%s[%llu, %llu, %llu]", comma, static_cast<Big>(bar.from), static_cast<Big>(bar.below),
                       static_cast<Big>(bar.count));
        comma = ", ";
    }
    return text + "]}";
}

std::string outcome_json(const Outcome &outcome)
{
    const Plan &plan = outcome.plan;
    std::string text = format(
        "  {\"test\": \"%s\", \"transport\": \"%s\", \"provider\": %s, \"size\": %u, \"sockets\": %u, "
        "\"wait\": \"%s\", \"group\": %s, \"check\": %s, \"interrupted\": %s, \"error\": %s,\n",
        name_of(plan.test), name_of(plan.kind), quoted(plan.provider).c_str(), plan.size, plan.sockets,
        name_of(plan.wait), quoted(plan.group).c_str(), plan.check ? "true" : "false",
        outcome.interrupted ? "true" : "false", outcome.failure ? quoted(outcome.failure->text).c_str() : "null");
    text += format("   \"asked\": %llu, \"lost\": %llu, \"behind\": %llu,\n   \"client\": %s,\n   \"servers\": [",
                   static_cast<Big>(outcome.asked), static_cast<Big>(outcome.lost), static_cast<Big>(outcome.behind),
                   side_json(outcome.client, outcome.side).c_str());
    const char *comma = "";
    for (std::size_t i = 0; i < outcome.servers.size(); ++i) {
        text += comma + side_json(outcome.servers[i], outcome.server_sides[i]);
        comma = ", ";
    }
    text += "]";
    if (plan.test != Test::kThroughput)
        text += ",\n   \"rtt_ns\": " + latency_json(outcome.samples);
    return text + "}";
}

} // namespace

Failure write_csv(const std::string &path, const std::vector<Outcome> &outcomes)
{
    File file(path);
    if (file.get() == nullptr)
        return file.fault("open");
    std::fprintf(file.get(), "test,transport,size,channel,sequence,sent_ns,rtt_ns\n");
    for (const Outcome &outcome : outcomes) {
        const std::string start =
            format("%s,%s,%u", name_of(outcome.plan.test), name_of(outcome.plan.kind), outcome.plan.size);
        for (std::size_t i = 0; i < outcome.samples.kept(); ++i) {
            const Sample &sample = outcome.samples[i];
            std::fprintf(file.get(), "%s,%u,%llu,%llu,%u\n", start.c_str(), sample.channel,
                         static_cast<Big>(sample.sequence), static_cast<Big>(sample.sent_ns), sample.rtt_ns);
        }
    }
    return file.done();
}

Failure write_json(const std::string &path, const Options &options, const std::vector<Outcome> &outcomes,
                   double clock_ns)
{
    File file(path);
    if (file.get() == nullptr)
        return file.fault("open");
    std::string text = format(
        "{\"tool\": \"vma_lat\", \"clock\": \"CLOCK_MONOTONIC\", \"clock_cost_ns\": %.1f, \"hosts\": [", clock_ns);
    for (std::size_t i = 0; i < options.hosts.size(); ++i)
        text += (i == 0 ? "" : ", ") + quoted(options.hosts[i]);
    text += "],\n \"tests\": [";
    for (std::size_t i = 0; i < outcomes.size(); ++i)
        text += (i == 0 ? "\n" : ",\n") + outcome_json(outcomes[i]);
    text += "]}\n";
    std::fwrite(text.data(), 1, text.size(), file.get());
    return file.done();
}

} // namespace vma::lat
