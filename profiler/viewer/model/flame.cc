#include "model/flame.h"

#include <algorithm>
#include <unordered_map>

#include "model/sum.h"
#include "model/work.h"

namespace tenon::view {

Flame flame_of(const profiler::TraceFile& file, const std::vector<uint32_t>& tracks) {
  using profiler::TraceSlice;
  Flame flame;
  flame.nodes.emplace_back();
  std::unordered_map<uint32_t, uint32_t> name_ids;  // from the file's names to those without numbers
  std::unordered_map<std::string, uint32_t> plain_ids;
  std::unordered_map<uint64_t, uint32_t> node_ids;  // keyed by parent and name
  const auto node_of = [&](uint32_t parent, const TraceSlice& s) {
    const auto [name, is_new] = name_ids.try_emplace(s.name, 0);
    if (is_new) {
      const auto id = static_cast<uint32_t>(plain_ids.size());
      name->second = plain_ids.try_emplace(without_numbers(file.name(s)), id).first->second;
    }
    const uint64_t key = uint64_t{parent} << 32U | name->second;
    const auto [node, is_new_node] = node_ids.try_emplace(key, static_cast<uint32_t>(flame.nodes.size()));
    if (is_new_node) {
      flame.nodes.push_back(
          {.name = without_numbers(file.name(s)), .longest = static_cast<uint32_t>(&s - file.slices.data())});
      flame.nodes[parent].children.push_back(node->second);
    }
    return node->second;
  };
  for (const uint32_t t : tracks) {
    const profiler::TraceTrack& track = file.tracks[t];
    std::vector<uint32_t> above, here;  // these are nodes of the lane's slices
    for (size_t d = 0; d < track.depth(); ++d) {
      here.clear();
      uint32_t parent = d == 0 ? 0 : track.lanes[d - 1];
      for (uint32_t i = track.lanes[d]; i < track.lanes[d + 1]; ++i) {
        const TraceSlice& s = file.slices[i];
        uint32_t parent_node = 0;
        if (d > 0) {
          while (parent + 1 < track.lanes[d] && file.slices[parent + 1].begin_ns <= s.begin_ns) ++parent;
          parent_node = above[parent - track.lanes[d - 1]];
        }
        const uint32_t n = node_of(parent_node, s);
        Flame::Node& node = flame.nodes[n];
        add_to(node.ns, s.duration_ns);
        ++node.count;
        if (s.duration_ns > file.slices[node.longest].duration_ns) node.longest = i;
        here.push_back(n);
      }
      std::swap(above, here);
    }
  }
  for (Flame::Node& node : flame.nodes) {
    std::ranges::stable_sort(node.children,
                             [&](uint32_t a, uint32_t b) { return flame.nodes[a].ns > flame.nodes[b].ns; });
  }
  for (const uint32_t child : flame.nodes[0].children) add_to(flame.nodes[0].ns, flame.nodes[child].ns);
  return flame;
}

}  // namespace tenon::view
