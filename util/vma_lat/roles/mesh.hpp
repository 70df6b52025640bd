// SPDX-License-Identifier: BSD-2-Clause
// A mesh: every process writes blocks with immediate data into memory of every other, over a connection for each pair,
// and verifies what the others write. Members find each other, and see each other end, by a TCP connection for each
// pair.
#pragma once

#include "util/vma_lat/options.hpp"
#include "util/vma_lat/roles/control.hpp"

#include <span>
#include <vector>

namespace vma::lat {

int be_mesh(const Options &options);
int be_member(const Options &options); // one of them, in this process

// What members say to each other first. It has to agree.
struct Hello {
    std::uint32_t rank = 0;
    MeshPlan plan;
    std::uint16_t port = 0; // where an endpoint listens for the other side, which has the higher rank; 0: nowhere
};

Bytes encode(const Hello &hello);
Failure decode(std::span<const std::byte> bytes, Hello &hello);

// What differs between the plans of two members.
Failure disagreement(const Hello &mine, const Hello &theirs);

} // namespace vma::lat
