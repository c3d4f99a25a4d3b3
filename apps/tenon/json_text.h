// The commands print JSON with this.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace tenon::app {

// JSON has no number for NaN and infinity: in their place stands null.
std::string json_text(boost::json::value value);

}  // namespace tenon::app
