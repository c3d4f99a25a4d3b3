#include <unistd.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cerrno>

#include "model_writer.h"
#include "quantized_tensors.h"
#include "safetensors_parser.h"
#include "tenon/core/error.h"
#include "tenon/core/quantized_rows.h"

namespace tenon::weights {
namespace {

namespace fs = std::filesystem;

constexpr char kWeightsName[] = "model.safetensors";
constexpr size_t kHeaderAlignment = 8;

// A tensor of the file, and what stands in its header.
struct Target {
  WeightTensor tensor;
  std::vector<StoredPart> parts;  // one for what is stored as it is
  std::vector<uint64_t> at;       // where each part goes on
};

Target target_of(WeightTensor t) {
  if (sdk::is_quantized_rows(t.format)) return {t, stored_parts(t), {}};
  const StoredPart whole{t.name, t.format, t.shape};
  return {std::move(t), {whole}, {}};
}

uint64_t bytes_of(const StoredPart& part) {
  uint64_t bytes = tenon_format_block(part.format).bytes;
  for (const int64_t dim : part.shape) bytes *= static_cast<uint64_t>(dim);
  return bytes;
}

// Gives every part its place, wide elements first so that each lies aligned, and returns what stands before them.
std::string lay_out(std::vector<Target>& targets, uint64_t& file_bytes) {
  std::vector<std::pair<size_t, size_t>> order;  // target, part
  boost::json::object header, metadata{{"format", "pt"}};
  for (size_t t = 0; t < targets.size(); ++t) {
    targets[t].at.resize(targets[t].parts.size());
    for (size_t p = 0; p < targets[t].parts.size(); ++p) order.emplace_back(t, p);
    if (!sdk::is_quantized_rows(targets[t].tensor.format)) continue;
    const auto [key, value] = format_entry(targets[t].tensor);
    metadata[key.substr(key.find('.') + 1)] = value;
  }
  const auto width = [&](const auto& place) {
    return tenon_format_block(targets[place.first].parts[place.second].format).bytes;
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return width(a) > width(b); });
  header["__metadata__"] = std::move(metadata);
  uint64_t end = 0;
  for (const auto& [t, p] : order) {
    const StoredPart& part = targets[t].parts[p];
    const std::string_view dtype = safetensors_dtype(part.format);
    if (dtype.empty()) {
      throw Error(ErrorCode::kModel, "tensor \"" + part.name + "\" in " + sdk::format_name(part.format) +
                                         " cannot be stored in safetensors");
    }
    targets[t].at[p] = end;
    boost::json::object& entry = header[part.name].emplace_object();
    entry["dtype"] = dtype;
    entry["shape"] = boost::json::array(part.shape.begin(), part.shape.end());
    entry["data_offsets"] = {end, end + bytes_of(part)};
    end += bytes_of(part);
  }
  std::string text = boost::json::serialize(header);
  text.resize(aligned(text.size(), kHeaderAlignment), ' ');
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += static_cast<char>(text.size() >> (8 * i) & 0xFFU);
  out += text;
  for (Target& target : targets) {
    for (uint64_t& at : target.at) at += out.size();
  }
  file_bytes = out.size() + end;
  return out;
}

class SafetensorsFolderWriter final : public ModelWriter {
 public:
  SafetensorsFolderWriter(const fs::path& output, std::vector<WeightTensor> tensors,
                          std::map<std::string, std::string> texts)
      : output_(output),
        parent_(output.has_parent_path() ? output.parent_path() : "."),
        staging_(parent_ / (output.filename().string() + ".partial-" + std::to_string(getpid()))),
        texts_(std::move(texts)) {
    for (WeightTensor& t : tensors) targets_.push_back(target_of(std::move(t)));
    const std::string header = lay_out(targets_, file_bytes_);
    file_ = std::make_unique<AtomicFile>(staging_ / kWeightsName,
                                         AtomicFileOptions{.folder = parent_, .bytes = file_bytes_});
    check_written(output_, file_->write_at(std::as_bytes(std::span(header)), 0));
  }
  ~SafetensorsFolderWriter() override {
    std::error_code ignored;
    if (staged_) fs::remove_all(staging_, ignored);
  }

  void put(size_t index, std::span<const std::byte> bytes) override {
    Target& target = targets_[index];
    if (target.parts.size() == 1) return put_part(target, 0, bytes);
    split_.resize(target.parts.size());
    split_rows(target.tensor.format, static_cast<uint64_t>(target.tensor.shape.back()), bytes, split_);
    for (size_t p = 0; p < split_.size(); ++p) put_part(target, p, split_[p]);
  }

  void commit() override {
    check_written(output_, file_->sync());
    std::error_code error;
    fs::create_directory(staging_, error);
    check_written(staging_, error);
    staged_ = true;
    for (const auto& [name, text] : texts_) {
      AtomicFile file(staging_ / name);
      check_written(file.path(), file.write_at(std::as_bytes(std::span(text)), 0));
      check_written(file.path(), file.sync());
      check_written(file.path(), file.commit());
    }
    check_written(output_, file_->commit());
    fs::rename(staging_, output_, error);
    check_written(output_, error);
    staged_ = false;
  }
  uint64_t file_bytes() const override { return file_bytes_; }

 private:
  void put_part(Target& target, size_t part, std::span<const std::byte> bytes) {
    check_written(output_, file_->write_at(bytes, target.at[part]));
    target.at[part] += bytes.size();
  }

  fs::path output_, parent_, staging_;
  std::map<std::string, std::string> texts_;
  std::vector<Target> targets_;
  uint64_t file_bytes_ = 0;
  bool staged_ = false;
  std::unique_ptr<AtomicFile> file_;
  std::vector<std::vector<std::byte>> split_;
};

}  // namespace

std::unique_ptr<ModelWriter> write_safetensors_folder(const fs::path& output, std::vector<WeightTensor> tensors,
                                                      std::map<std::string, std::string> texts) {
  return std::make_unique<SafetensorsFolderWriter>(output, std::move(tensors), std::move(texts));
}

}  // namespace tenon::weights
