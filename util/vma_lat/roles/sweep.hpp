// SPDX-License-Identifier: BSD-2-Clause
// A sweep: operations over connected endpoints, one step for each operation and size, by the same server as the other
// tests. Each step has connections of its own.
#pragma once

#include "util/vma_lat/measure/statistics.hpp"
#include "util/vma_lat/options.hpp"
#include "util/vma_lat/roles/control.hpp"
#include "util/vma_lat/roles/crew.hpp"

#include <vector>

namespace vma::lat {

// What a step came to. Complete, if nothing failed.
struct StepOutcome {
    Step step;
    Summary latency;            // ns: round trips of send and write-imm, completions of write and read
    std::uint32_t window = 0;   // what memory and queues allowed
    std::uint64_t streamed = 0; // operations of the second part, all connections together
    std::uint64_t stream_ns = 0;
    Tally client;
    Tally server;

    double per_second() const
    {
        return stream_ns == 0 ? 0 : static_cast<double>(streamed) * 1e9 / static_cast<double>(stream_ns);
    }
};

int be_sweep(const Options &options);
Failure serve_step(const Options &options, Control &control, std::span<const std::byte> body);

// What both sides open for a step, with a domain of this side's if it named one.
Shape shape_of(const Step &step, const std::string &domain);

// One line for each step, the first with the names before it.
void print_sweep_head(const Options &options);
void print_sweep_line(const Options &options, const StepOutcome &outcome);
Failure write_sweep_csv(const std::string &path, const std::vector<StepOutcome> &outcomes);
Failure write_sweep_json(const std::string &path, const Options &options, const std::vector<StepOutcome> &outcomes);

} // namespace vma::lat
