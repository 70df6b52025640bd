// SPDX-License-Identifier: BSD-2-Clause
// Files of results, CSV and JSON.
#pragma once

#include "util/vma_lat/measure/text.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace vma::lat {

// A file that is complete once done() said so.
class File
{
public:
    explicit File(const std::string &path) : path_(path), file_(std::fopen(path.c_str(), "we"), std::fclose) {}
    Failure fault(const char *what) const
    {
        return error(kExitFailed, "can't %s %s: %s; the results above are all there is", what, path_.c_str(),
                     std::strerror(errno));
    }
    std::FILE *get() const { return file_.get(); }
    Failure done()
    {
        const bool bad = std::ferror(file_.get()) != 0 || std::fflush(file_.get()) != 0;
        return bad ? fault("write") : Failure();
    }

private:
    std::string path_;
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> file_;
};

// A string of JSON.
inline std::string quoted(const std::string &text)
{
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += '\\';
        if (static_cast<unsigned char>(c) < 0x20)
            out += format("\\u%04x", static_cast<unsigned>(c));
        else
            out += c;
    }
    return out + "\"";
}

} // namespace vma::lat
