#include "runtime/tokenizer/regex.h"

#include <oniguruma.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

// Of one call. A retry takes nanoseconds.
constexpr unsigned long kRetryLimit = 100'000'000;
// Where a search may begin, in bytes, before the budget is asked again: a pattern that reads the
// rest of a long text at every position is then stopped within a second.
constexpr size_t kSearchWindow = 64;
// The match stack has an entry of 32 bytes for each byte of the text, and so many for a short one.
constexpr size_t kLeastStackEntries = 1024;

// What is set for one call and what it finds, kept per thread: to make them takes longer than most
// matches do.
struct MatchSpace {
  MatchSpace() : limits(onig_new_match_param()) {
    BH_CHECK(limits != nullptr);
    onig_initialize_match_param(limits);
    onig_set_retry_limit_in_match_of_match_param(limits, kRetryLimit);
    onig_set_retry_limit_in_search_of_match_param(limits, kRetryLimit);
    onig_region_init(&region);
  }
  ~MatchSpace() {
    onig_free_match_param(limits);
    onig_region_free(&region, /*free_self=*/0);
  }
  MatchSpace(const MatchSpace&) = delete;
  MatchSpace& operator=(const MatchSpace&) = delete;

  OnigMatchParam* const limits;
  OnigRegion region;
};

const OnigUChar* Bytes(absl::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string ErrorText(int error, OnigErrorInfo* info) {
  OnigUChar buffer[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int size = onig_error_code_to_str(buffer, error, info);
  return std::string(reinterpret_cast<const char*>(buffer), size);
}

std::chrono::nanoseconds ThreadTime() {
  timespec time;
  BH_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

RegexBudget::RegexBudget(std::chrono::milliseconds time) : deadline_(ThreadTime() + time) {}

bool RegexBudget::Spend(bool long_search) {
  if (long_search || ++calls_ % 64 == 0) spent_ = spent_ || ThreadTime() >= deadline_;
  return !spent_;
}

absl::StatusOr<std::unique_ptr<Regex>> Regex::Compile(absl::string_view pattern) {
  static const int initialized = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  BH_CHECK(initialized == ONIG_NORMAL);
  if (absl::StrContains(pattern, "\\G")) {  // would match where each window begins
    return absl::UnimplementedError(
        absl::StrCat("regular expression \"", pattern, "\": \\G is not supported"));
  }
  OnigRegex code = nullptr;
  OnigErrorInfo info{};
  const int error = onig_new(&code, Bytes(pattern), Bytes(pattern) + pattern.size(),
                             ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
  if (error != ONIG_NORMAL) {
    return absl::InvalidArgumentError(absl::StrCat(
        "regular expression \"", pattern, "\" does not compile: ", ErrorText(error, &info)));
  }
  return std::unique_ptr<Regex>(new Regex(code));
}

Regex::~Regex() { onig_free(code_); }

absl::Status Regex::FindAll(absl::string_view text, RegexBudget& budget,
                            std::vector<Span>* spans) const {
  thread_local MatchSpace space;
  onig_set_match_stack_limit_size_of_match_param(
      space.limits, static_cast<unsigned int>(text.size() + kLeastStackEntries));
  const OnigUChar* const begin = Bytes(text);
  size_t covered = 0;      // spans reach to here
  size_t search_from = 0;  // the next match begins here or later
  bool any = false, searches_on = false;
  while (search_from <= text.size()) {
    size_t window_end = std::min(text.size(), search_from + kSearchWindow);
    int rc = ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
    if (budget.Spend(searches_on)) {
      rc =
          onig_search_with_param(code_, begin, begin + text.size(), begin + search_from,
                                 begin + window_end, &space.region, ONIG_OPTION_NONE, space.limits);
    }
    searches_on = rc == ONIG_MISMATCH;
    if (searches_on) {
      if (window_end == text.size()) break;
      while (!IsCharBoundary(text, window_end)) ++window_end;
      search_from = window_end;
      continue;
    }
    if (rc < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a regular expression of the tokenizer gave up on a text of ", text.size(),
                       " bytes: ", ErrorText(rc, nullptr), "; send a shorter text"));
    }
    const Span match{static_cast<size_t>(space.region.beg[0]),
                     static_cast<size_t>(space.region.end[0]), true};
    if (any && match.begin == match.end && match.end == covered) {
      // An empty match right after a match does not count; the reference steps over one character.
      search_from += search_from < text.size() ? CharBytes(text[search_from]) : 1;
      continue;
    }
    if (match.begin > covered) spans->push_back({covered, match.begin, false});
    spans->push_back(match);
    covered = search_from = match.end;
    any = true;
  }
  if (covered < text.size()) spans->push_back({covered, text.size(), false});
  return absl::OkStatus();
}

}  // namespace bulkhead
