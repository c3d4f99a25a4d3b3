#include "model_writer.h"
#include "tenon/core/error.h"

namespace tenon::weights {
namespace {

class GgufFileWriter final : public ModelWriter {
 public:
  GgufFileWriter(const std::filesystem::path& output, const GgufPairs& metadata, uint64_t alignment,
                 std::vector<WeightTensor> tensors, bool replace)
      : tensors_(std::move(tensors)),
        layout_(lay_out_gguf(metadata, alignment, tensors_)),
        file_(output, {.bytes = layout_.file_bytes, .replace = replace}),
        written_(tensors_.size()) {
    check_written(output, file_.write_at(std::as_bytes(std::span(layout_.header)), 0));
  }
  void put(size_t index, std::span<const std::byte> bytes) override {
    check_written(file_.path(), file_.write_at(bytes, tensors_[index].offset + written_[index]));
    written_[index] += bytes.size();
  }
  void commit() override {
    check_written(file_.path(), file_.sync());
    check_written(file_.path(), file_.commit());
  }
  uint64_t file_bytes() const override { return layout_.file_bytes; }

 private:
  std::vector<WeightTensor> tensors_;
  GgufLayout layout_;
  AtomicFile file_;
  std::vector<uint64_t> written_;  // so many bytes of each tensor
};

}  // namespace

std::unique_ptr<ModelWriter> write_gguf(const std::filesystem::path& output, const GgufPairs& metadata,
                                        uint64_t alignment, std::vector<WeightTensor> tensors, bool replace) {
  return std::make_unique<GgufFileWriter>(output, metadata, alignment, std::move(tensors), replace);
}

void check_written(const std::filesystem::path& path, std::error_code error) {
  if (error) throw Error(ErrorCode::kIo, {path.string()}, "cannot be written: " + error.message());
}

}  // namespace tenon::weights
