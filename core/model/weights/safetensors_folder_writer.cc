// Writes a folder as transformers reads it: model.safetensors and the small files around it. The folder is made beside
// the target and takes its name in the end, so that nothing stands under that name before all of it is written.
#include <unistd.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cerrno>

#include "model_writer.h"
#include "safetensors_parser.h"
#include "tenon/core/error.h"

namespace tenon::weights {
namespace {

namespace fs = std::filesystem;

constexpr char kWeightsName[] = "model.safetensors";
constexpr size_t kHeaderAlignment = 8;

// This is a tensor of the file, and where its bytes go on.
struct Target {
  WeightTensor tensor;
  uint64_t at = 0;
};

// Gives every tensor its place, wide elements first so that each lies aligned, and returns what stands before them.
std::string lay_out(std::vector<Target>& targets, uint64_t& file_bytes) {
  std::vector<Target*> order;
  for (Target& t : targets) order.push_back(&t);
  const auto width = [](const Target* t) { return tenon_format_block(t->tensor.format).bytes; };
  std::stable_sort(order.begin(), order.end(), [&](const Target* a, const Target* b) { return width(a) > width(b); });
  boost::json::object header;
  header["__metadata__"] = boost::json::object{{"format", "pt"}};
  uint64_t end = 0;
  for (Target* target : order) {
    const WeightTensor& t = target->tensor;
    const std::string_view dtype = safetensors_dtype(t.format);
    if (dtype.empty()) {
      throw Error(ErrorCode::kModel,
                  "tensor \"" + t.name + "\" in " + tenon_format_name(t.format) + " cannot be stored in safetensors");
    }
    target->at = end;
    boost::json::object& entry = header[t.name].emplace_object();
    entry["dtype"] = dtype;
    entry["shape"] = boost::json::array(t.shape.begin(), t.shape.end());
    entry["data_offsets"] = {end, end + t.bytes};
    end += t.bytes;
  }
  std::string text = boost::json::serialize(header);
  text.resize(aligned(text.size(), kHeaderAlignment), ' ');
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += static_cast<char>(text.size() >> (8 * i) & 0xFFU);
  out += text;
  for (Target& target : targets) target.at += out.size();
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
    for (const auto& [name, text] : texts_) staged_files_.push_back(staging_ / name);
    staged_files_.push_back(staging_ / kWeightsName);
    for (WeightTensor& t : tensors) targets_.push_back({std::move(t), 0});
    const std::string header = lay_out(targets_, file_bytes_);
    file_ = std::make_unique<AtomicFile>(staging_ / kWeightsName,
                                         AtomicFileOptions{.folder = parent_, .bytes = file_bytes_});
    check_written(output_, file_->write_at(std::as_bytes(std::span(header)), 0));
  }
  ~SafetensorsFolderWriter() override {
    if (!staged_) return;
    for (const fs::path& file : staged_files_) ::unlink(file.c_str());
    ::rmdir(staging_.c_str());
  }

  void put(size_t index, std::span<const std::byte> bytes) override {
    Target& target = targets_[index];
    check_written(output_, file_->write_at(bytes, target.at));
    target.at += bytes.size();
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
  fs::path output_, parent_, staging_;
  std::vector<fs::path> staged_files_;  // they are known before: to remove them takes neither memory nor a file
  std::map<std::string, std::string> texts_;
  std::vector<Target> targets_;
  uint64_t file_bytes_ = 0;
  bool staged_ = false;
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace

std::unique_ptr<ModelWriter> write_safetensors_folder(const fs::path& output, std::vector<WeightTensor> tensors,
                                                      std::map<std::string, std::string> texts) {
  return std::make_unique<SafetensorsFolderWriter>(output, std::move(tensors), std::move(texts));
}

}  // namespace tenon::weights
