// This opens a folder of safetensors: one file, or the shards of an index, and config.json as metadata. Whichever part
// is named, the whole model is opened. Invariants: the index names files of its own folder only, all of them are there,
// and each tensor that it lists is in the file that it names. config.json must be there, since the format has no
// description of the model; generation_config.json may be.
#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>

#include "json_text.h"
#include "layout.h"
#include "readers.h"
#include "safetensors_parser.h"
#include "table_weights.h"
#include "tenon/core/files.h"

namespace tenon::weights {
namespace {

namespace fs = std::filesystem;

constexpr char kExtension[] = ".safetensors";
constexpr char kIndexExtension[] = ".safetensors.index.json";
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxIndexBytes = uint64_t{100} << 20;
constexpr size_t kNamesShown = 10;

[[noreturn]] void fail(const fs::path& path, const std::string& message) {
  throw Error(ErrorCode::kModel, {path.string()}, message);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// A model lies in its folder, with either an index over shards or one file.
struct Location {
  fs::path folder, index, file;
};

// Returns names in a folder, for the message that the weights are not among them.
std::string names(const std::vector<std::string>& all) {
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kNamesShown); ++i) text += (i > 0 ? ", " : "") + in_quotes(all[i]);
  return text + (all.size() > kNamesShown ? ", ..." : "");
}

Location locate_in_folder(const fs::path& folder) {
  if (is_there(folder / "model.safetensors")) return {folder, {}, folder / "model.safetensors"};
  const fs::path index = folder / (std::string("model") + kIndexExtension);
  if (is_there(index)) return {folder, index, {}};

  std::vector<std::string> stores, ggufs;
  std::error_code error;
  const std::vector<std::string> all = names_in_folder(folder, error);
  if (error) throw Error(ErrorCode::kIo, {folder.string()}, "cannot list the folder: " + error.message());
  for (const std::string& name : all) {
    if (name.ends_with(kExtension)) stores.push_back(name);
    if (name.ends_with(".gguf")) ggufs.push_back(name);
  }
  if (stores.size() == 1) return {folder, {}, folder / stores.front()};
  if (!stores.empty()) {
    fail(folder, "holds several .safetensors files (" + names(stores) +
                     ") and neither model.safetensors nor model.safetensors.index.json, which would say how they "
                     "belong together");
  }
  if (!ggufs.empty()) fail(folder, "holds no .safetensors file, but GGUF: name the file, one of " + names(ggufs));
  fail(folder, "no model: neither model.safetensors, model.safetensors.index.json nor another .safetensors file; " +
                   (all.empty() ? "the folder is empty" : "found " + names(all)));
}

// A shard is opened through the index beside it, so that naming any part opens the model.
Location locate(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return locate_in_folder(path);
  const fs::path folder = path.parent_path();
  if (path.string().ends_with(kIndexExtension)) return {folder, path, {}};
  const auto part = PartName::parse(path);
  if (!part || part->count == 1) return {folder, {}, path};
  const fs::path index = folder / (part->stem + kIndexExtension);
  if (!is_there(index)) {
    fail(path, "is part " + std::to_string(part->number) + " of " + std::to_string(part->count) + ", but the index " +
                   index.string() + " is missing");
  }
  return {folder, index, {}};
}

// This maps a tensor's name to its file's name.
using WeightMap = std::map<std::string, std::string>;

WeightMap read_index(const fs::path& path) {
  const boost::json::object root = read_json_object(path, kMaxIndexBytes);
  const boost::json::value* entries = root.if_contains("weight_map");
  if (!entries || !entries->is_object()) fail(path, "has no object \"weight_map\"");
  Findings findings(path.string());
  WeightMap map;
  for (const auto& [tensor, shard] : entries->get_object()) {
    const std::string name = shard.is_string() ? std::string(shard.get_string()) : "";
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      findings.add("weight_map: tensor " + in_quotes({tensor.data(), tensor.size()}) +
                   " must have the name of a file in the same folder, not " +
                   (shard.is_string() ? in_quotes(name) : in_quotes(boost::json::serialize(shard))));
    }
    map.emplace(tensor, name);
  }
  if (map.empty()) findings.add("weight_map is empty");
  findings.throw_if_any();
  return map;
}

struct Shards {
  std::vector<MappedFile> files;
  std::vector<WeightTensor> tensors;
  MetadataMap metadata;

  void open(const fs::path& path) {
    files.emplace_back(path);
    SafetensorsFile parsed =
        parse_safetensors(files.back().bytes(), path.string(), static_cast<uint32_t>(files.size() - 1));
    std::move(parsed.tensors.begin(), parsed.tensors.end(), std::back_inserter(tensors));
    metadata.merge(parsed.metadata);
  }
};

Shards open_shards(const Location& where) {
  const WeightMap map = read_index(where.index);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : map) names.insert(shard);
  Findings findings(where.index.string());
  for (const std::string& name : names) {
    if (!is_there(where.folder / name)) findings.add("names the file " + in_quotes(name) + ", which is missing");
  }
  findings.throw_if_any();

  Shards shards;
  for (const std::string& name : names) shards.open(where.folder / name);
  std::map<std::string_view, uint32_t> found;
  for (const WeightTensor& t : shards.tensors) found.emplace(t.name, t.file);
  for (const auto& [tensor, shard] : map) {
    const auto place = found.find(tensor);
    const std::string claim = "names tensor " + in_quotes(tensor) + " in " + in_quotes(shard) + ", but ";
    if (place == found.end()) {
      findings.add(claim + "no file that it names holds it");
    } else if (const fs::path actual = shards.files[place->second].path().filename(); actual != shard) {
      findings.add(claim + "it is in " + in_quotes(actual.string()));
    }
  }
  findings.throw_if_any();
  return shards;
}

void add_config(const fs::path& folder, MetadataMap& metadata) {
  const fs::path config = folder / "config.json";
  if (!is_there(config)) {
    fail(config,
         "is missing; safetensors hold no model description, so the config.json that was published with them "
         "must be in the same folder");
  }
  const boost::json::object root = read_json_object(config, kMaxConfigBytes);
  flatten_json(root, "", metadata);
  if (const boost::json::value* how = root.if_contains("quantization_config"); how != nullptr && how->is_object()) {
    metadata["quantization_config"] = boost::json::serialize(*how);
  }
  const fs::path generation = folder / "generation_config.json";
  if (is_there(generation)) flatten_json(read_json_object(generation, kMaxConfigBytes), "generation_config.", metadata);
}

// Programs that quantize have written a bias of zeros for every matrix that they quantized, also
// where the model has none. Such a bias adds nothing: it is no longer listed, so that it need not be
// used. The biases of plain matrices stay.
void leave_out_zero_biases(const std::vector<MappedFile>& files, Contents& contents) {
  constexpr std::string_view kBias = ".bias";
  std::set<std::string> matrices, plain;  // matrices have tensors beside the bias; plain ones have one called weight
  for (const WeightTensor& t : contents.tensors) {
    const std::string matrix = t.name.substr(0, t.name.rfind('.'));
    if (!t.name.ends_with(kBias)) matrices.insert(matrix);
    if (t.name.ends_with(".weight")) plain.insert(matrix);
  }
  const auto is_extra = [&](const WeightTensor& t) {
    if (!t.name.ends_with(kBias)) return false;
    const std::string matrix = t.name.substr(0, t.name.size() - kBias.size());
    if (!matrices.contains(matrix) || plain.contains(matrix)) return false;
    const std::byte* data = files.at(t.file).bytes().data() + t.offset;
    return std::all_of(data, data + t.bytes, [](std::byte b) { return b == std::byte{0}; });
  };
  const auto listed_end = std::stable_partition(contents.tensors.begin(), contents.tensors.end(),
                                                [&](const WeightTensor& t) { return !is_extra(t); });
  contents.unlisted.assign(listed_end, contents.tensors.end());
  contents.tensors.erase(listed_end, contents.tensors.end());
}

}  // namespace

bool claims_safetensors(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) || path.ends_with(kExtension) || path.ends_with(kIndexExtension);
}

std::unique_ptr<Weights> open_safetensors(const std::string& path, const WeightsOptions&) {
  const Location where = locate(path);
  Shards shards;
  if (where.index.empty()) {
    shards.open(where.file);
  } else {
    shards = open_shards(where);
  }
  Contents contents{"huggingface", std::move(shards.tensors), {}};
  add_config(where.folder, contents.metadata);
  contents.metadata.merge(shards.metadata);
  if (contents.metadata.contains("quantization_config")) leave_out_zero_biases(shards.files, contents);
  return std::make_unique<FileWeights>(std::move(contents), std::move(shards.files));
}

}  // namespace tenon::weights
