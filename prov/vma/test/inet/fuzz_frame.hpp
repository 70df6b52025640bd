// SPDX-License-Identifier: BSD-2-Clause
// The fuzzer's entry point for what reads frames, and what it has reached, so that a unit test can run it over the
// corpus.
#pragma once

#include <array>
#include <cstdint>

#include "prov/vma/src/inet/udp/header.hpp"
#include "prov/vma/src/inet/wire/frame.hpp"
#include "prov/vma/src/inet/wire/icmp.hpp"
#include "prov/vma/src/inet/wire/reassembly.hpp"

// libFuzzer's name for it. Always 0; a broken promise of the code under test ends the program.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

struct FuzzReached { // how often each answer was given, in all runs
    std::array<std::uint64_t, vma::inet::kParsedKinds> parsed{};
    std::array<std::uint64_t, vma::inet::kJoinedKinds> joined{};
    std::array<std::uint64_t, vma::inet::kIcmpParsedKinds> icmp{};
    std::array<std::uint64_t, vma::inet::kUdpParsedKinds> udp{};
    std::array<std::uint64_t, 3> gro{}; // TCP segments: taken by themselves, merged; batches with both
};
const FuzzReached &fuzz_reached();
