// SPDX-License-Identifier: BSD-2-Clause
// Requests are read strictly: what is not of the form gets 400, and nothing of it is acted upon.
#include "util/vma_stats/metrics/http.hpp"

#include <algorithm>

namespace vma_stats::http {

namespace {

constexpr const char *kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char *kFrontPage = "<!DOCTYPE html><title>ofi-vma</title><a href=\"/metrics\">metrics</a>\n";

bool is_token(std::string_view text) // RFC 9110, 5.6.2
{
    constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
    const auto fits = [&](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               kOthers.find(c) != std::string_view::npos;
    };
    return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

bool is_printable(std::string_view text) // no control characters but the tab
{
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) >= ' ' && c != 0x7f) || c == '\t'; });
}

// Cuts a line with its end off `bytes`. A line feed alone ends one, too (RFC 9112, 2.2).
bool take_line(std::string_view &bytes, std::string_view &line)
{
    const std::size_t end = bytes.find('\n');
    if (end == std::string_view::npos)
        return false;
    line = bytes.substr(0, end);
    if (!line.empty() && line.back() == '\r')
        line.remove_suffix(1);
    bytes.remove_prefix(end + 1);
    return true;
}

// "/metrics?x=1" and "http://host:1/metrics" are /metrics.
std::string path_of(std::string_view target)
{
    constexpr std::string_view kScheme = "http://";
    if (target.substr(0, kScheme.size()) == kScheme) {
        target.remove_prefix(kScheme.size());
        target.remove_prefix(std::min(target.find('/'), target.size()));
    }
    target = target.substr(0, target.find('?'));
    return target.empty() ? "/" : std::string(target);
}

bool read_first_line(std::string_view line, Request &out, bool &wants_host)
{
    const std::size_t first = line.find(' ');
    const std::size_t last = line.rfind(' ');
    if (first == std::string_view::npos || first == last || !is_printable(line))
        return false;
    const std::string_view method = line.substr(0, first);
    const std::string_view target = line.substr(first + 1, last - first - 1);
    const std::string_view version = line.substr(last + 1);
    constexpr std::string_view kVersion = "HTTP/1.";
    if (!is_token(method) || target.empty() || target.find(' ') != std::string_view::npos || version.size() != 8 ||
        version.substr(0, 7) != kVersion || version[7] < '0' || version[7] > '9')
        return false;
    out.method = method;
    out.path = path_of(target);
    wants_host = version[7] != '0';
    return true;
}

bool is_host(std::string_view name)
{
    constexpr std::string_view kHost = "host";
    return std::equal(name.begin(), name.end(), kHost.begin(), kHost.end(),
                      [](char a, char b) { return (a | 0x20) == b; });
}

const char *name_of(Status status)
{
    switch (status) {
    case Status::kOk:
        return "OK";
    case Status::kBadRequest:
        return "Bad Request";
    case Status::kNotFound:
        return "Not Found";
    case Status::kNotAllowed:
        return "Method Not Allowed";
    case Status::kTimeout:
        return "Request Timeout";
    case Status::kTooLarge:
        return "Request Header Fields Too Large";
    }
    return "";
}

std::string respond(Status status, const char *type, const std::string &body, bool head)
{
    std::string text = "HTTP/1.1 " + std::to_string(static_cast<int>(status)) + " " + name_of(status) + "\r\n";
    text += std::string("Content-Type: ") + type + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    if (status == Status::kNotAllowed)
        text += "Allow: GET, HEAD\r\n";
    text += "Connection: close\r\n\r\n";
    return head ? text : text + body;
}

} // namespace

Reading read_request(std::string_view bytes, Request &out)
{
    const Reading more = bytes.size() > kMostRequest ? Reading::kTooLarge : Reading::kMore;
    std::string_view line;
    bool wants_host = false;
    bool has_host = false;
    while (bytes.substr(0, 2) == "\r\n") // RFC 9112, 2.2
        bytes.remove_prefix(2);
    if (!take_line(bytes, line))
        return more;
    if (!read_first_line(line, out, wants_host))
        return Reading::kBad;
    while (take_line(bytes, line)) {
        if (line.empty())
            return wants_host && !has_host ? Reading::kBad : more == Reading::kMore ? Reading::kWhole : more;
        const std::size_t colon = line.find(':');
        if (colon == std::string_view::npos || !is_token(line.substr(0, colon)) || !is_printable(line))
            return Reading::kBad;
        has_host = has_host || is_host(line.substr(0, colon));
    }
    return more;
}

std::string answer(const Request &request, const std::function<std::string()> &page)
{
    const bool head = request.method == "HEAD";
    if (!head && request.method != "GET")
        return answer_error(Status::kNotAllowed);
    if (request.path == "/metrics")
        return respond(Status::kOk, kMetricsType, page(), head);
    if (request.path == "/")
        return respond(Status::kOk, "text/html; charset=utf-8", kFrontPage, head);
    return answer_error(Status::kNotFound, head);
}

std::string answer_error(Status status, bool head)
{
    return respond(status, "text/plain; charset=utf-8", std::string(name_of(status)) + "\n", head);
}

} // namespace vma_stats::http
