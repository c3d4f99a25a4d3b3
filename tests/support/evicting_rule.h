// This is the rule of kv_cache.h2o and kv_cache.snapkv in float64, as their READMEs say it: a list of positions with
// their scores for each KV head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon::test {

struct EvictingRule {
  uint32_t most;     // so many tokens are in use when a step's rows come
  uint32_t cut;      // so many tokens are kept after a prompt, and where text has filled `most`
  uint32_t newest;   // so many tokens are never dropped
  uint32_t observe;  // so many rows weigh; 0: all
  uint32_t around;   // a score counts for so many tokens to either side
};

// These are the tokens that a KV head of a sequence keeps.
struct KeptTokens {
  std::map<uint32_t, double> score;    // by position
  std::map<uint32_t, double> pending;  // the step before has left these weights
  bool prompt = false;                 // a piece of a prompt came, and no row alone since
  uint32_t dropped = 0;

  void step(const EvictingRule& rule, uint32_t kv_len, uint32_t rows) {
    for (const auto& [position, weight] : pending) score[position] += weight;
    pending.clear();
    std::erase_if(score, [&](const auto& s) { return s.first >= kv_len; });
    if (kv_len == 0) prompt = false;
    const bool cuts = rows == 1 && (prompt || score.size() > rule.most);
    drop_to(rule, cuts ? rule.cut : rule.most, kv_len);
    if (rows == 1) prompt = false;
    if (rule.observe != 0 && rows > 1 && rows >= rule.observe) prompt = true;
    for (auto& [position, s] : score) {
      if (rule.observe == 0) continue;
      s *= rows < rule.observe ? 1 - double(rows) / rule.observe : 0;
    }
    for (uint32_t i = 0; i < rows; ++i) score[kv_len + i] = 0;
  }

 private:
  void drop_to(const EvictingRule& rule, size_t keep, uint32_t kv_len) {
    if (score.size() <= keep) return;
    std::vector<std::pair<uint32_t, double>> old;
    for (const auto& s : score) {
      if (s.first + rule.newest < kv_len) old.emplace_back(s);
    }
    std::vector<std::tuple<double, double, uint32_t>> order;
    for (size_t i = 0; i < old.size(); ++i) {
      double pooled = 0;
      for (size_t j = 0; j < old.size(); ++j) {
        if (j + rule.around >= i && j <= i + rule.around) pooled = std::max(pooled, old[j].second);
      }
      order.emplace_back(pooled, old[i].second, old[i].first);
    }
    std::ranges::sort(order);
    dropped += static_cast<uint32_t>(score.size() - keep);
    for (size_t i = 0, n = score.size() - keep; i < n; ++i) score.erase(std::get<2>(order.at(i)));
  }
};

}  // namespace tenon::test
