// This knows who sent the requests that are there, and what steps did for each of them: what schedulers go by that take
// turns between clients.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace tenon {

struct Client {
  uint64_t number = 0;  // tenon_sequence.client
  uint64_t served = 0;  // steps have computed so many tokens of its requests, and the one that is under way, where the
  uint64_t under_way = 0;  // one after it is planned meanwhile, will have computed so many more
  uint64_t since = 0;      // the step that last gave rows to one of them, or before which the first of them came
  uint32_t requests = 0;   // so many of them are there
};

// Thread: the one that steps.
class Clients {
 public:
  // Counts one more request of that client, until leave(). The client stays where it is as long as it has any.
  Client& join(const std::string& name, uint64_t step) {
    if (by_name_.size() >= kMostKnown) {
      std::erase_if(by_name_, [](const auto& entry) { return entry.second.requests == 0; });
    }
    const auto [entry, is_new] = by_name_.try_emplace(name);
    Client& client = entry->second;
    if (is_new) client.number = ++last_;
    if (client.requests++ == 0) client.since = step;
    return client;
  }
  void leave(Client& client) { --client.requests; }

 private:
  // If there are more than that, those that have no request are forgotten, and come back as somebody new.
  static constexpr size_t kMostKnown = 4096;
  uint64_t last_ = 0;
  std::unordered_map<std::string, Client> by_name_;
};

}  // namespace tenon
