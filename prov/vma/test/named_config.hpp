// SPDX-License-Identifier: BSD-2-Clause
// A configuration file of a test's own, which FI_VMA_CONFIG names for as long as it lives. Each has another name, as
// the provider reads one of a name only once.
#pragma once

#include "fabtests/unit.hpp"

#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>

namespace vma::test {

class NamedConfig
{
public:
    explicit NamedConfig(const char *text)
    {
        static int number = 0;
        path_ = "/tmp/vma-config-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
        std::ofstream(path_) << text;
        assert_int_equal(::setenv("FI_VMA_CONFIG", path_.c_str(), 1), 0);
    }
    ~NamedConfig()
    {
        ::unsetenv("FI_VMA_CONFIG");
        ::unlink(path_.c_str());
    }
    NamedConfig(const NamedConfig &) = delete;
    NamedConfig &operator=(const NamedConfig &) = delete;
    const std::string &path() const { return path_; }

private:
    std::string path_;
};

} // namespace vma::test
