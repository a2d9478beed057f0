#include "shard/tensor_index.h"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/status.h"
#include "shard/kv_scales.h"
#include "shard/model_folder.h"
#include "shard/quantized_tensors.h"

namespace bulkhead {
namespace {

using nlohmann::json;

constexpr char kSingleFile[] = "/model.safetensors";
constexpr char kIndexFile[] = "/model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = 100'000'000;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// A plain file name: an index must not refer outside the checkpoint's folder.
bool IsPlainName(absl::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find('/') == absl::string_view::npos && name.find('\0') == absl::string_view::npos;
}

// The index: maps tensor names to file names.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const std::string& path) {
  BH_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxIndexBytes));
  BH_ASSIGN_OR_RETURN(const json index, ParseJsonObject(text, path));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object() || weight_map->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no weight_map, or an empty one"));
  }
  std::map<std::string, std::string> files;
  for (const auto& item : weight_map->items()) {
    const std::string tensor = item.key().substr(0, 100);
    if (!item.value().is_string() || !IsPlainName(item.value().get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor '", tensor, "' is said to be in ", JsonExcerpt(item.value()),
                       ", which is not the name of a file beside the index"));
    }
    files.emplace(item.key(), item.value().get<std::string>());
  }
  return files;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Compares as many bytes as both have. Tensors of different formats count as different.
absl::StatusOr<bool> DifferentBytes(const LocatedTensor& a, const LocatedTensor& b) {
  constexpr int64_t kReadBytes = int64_t{1} << 20;
  if (a.entry->format != b.entry->format || a.entry->shape != b.entry->shape) return true;
  std::vector<std::byte> of_a(std::min(kReadBytes, a.entry->bytes)), of_b(of_a.size());
  for (int64_t done = 0; done < a.entry->bytes;) {
    const int64_t n = std::min(kReadBytes, a.entry->bytes - done);
    BH_RETURN_IF_ERROR(a.file->ReadAt(a.entry->begin + done, n, of_a.data()));
    BH_RETURN_IF_ERROR(b.file->ReadAt(b.entry->begin + done, n, of_b.data()));
    if (std::memcmp(of_a.data(), of_b.data(), n) != 0) return true;
    done += n;
  }
  return false;
}

}  // namespace

absl::string_view AdapterTensorName(absl::string_view name) {
  absl::ConsumePrefix(&name, "base_model.model.");
  // Prefixes of a whole model, and of the text part of a multimodal one, current and older.
  for (const char* prefix : {"model.language_model.", "language_model.model.", "model."}) {
    if (absl::ConsumePrefix(&name, prefix)) break;
  }
  return name;
}

absl::Status TensorIndex::Add(std::unique_ptr<SafetensorsFile> file) {
  for (const TensorEntry& tensor : file->tensors()) {
    const auto [at, inserted] =
        tensors_.emplace(tensor.name, LocatedTensor{&tensor, &file->file()});
    if (inserted) continue;
    return absl::DataLossError(absl::StrCat("tensor '", tensor.name, "' is both in ",
                                            at->second.file->path(), " and in ",
                                            file->file().path()));
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<TensorIndex> TensorIndex::Open(const std::string& dir) {
  BH_ASSIGN_OR_RETURN(TensorIndex index, OpenAsNamed(dir));
  if (index.tensors_.contains("embed_tokens.weight")) {
    BH_RETURN_IF_ERROR(
        index.Rename([](absl::string_view name) { return absl::StrCat("model.", name); }));
  }
  return index;
}

absl::StatusOr<TensorIndex> TensorIndex::OpenAdapter(const std::string& dir) {
  TensorIndex index;
  index.dir_ = dir;
  auto file = SafetensorsFile::Open(dir + "/adapter_model.safetensors");
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat(
        dir,
        " has no adapter_model.safetensors; other formats are not read: save the adapter with "
        "PEFT's save_pretrained()"));
  }
  BH_RETURN_IF_ERROR(file.status());
  BH_RETURN_IF_ERROR(index.Add(*std::move(file)));
  BH_RETURN_IF_ERROR(
      index.Rename([](absl::string_view name) { return std::string(AdapterTensorName(name)); }));
  return index;
}

absl::Status TensorIndex::Rename(const std::function<std::string(absl::string_view)>& new_name) {
  std::map<absl::string_view, LocatedTensor> renamed;
  for (const auto& [name, tensor] : tensors_) {
    names_.push_back(std::make_unique<std::string>(new_name(name)));
    const auto [at, inserted] = renamed.emplace(*names_.back(), tensor);
    if (inserted) continue;
    return absl::DataLossError(absl::StrCat(tensor.file->path(), ": the tensors '",
                                            at->second.entry->name, "' and '", name,
                                            "' are of the same module"));
  }
  tensors_ = std::move(renamed);
  return absl::OkStatus();
}

absl::StatusOr<TensorIndex> TensorIndex::OpenAsNamed(const std::string& dir) {
  TensorIndex index;
  index.dir_ = dir;
  const std::string index_path = dir + kIndexFile;
  if (Exists(dir + kSingleFile) || !Exists(index_path)) {
    auto file = SafetensorsFile::Open(dir + kSingleFile);
    if (absl::IsNotFound(file.status())) {
      return absl::NotFoundError(absl::StrCat(
          dir, " has neither model.safetensors nor ",
          "model.safetensors.index.json; other formats are not read", HintForMissingWeights(dir)));
    }
    BH_RETURN_IF_ERROR(file.status());
    BH_RETURN_IF_ERROR(index.Add(*std::move(file)));
    return index;
  }
  BH_ASSIGN_OR_RETURN(const auto weight_map, ReadWeightMap(index_path));
  std::map<absl::string_view, absl::string_view> first_tensor_of;  // by file name
  for (const auto& [tensor, file_name] : weight_map) first_tensor_of.emplace(file_name, tensor);
  for (const auto& [file_name, tensor] : first_tensor_of) {
    auto file = SafetensorsFile::Open(absl::StrCat(dir, "/", file_name));
    if (absl::IsNotFound(file.status())) {
      return absl::NotFoundError(absl::StrCat(dir, "/", file_name, " is missing; ", index_path,
                                              " says that it holds '", tensor, "'"));
    }
    BH_RETURN_IF_ERROR(file.status());
    BH_RETURN_IF_ERROR(index.Add(*std::move(file)));
  }
  for (const auto& [tensor, file_name] : weight_map) {
    const auto found = index.tensors_.find(tensor);
    const std::string path = absl::StrCat(dir, "/", file_name);
    if (found != index.tensors_.end() && found->second.file->path() == path) continue;
    return absl::DataLossError(absl::StrCat("tensor '", tensor.substr(0, 100), "' is not in ", path,
                                            ", where ", index_path, " says it is"));
  }
  for (const auto& [tensor, located] : index.tensors_) {
    if (weight_map.contains(std::string(tensor))) continue;
    return absl::DataLossError(absl::StrCat("tensor '", tensor, "' is in ", located.file->path(),
                                            " but not in ", index_path));
  }
  return index;
}

absl::StatusOr<LocatedTensor> TensorIndex::Find(const TensorRow& row) const {
  const std::string text = row.Name();
  auto found = tensors_.find(text);
  if (found == tensors_.end()) found = tensors_.find(row.shared_name);
  if (found == tensors_.end()) {
    const bool is_head = row.held_as == HeldAs::kTable && row.slot == kLmHead;
    return absl::NotFoundError(absl::StrCat("tensor '", text,
                                            "' is missing from the checkpoint in ", dir_,
                                            is_head ? ", and tie_word_embeddings is false" : ""));
  }
  const LocatedTensor& located = found->second;
  if (located.entry->shape != row.Shape()) {
    return absl::InvalidArgumentError(absl::StrCat(
        located.file->path(), ": tensor '", text, "' has shape ", ShapeText(located.entry->shape),
        "; config.json demands ", ShapeText(row.Shape())));
  }
  if (!located.entry->dtype.has_value()) {
    return absl::UnimplementedError(absl::StrCat(located.file->path(), ": tensor '", text, "' is ",
                                                 located.entry->format,
                                                 "; supported are F32, BF16 and F16"));
  }
  return located;
}

absl::StatusOr<LocatedTensor> TensorIndex::FindTensor(const std::string& name,
                                                      const std::vector<int64_t>& shape,
                                                      absl::string_view format) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::NotFoundError(
        absl::StrCat("tensor '", name, "' is missing from the checkpoint in ", dir_));
  }
  const LocatedTensor& located = found->second;
  if (located.entry->shape == shape && located.entry->format == format) return located;
  return absl::InvalidArgumentError(absl::StrCat(
      located.file->path(), ": tensor '", name, "' is ", located.entry->format, " of shape ",
      ShapeText(located.entry->shape), "; config.json demands ", format, " of ", ShapeText(shape)));
}

const LocatedTensor* TensorIndex::FindAny(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

namespace {

// Whether all bits of a vector of `size` numbers are 0.
absl::StatusOr<bool> IsZero(const LocatedTensor& vector, int64_t size) {
  if (vector.entry->shape != std::vector<int64_t>{size}) return false;
  std::vector<std::byte> bytes(vector.entry->bytes);
  BH_RETURN_IF_ERROR(vector.file->ReadAt(vector.entry->begin, vector.entry->bytes, bytes.data()));
  return absl::c_all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

absl::Status TensorIndex::CheckAgainst(const ModelConfig& config) const {
  std::set<std::string> required;     // or known, for scales that may be missing
  std::vector<std::string> optional;  // patterns
  // AutoGPTQ wrote a zero bias for every module: its name and number of outputs.
  std::map<std::string, int64_t> zeros;
  const bool is_gptq = config.quantization.method == QuantizationConfig::Method::kGptq;
  for (const TensorRow& row : AllTensors(config)) {
    if (row.optional) {
      optional.push_back(row.Name());
    } else if (row.is_kv_scale) {
      BH_RETURN_IF_ERROR(CheckKvScales(*this, row));
      for (std::string& name : KvScaleNames(row)) required.insert(std::move(name));
      for (std::string& name : NamesBesideKvScales(row)) required.insert(std::move(name));
    } else if (IsHeldQuantized(row, config)) {
      BH_RETURN_IF_ERROR(FindQuantized(*this, row, config).status());
      for (std::string& part : QuantizedNamesOf(row, config)) required.insert(std::move(part));
      if (is_gptq) zeros[absl::StrCat(row.Module(), ".bias")] = row.rows;
    } else {
      BH_RETURN_IF_ERROR(Find(row).status());
      required.insert(row.Name());
    }
  }
  if (config.mtp_layer > 0) return absl::OkStatus();  // the other tensors are the model's
  for (const auto& [key, located] : tensors_) {
    const std::string name(key);
    const auto is_like_name = [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    };
    if (required.contains(name) || std::any_of(optional.begin(), optional.end(), is_like_name)) {
      continue;
    }
    if (const auto bias = zeros.find(name); bias != zeros.end()) {
      BH_ASSIGN_OR_RETURN(const bool is_zero, IsZero(located, bias->second));
      if (is_zero) continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        located.file->path(), ": tensor '", name, "' has no place in a ", config.architecture,
        " of ", config.num_hidden_layers, " layers as config.json describes it"));
  }
  return absl::OkStatus();
}

std::map<int, LocatedTensor> TensorIndex::Tables(const ModelConfig& config) const {
  ModelConfig untied = config;
  untied.tie_word_embeddings = false;
  std::map<int, LocatedTensor> tables;
  for (const TensorRow& row : ModelTensors(untied)) {
    const auto found = tensors_.find(row.Name());
    if (row.held_as == HeldAs::kTable && found != tensors_.end()) tables[row.slot] = found->second;
  }
  return tables;
}

const FamilySpec* TensorIndex::FamilyOfNames(const ModelConfig& config,
                                             FamilySpecs families) const {
  const auto has_its_names = [&](const FamilySpec* family) {
    ModelConfig named = config;
    named.family = family;
    return Tables(named).contains(kEmbedding);
  };
  if (has_its_names(config.family)) return config.family;
  for (const FamilySpec* whole : families) {
    const std::vector<std::string> texts = absl::StrSplit(whole->text_model_types, ',');
    if (absl::c_linear_search(texts, config.model_type) && has_its_names(whole)) return whole;
  }
  return config.family;
}

bool TensorIndex::HasLmHead(const ModelConfig& config) const {
  return Tables(config).contains(kLmHead);
}

absl::StatusOr<bool> TensorIndex::HasOwnLmHead(const ModelConfig& config) const {
  const std::map<int, LocatedTensor> tables = Tables(config);
  if (!tables.contains(kLmHead) || !tables.contains(kEmbedding)) return false;
  return DifferentBytes(tables.at(kLmHead), tables.at(kEmbedding));
}

DType TensorIndex::MainDType() const {
  std::map<DType, int64_t> bytes;
  for (const auto& [name, located] : tensors_) {
    if (located.entry->dtype.has_value()) bytes[*located.entry->dtype] += located.entry->bytes;
  }
  const auto by_bytes = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto main = std::max_element(bytes.begin(), bytes.end(), by_bytes);
  return main == bytes.end() ? DType::kF32 : main->first;
}

uint64_t TensorIndex::Fingerprint() const {
  Digest digest;
  for (const auto& [name, located] : tensors_) {
    digest.Add(name);
    digest.Add(located.entry->format);
    for (const int64_t dimension : located.entry->shape) digest.Add(dimension);
    digest.Add(located.entry->begin);
    digest.Add(located.entry->bytes);
  }
  return digest.value();
}

}  // namespace bulkhead
