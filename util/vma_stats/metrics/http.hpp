// SPDX-License-Identifier: BSD-2-Clause
// As much of HTTP/1.1 (RFC 9112) as a page of metrics needs: GET and HEAD without a body, one request a connection.
// Pure functions of bytes.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace vma_stats::http {

inline constexpr std::size_t kMostRequest = 8192; // bytes of request line and fields

struct Request {
    std::string method;
    std::string path; // without its query
};

enum class Reading {
    kMore,     // the request has not come whole
    kWhole,    // `out` is filled
    kBad,      // it is none of HTTP/1.x
    kTooLarge, // it is longer than kMostRequest
};

Reading read_request(std::string_view bytes, Request &out);

enum class Status { kOk = 200, kBadRequest = 400, kNotFound = 404, kNotAllowed = 405, kTimeout = 408, kTooLarge = 431 };

// `page` gives the metrics, and is called only if they are asked for. The answer says that the connection ends.
std::string answer(const Request &request, const std::function<std::string()> &page);
std::string answer_error(Status status, bool head = false);

} // namespace vma_stats::http
