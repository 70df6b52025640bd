// SPDX-License-Identifier: BSD-2-Clause
// How results are shown: text for people, CSV and JSON for programs.
#pragma once

#include "util/vma_lat/options.hpp"
#include "util/vma_lat/roles/run.hpp"

namespace vma::lat {

void print_clock(double cost_ns);
void print_client(const Options &options, const Outcome &outcome);
void print_comparison(const Options &options, const std::vector<Outcome> &outcomes);
void print_server(const Plan &plan, const std::string &client, const Report &server);

// Columns: test, transport, size, channel, sequence, sent_ns (since the test's start), rtt_ns. The first line names
// them.
Failure write_csv(const std::string &path, const std::vector<Outcome> &outcomes);
Failure write_json(const std::string &path, const Options &options, const std::vector<Outcome> &outcomes,
                   double clock_ns);

double sent_rate(const Counts &client); // messages a second
double received_rate(const Counts &server);

// Bars in which a count ten times larger is a step longer, not ten times.
std::string draw(const Histogram &histogram, double divisor_to_us);

} // namespace vma::lat
