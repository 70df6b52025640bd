// SPDX-License-Identifier: BSD-2-Clause
// How endpoints get connected: requests and answers of all connections come in any order, over one event queue.
#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/transport/endpoints.hpp"

#include <algorithm>

namespace vma::lat {

namespace {

std::vector<Posted> make_posted(Posted::Kind kind, std::uint32_t connection, std::uint32_t count)
{
    std::vector<Posted> all(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        all[i].kind = kind;
        all[i].connection = connection;
        all[i].slot = i;
    }
    return all;
}

} // namespace

Failure Endpoints::listen(std::uint32_t connection, const Address &self, std::uint16_t &port)
{
    Address address = self;
    address.set_port(0);
    Info info;
    if (auto failure = find(address, FI_SOURCE, info))
        return failure;
    if (auto failure = open_fabric(info))
        return failure;
    Fid<fid_pep> &listener = places_[connection].listener;
    if (auto failure = open_object("fi_passive_ep", listener, [&](fid_pep **place) {
            return fi_passive_ep(fabric_.get(), info.get(), place, nullptr);
        }))
        return failure;
    int result = fi_pep_bind(listener.get(), &events_->fid, 0);
    if (result == 0)
        result = fi_listen(listener.get());
    Address name;
    std::size_t length = sizeof name.storage;
    if (result == 0)
        result = fi_getname(&listener->fid, &name.storage, &length);
    if (result != 0)
        return fabric_error("fi_listen", result);
    port = name.port();
    return {};
}

Failure Endpoints::connect(std::uint32_t connection, const Address &peer)
{
    Info info;
    if (auto failure = find(peer, 0, info))
        return failure;
    if (auto failure = open_fabric(info))
        return failure;
    if (auto failure = open_endpoint(connection, info.get()))
        return failure;
    const int result = fi_connect(endpoint(connection), info->dest_addr, nullptr, 0);
    return result != 0 ? fabric_error("fi_connect", result) : Failure();
}

Failure Endpoints::open_endpoint(std::uint32_t connection, fi_info *info)
{
    if (auto failure = open_domain(info))
        return failure;
    Place &place = places_[connection];
    if (auto failure = open_object("fi_endpoint", place.endpoint,
                                   [&](fid_ep **object) { return fi_endpoint(domain_.get(), info, object, nullptr); }))
        return failure;
    int result = fi_ep_bind(place.endpoint.get(), &events_->fid, 0);
    if (result == 0)
        result = fi_ep_bind(place.endpoint.get(), &queue(connection)->fid, FI_TRANSMIT | FI_RECV);
    if (result != 0)
        return fabric_error("fi_ep_bind", result);
    result = fi_enable(place.endpoint.get());
    if (result != 0)
        return fabric_error("fi_enable", result);
    place.receives = make_posted(Posted::Kind::kReceive, connection, receives_);
    place.data = make_posted(Posted::Kind::kData, connection, slots_);
    place.controls = make_posted(Posted::Kind::kControl, connection, kControls);
    for (Posted &receive : place.receives) {
        const ssize_t posted = post_receive(receive);
        if (posted != 0)
            return fabric_error("fi_recv", posted);
    }
    return {};
}

// Which connection a request is for says the endpoint that listened.
Failure Endpoints::accept(const fi_eq_cm_entry &entry)
{
    const Info request(entry.info);
    const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place &each) {
        return each.listener && &each.listener->fid == entry.fid;
    });
    if (place == places_.end() || place->endpoint)
        return error(kExitServer, "an endpoint was asked for a second connection; the test ends");
    const auto connection = static_cast<std::uint32_t>(place - places_.begin());
    if (auto failure = open_endpoint(connection, request.get()))
        return failure;
    const int result = fi_accept(place->endpoint.get(), nullptr, 0);
    return result != 0 ? fabric_error("fi_accept", result) : Failure();
}

Failure Endpoints::on_event(std::uint32_t event, const fi_eq_cm_entry &entry)
{
    if (event == FI_CONNREQ)
        return accept(entry);
    if (event != FI_CONNECTED)
        return error(kExitServer, "connecting endpoints: the other side ended a connection (event %u); the test ends",
                     event);
    for (Place &place : places_)
        place.connected = place.connected || (place.endpoint && &place.endpoint->fid == entry.fid);
    return {};
}

Failure Endpoints::establish(const std::function<bool()> &given_up)
{
    const auto connected = [](const Place &place) { return place.connected; };
    while (!std::all_of(places_.begin(), places_.end(), connected)) {
        std::uint32_t event = 0;
        fi_eq_cm_entry entry{};
        const ssize_t got = fi_eq_sread(events_.get(), &event, &entry, sizeof entry, kTickMs, 0);
        if (got == -FI_EAVAIL) {
            fi_eq_err_entry why{};
            fi_eq_readerr(events_.get(), &why, 0);
            return fabric_error("connecting an endpoint", why.err);
        }
        if (got >= 0) {
            if (auto failure = on_event(event, entry))
                return failure;
        } else if (got != -FI_EAGAIN && got != -FI_EINTR) {
            return fabric_error("fi_eq_sread", got);
        }
        if (given_up())
            return error(kExitServer, "the other side went away before all endpoints were connected; the test ends");
    }
    return {};
}

} // namespace vma::lat
