// This serves schemes that see what goes into products: their states, and the ops that add to them. See CALIBRATION in
// tenon/abi/quantization.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "declared.h"
#include "tenon/core/pipeline.h"
#include "tenon/sdk/recorder.h"

namespace tenon {

class Observation {
 public:
  explicit Observation(Context& context) : context_(context) {}

  // Makes an instance for each observer. Throws Error(kPlugin) for a scheme that does not observe.
  void watch(const std::vector<Observer>& observers);

  bool watches() const { return !watchers_.empty(); }
  // Asks the observers of the site's matrices how much they want to keep, and gives it a storage. Says whether anybody
  // watches the site; its ops before the product are then visible. For the description, see tenon_linear.
  bool ask(const Site& site, const std::string& description, StorageTable& storages);
  // Records what adds to the states of the site. `rows` are all but the state, x as the product takes it.
  void record(const Site& site, const tenon_observe_call& rows, ProgramRecording& recording) const;
  // Returns the state of the site that holds the matrix, of a routed site that of one expert, read from the device;
  // empty if nobody watches it.
  std::vector<std::byte> read(const std::string& matrix, uint32_t expert, const StorageTable& storages) const;

 private:
  struct Watcher {
    Instance scheme;
    std::vector<std::string> matrices;
    const tenon_quantization& table() const { return scheme.table<tenon_quantization>(); }
  };
  struct State {
    const Watcher* watcher;
    const Site* site;
    std::string description;
    uint32_t storage;
    uint64_t bytes;  // a site, or each expert of a routed one, has so many
  };

  Context& context_;
  std::vector<std::unique_ptr<Watcher>> watchers_;
  std::vector<State> states_;
};

}  // namespace tenon
