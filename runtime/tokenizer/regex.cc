#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/tokenizer/oniguruma.h"

namespace bulkhead {
namespace {

constexpr uint32_t kMatchLimit = 100'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
// Range of start positions, in bytes, between budget checks: a pattern that scans the rest of a
// long text at every position is then stopped within a fraction of a second.
constexpr size_t kSearchWindow = 256;

// PCRE2's working memory. Compiled patterns also use 32 KiB of the thread's stack.
struct MatchSpace {
  MatchSpace()
      : data(pcre2_match_data_create(1, nullptr)), context(pcre2_match_context_create(nullptr)) {
    if (context == nullptr) return;
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~MatchSpace() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchSpace(const MatchSpace&) = delete;
  MatchSpace& operator=(const MatchSpace&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
};

int Match(const pcre2_code* code, absl::string_view text, size_t start, const MatchSpace& space) {
  return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                     PCRE2_NO_UTF_CHECK, space.data, space.context);
}

// A deep match temporarily gets its own stack; one such match at a time, so that all threads
// together allocate one.
int MatchDeep(const pcre2_code* code, absl::string_view text, size_t start,
              const MatchSpace& space) {
  ABSL_CONST_INIT static absl::Mutex mutex(absl::kConstInit);
  const absl::MutexLock lock(&mutex);
  // It grows page by page.
  pcre2_jit_stack* const stack = pcre2_jit_stack_create(32 * 1024, kDeepMatchBytes, nullptr);
  if (stack == nullptr) return PCRE2_ERROR_NOMEMORY;
  pcre2_jit_stack_assign(space.context, nullptr, stack);
  const int rc = Match(code, text, start, space);
  pcre2_jit_stack_assign(space.context, nullptr, nullptr);
  pcre2_jit_stack_free(stack);
  return rc;
}

std::string ErrorText(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

bool RegexBudget::Spend() {
  constexpr int kCallsOfALook = 64;
  if (++calls_ % kCallsOfALook == 0) {
    const int64_t now_ns = ThreadCpuNanos();
    if (calls_ == kCallsOfALook) end_ns_ = now_ns + time_.count();
    spent_ = spent_ || now_ns >= end_ns_;
  }
  return !spent_;
}

struct Regex::Code {
  ~Code() { pcre2_code_free(code); }
  // The first match that starts at or after `start`: 1 and its span, 0 for none, or PCRE2's error.
  int FindFrom(absl::string_view text, size_t start, RegexBudget& budget, Span* match) const;

  pcre2_code* code = nullptr;
};

int Regex::Code::FindFrom(absl::string_view text, size_t start, RegexBudget& budget,
                          Span* match) const {
  thread_local MatchSpace space;
  if (space.data == nullptr || space.context == nullptr) return PCRE2_ERROR_NOMEMORY;
  while (true) {
    if (!budget.Spend()) return PCRE2_ERROR_MATCHLIMIT;
    pcre2_set_offset_limit(space.context, start + kSearchWindow - 1);
    int rc = Match(code, text, start, space);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = MatchDeep(code, text, start, space);
    if (rc >= 0) {
      const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(space.data);
      // \K inside a lookaround could end a match before its start.
      if (ends[0] < start || ends[1] < ends[0]) return PCRE2_ERROR_BADOFFSET;
      *match = {ends[0], ends[1], true};
      return 1;
    }
    if (rc != PCRE2_ERROR_NOMATCH) return rc;
    start += kSearchWindow;
    while (start < text.size() && !IsCharBoundary(text, start)) ++start;
    if (start > text.size()) return 0;
  }
}

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;

absl::StatusOr<std::unique_ptr<Regex>> Regex::Compile(absl::string_view oniguruma_pattern) {
  BH_ASSIGN_OR_RETURN(const std::string pattern, TranslateOniguruma(oniguruma_pattern));
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) return absl::ResourceExhaustedError("no memory to compile a pattern");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE position = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_MULTILINE |
                                 PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C,
                             &error, &position, context.get());
  if (code->code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("regular expression \"", oniguruma_pattern,
                                                   "\" does not compile: ", ErrorText(error)));
  }
  // Without the JIT compiler patterns are interpreted: slower, same result.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return std::unique_ptr<Regex>(new Regex(std::move(code)));
}

absl::Status Regex::FindAll(absl::string_view text, RegexBudget& budget,
                            std::vector<Span>* spans) const {
  size_t covered = 0;      // spans cover up to here
  size_t search_from = 0;  // the next match starts here or later
  bool any = false;
  while (search_from <= text.size()) {
    Span match;
    const int rc = code_->FindFrom(text, search_from, budget, &match);
    if (rc < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a regular expression of the tokenizer exceeded its limits on a text of ",
                       text.size(), " bytes: ", ErrorText(rc), "; send a shorter text"));
    }
    if (rc == 0) break;
    if (any && match.begin == match.end && match.end == covered) {
      // An empty match right after a match is ignored; the reference advances by one character.
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
