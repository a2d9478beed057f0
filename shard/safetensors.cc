#include "shard/safetensors.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wrong_file.h"

namespace bulkhead {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxNameBytes = 512;

struct Format {
  const char* name;
  int bits;
  std::optional<DType> dtype;
};

constexpr Format kFormats[] = {
    {"F32", 32, DType::kF32},     {"BF16", 16, DType::kBF16},   {"F16", 16, DType::kF16},
    {"F64", 64, std::nullopt},    {"I64", 64, std::nullopt},    {"I32", 32, std::nullopt},
    {"I16", 16, std::nullopt},    {"I8", 8, std::nullopt},      {"U64", 64, std::nullopt},
    {"U32", 32, std::nullopt},    {"U16", 16, std::nullopt},    {"U8", 8, std::nullopt},
    {"BOOL", 8, std::nullopt},    {"F8_E4M3", 8, std::nullopt}, {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"C64", 64, std::nullopt},    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt}, {"F6_E3M2", 6, std::nullopt},
};

// A JSON whole number from 0 to 2^63 - 1.
std::optional<int64_t> AsOffset(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(number);
}

// Reads one tensor's entry; every failure names the file and the tensor.
class EntryReader {
 public:
  EntryReader(const std::string& source, absl::string_view name, const json& entry)
      : source_(source), name_(name), entry_(entry) {}

  // `data_begin`: where the header ends.
  absl::StatusOr<TensorEntry> Read(int64_t data_begin) const {
    if (name_.empty() || name_.size() > kMaxNameBytes) {
      return Refusal(
          absl::StrCat("its name has ", name_.size(), " bytes, allowed are 1 to ", kMaxNameBytes));
    }
    if (!entry_.is_object()) return Refusal(absl::StrCat("its entry is ", JsonExcerpt(entry_)));
    TensorEntry tensor;
    tensor.name = std::string(name_);
    BH_ASSIGN_OR_RETURN(const Format* format, ReadFormat());
    tensor.format = format->name;
    tensor.dtype = format->dtype;
    BH_ASSIGN_OR_RETURN(tensor.shape, ReadShape());
    BH_ASSIGN_OR_RETURN(tensor.bytes, BytesOf(tensor.shape, *format));
    BH_ASSIGN_OR_RETURN(const int64_t offset, ReadOffsets(tensor.bytes));
    if (offset > INT64_MAX - data_begin - tensor.bytes) return Refusal("its offset is too large");
    tensor.begin = data_begin + offset;
    return tensor;
  }

 private:
  absl::Status Refusal(absl::string_view what) const {
    return absl::DataLossError(
        absl::StrCat(source_, ": tensor '", name_.substr(0, 100), "': ", what));
  }

  absl::StatusOr<const Format*> ReadFormat() const {
    const auto found = entry_.find("dtype");
    if (found == entry_.end() || !found->is_string()) return Refusal("its dtype is missing");
    for (const Format& format : kFormats) {
      if (found->get_ref<const std::string&>() == format.name) return &format;
    }
    return Refusal(absl::StrCat("its dtype ", JsonExcerpt(*found), " is not known"));
  }

  absl::StatusOr<std::vector<int64_t>> ReadShape() const {
    const auto found = entry_.find("shape");
    if (found == entry_.end() || !found->is_array()) return Refusal("its shape is missing");
    if (found->size() > kMaxDimensions) {
      return Refusal(absl::StrCat("its shape has ", found->size(), " dimensions, allowed are ",
                                  kMaxDimensions));
    }
    std::vector<int64_t> shape;
    for (const json& dimension : *found) {
      const std::optional<int64_t> value = AsOffset(dimension);
      if (!value.has_value()) return Refusal(absl::StrCat("its shape is ", JsonExcerpt(*found)));
      shape.push_back(*value);
    }
    return shape;
  }

  absl::StatusOr<int64_t> BytesOf(const std::vector<int64_t>& shape, const Format& format) const {
    int64_t bits = format.bits;
    for (const int64_t dimension : shape) {
      if (__builtin_mul_overflow(bits, dimension, &bits)) {
        return Refusal(absl::StrCat("its shape ", JsonExcerpt(entry_["shape"]), " overflows"));
      }
    }
    if (bits % 8 != 0) return Refusal("its shape does not fill whole bytes");
    return bits / 8;
  }

  absl::StatusOr<int64_t> ReadOffsets(int64_t bytes) const {
    const auto found = entry_.find("data_offsets");
    if (found == entry_.end() || !found->is_array() || found->size() != 2) {
      return Refusal("its data_offsets are missing");
    }
    const std::optional<int64_t> begin = AsOffset((*found)[0]);
    const std::optional<int64_t> end = AsOffset((*found)[1]);
    if (!begin.has_value() || !end.has_value() || *begin > *end) {
      return Refusal(absl::StrCat("its data_offsets are ", JsonExcerpt(*found)));
    }
    if (*end - *begin != bytes) {
      return Refusal(absl::StrCat("its data_offsets span ", *end - *begin, " bytes, but ",
                                  JsonExcerpt(entry_["dtype"]), " times shape ",
                                  JsonExcerpt(entry_["shape"]), " is ", bytes));
    }
    return *begin;
  }

  const std::string& source_;
  absl::string_view name_;
  const json& entry_;
};

// `tensors`, ordered by offset, fill [data_begin, file_bytes).
absl::Status CheckLayout(const std::vector<TensorEntry>& tensors, int64_t data_begin,
                         int64_t file_bytes, const std::string& source) {
  int64_t end = data_begin;
  const TensorEntry* cut_off = nullptr;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != end) {
      return absl::DataLossError(
          absl::StrCat(source, ": tensor '", tensor.name, "' begins at byte ", tensor.begin,
                       tensor.begin < end ? ", inside the tensor before it, which ends at byte "
                                          : ", but the tensor before it ends at byte ",
                       end));
    }
    end = tensor.begin + tensor.bytes;
    if (end > file_bytes && cut_off == nullptr) cut_off = &tensor;
  }
  if (cut_off != nullptr) {
    return absl::DataLossError(absl::StrCat(
        source, " is truncated: it has ", file_bytes, " bytes and its header promises ", end,
        "; the first tensor cut off is '", cut_off->name, "'; download it again"));
  }
  if (end == file_bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(source, " has ", file_bytes - end,
                                          " bytes after its last tensor, '",
                                          tensors.empty() ? "" : tensors.back().name, "'"));
}

absl::StatusOr<std::vector<TensorEntry>> ReadHeader(const LocalFile& file) {
  uint64_t header_bytes = 0;
  if (file.bytes() < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat(file.path(), " is truncated: it has ", file.bytes(),
                     " bytes, fewer than a safetensors header's length needs"));
  }
  BH_RETURN_IF_ERROR(file.ReadAt(0, kLengthBytes, reinterpret_cast<std::byte*>(&header_bytes)));
  std::string begin(std::min(file.bytes(), kWrongFileBytes), '\0');
  BH_RETURN_IF_ERROR(file.ReadAt(0, static_cast<int64_t>(begin.size()),
                                 reinterpret_cast<std::byte*>(begin.data())));
  const std::string wrong = WrongFileText(begin, file.bytes());
  if (!wrong.empty()) return absl::DataLossError(absl::StrCat(file.path(), " ", wrong));
  if (header_bytes > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return absl::DataLossError(absl::StrCat(file.path(), ": its header claims ", header_bytes,
                                            " bytes; at most ", kMaxHeaderBytes,
                                            " are allowed: is it a safetensors file?"));
  }
  if (static_cast<int64_t>(header_bytes) > file.bytes() - kLengthBytes) {
    return absl::DataLossError(absl::StrCat(file.path(), " is truncated: it has ", file.bytes(),
                                            " bytes and its header alone has ", header_bytes));
  }
  std::string header(header_bytes, '\0');
  BH_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, static_cast<int64_t>(header_bytes),
                                 reinterpret_cast<std::byte*>(header.data())));
  return ParseSafetensorsHeader(header, file.bytes(), file.path());
}

}  // namespace

absl::StatusOr<std::vector<TensorEntry>> ParseSafetensorsHeader(absl::string_view header_json,
                                                                int64_t file_bytes,
                                                                const std::string& source) {
  auto header = ParseJsonObject(header_json, absl::StrCat(source, ": header"));
  if (!header.ok()) return absl::DataLossError(header.status().message());
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_json.size());
  std::vector<TensorEntry> tensors;
  for (const auto& item : header->items()) {
    if (item.key() == "__metadata__") continue;
    BH_ASSIGN_OR_RETURN(TensorEntry tensor,
                        EntryReader(source, item.key(), item.value()).Read(data_begin));
    tensors.push_back(std::move(tensor));
  }
  // Empty tensors sort before the one that begins at the same byte.
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::make_pair(a.begin, a.bytes) < std::make_pair(b.begin, b.bytes);
  });
  BH_RETURN_IF_ERROR(CheckLayout(tensors, data_begin, file_bytes, source));
  return tensors;
}

SafetensorsFile::SafetensorsFile(LocalFile file, std::vector<TensorEntry> tensors)
    : file_(std::move(file)), tensors_(std::move(tensors)) {}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  BH_ASSIGN_OR_RETURN(LocalFile file, LocalFile::Open(path));
  BH_ASSIGN_OR_RETURN(std::vector<TensorEntry> tensors, ReadHeader(file));
  return std::unique_ptr<SafetensorsFile>(new SafetensorsFile(std::move(file), std::move(tensors)));
}

}  // namespace bulkhead
