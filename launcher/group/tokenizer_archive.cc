#include "launcher/group/tokenizer_archive.h"

#include <zip.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/planning/host_budget.h"

namespace bulkhead {
namespace {

constexpr char kTokenizerFile[] = "tokenizer.json";
constexpr zip_uint32_t kFastest = 1;                         // deflate level
constexpr uint16_t kDosDate = (0U << 9U) | (1U << 5U) | 1U;  // 1980-01-01, the format's first day

struct ArchivedFile {
  std::string name;
  std::string text;
};

absl::StatusOr<std::vector<ArchivedFile>> ReadFiles(const std::string& dir) {
  std::vector<std::string> names = {"config.json", "generation_config.json",
                                    "special_tokens_map.json", "tokenizer_config.json"};
  std::error_code error;
  if (!std::filesystem::is_regular_file(absl::StrCat(dir, "/", kTokenizerFile), error)) {
    return absl::NotFoundError(absl::StrCat("the model has no ", kTokenizerFile));
  }
  for (std::filesystem::directory_iterator entry(dir, error), last; !error && entry != last;
       entry.increment(error)) {
    if (entry->path().extension() == ".jinja") names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  std::vector<ArchivedFile> files;
  int64_t besides_bytes = 0;
  for (std::string& name : names) {
    const std::string path = absl::StrCat(dir, "/", name);
    if (!std::filesystem::is_regular_file(path, error)) continue;
    besides_bytes += static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (error || besides_bytes > kMaxArchivedBesidesBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("the files besides ", kTokenizerFile,
                                                       " have more than ", kMaxArchivedBesidesBytes,
                                                       " bytes, the limit for sending them"));
    }
    BH_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path));
    files.push_back({std::move(name), std::move(text)});
  }
  BH_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(absl::StrCat(dir, "/", kTokenizerFile)));
  files.push_back({kTokenizerFile, std::move(text)});
  return files;
}

absl::Status ZipError(absl::string_view what, zip_error_t* error) {
  return absl::InternalError(
      absl::StrCat("the archive of the tokenizer: ", what, ": ", zip_error_strerror(error)));
}

absl::Status AddFile(zip_t* zip, const ArchivedFile& file) {
  zip_source_t* const source =
      zip_source_buffer(zip, file.text.data(), file.text.size(), /*freep=*/0);
  if (source == nullptr) return ZipError(file.name, zip_get_error(zip));
  const zip_int64_t index = zip_file_add(zip, file.name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    return ZipError(file.name, zip_get_error(zip));
  }
  const auto entry = static_cast<zip_uint64_t>(index);
  if (zip_set_file_compression(zip, entry, ZIP_CM_DEFLATE, kFastest) != 0 ||
      zip_file_set_dostime(zip, entry, 0, kDosDate, 0) != 0) {
    return ZipError(file.name, zip_get_error(zip));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSource(zip_source_t* source) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_source_stat(source, &stat) != 0 || zip_source_open(source) != 0) {
    return ZipError("read", zip_source_error(source));
  }
  std::string bytes(stat.size, '\0');
  const zip_int64_t read = zip_source_read(source, bytes.data(), bytes.size());
  zip_source_close(source);
  if (read != static_cast<zip_int64_t>(bytes.size())) {
    return ZipError("read", zip_source_error(source));
  }
  return bytes;
}

// `target`: an empty source, which contains the archive afterwards.
absl::Status Write(const std::vector<ArchivedFile>& files, zip_source_t* target) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_keep(target);  // a reference for the archive, which drops it
  zip_t* const zip = zip_open_from_source(target, ZIP_CREATE | ZIP_TRUNCATE, &error);
  if (zip == nullptr) {
    zip_source_free(target);
    return ZipError("open", &error);
  }
  for (const ArchivedFile& file : files) {
    if (absl::Status added = AddFile(zip, file); !added.ok()) {
      zip_discard(zip);
      return added;
    }
  }
  if (zip_close(zip) == 0) return absl::OkStatus();
  absl::Status failed = ZipError("write", zip_get_error(zip));
  zip_discard(zip);
  return failed;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenizerArchive>> MakeTokenizerArchive(
    const std::string& dir) {
  BH_ASSIGN_OR_RETURN(const std::vector<ArchivedFile> files, ReadFiles(dir));
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const target = zip_source_buffer_create(nullptr, 0, /*freep=*/0, &error);
  if (target == nullptr) return ZipError("create", &error);
  const absl::Status written = Write(files, target);
  absl::StatusOr<std::string> zip = written.ok() ? ReadSource(target) : written;
  zip_source_free(target);
  BH_RETURN_IF_ERROR(zip.status());
  auto archive = std::make_shared<TokenizerArchive>();
  archive->zip = *std::move(zip);
  archive->sha256 = Sha256Hex(archive->zip);
  return std::shared_ptr<const TokenizerArchive>(std::move(archive));
}

}  // namespace bulkhead
