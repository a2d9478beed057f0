#include "runtime/chat/jinja/text_operations.h"

#include <algorithm>

#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

bool EndsLine(char32_t code) {
  return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

absl::Status CheckParts(const Parts& parts, Meter* meter) {
  constexpr int64_t kPartBytes = 100;
  const int64_t bytes = kPartBytes * static_cast<int64_t>(parts.size());
  return meter->Fits(bytes) ? absl::OkStatus() : meter->Reserve(bytes);
}

}  // namespace

absl::StatusOr<Parts> Split(absl::string_view text, absl::string_view separator, int64_t most,
                            bool from_right, Meter* meter) {
  Parts parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    BH_RETURN_IF_ERROR(CheckParts(parts, meter));
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == absl::string_view::npos) break;
    const absl::string_view before = text.substr(0, at);
    const absl::string_view behind = text.substr(at + separator.size());
    parts.emplace_back(from_right ? behind : before);
    text = from_right ? before : behind;
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

absl::StatusOr<Parts> SplitSpace(absl::string_view text, int64_t most, bool from_right,
                                 Meter* meter) {
  Parts parts;
  while (true) {
    BH_RETURN_IF_ERROR(CheckParts(parts, meter));
    text = from_right ? StripRight(text) : StripLeft(text);
    if (text.empty()) break;
    if (most >= 0 && static_cast<int64_t>(parts.size()) >= most) {
      parts.emplace_back(text);  // its other side is not stripped
      break;
    }
    size_t word = 0;
    while (word < text.size()) {
      const absl::string_view rest =
          from_right ? text.substr(0, text.size() - word) : text.substr(word);
      const size_t start = from_right ? CharStart(rest, rest.size() - 1) : 0;
      size_t end = start;
      if (IsSpace(NextChar(rest, &end))) break;
      word += end - start;
    }
    parts.emplace_back(from_right ? text.substr(text.size() - word) : text.substr(0, word));
    if (from_right) {
      text.remove_suffix(word);
    } else {
      text.remove_prefix(word);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

absl::StatusOr<Parts> SplitLines(absl::string_view text, bool keep_ends, Meter* meter) {
  Parts lines;
  while (!text.empty()) {
    BH_RETURN_IF_ERROR(CheckParts(lines, meter));
    absl::string_view rest = text;
    size_t line = text.size(), end = text.size();
    while (!rest.empty()) {
      const size_t at = text.size() - rest.size();
      const char32_t code = TakeCodePoint(&rest);
      if (!EndsLine(code)) continue;
      if (code == '\r' && !rest.empty() && rest[0] == '\n') rest.remove_prefix(1);
      line = at;
      end = text.size() - rest.size();
      break;
    }
    lines.emplace_back(text.substr(0, keep_ends ? end : line));
    text.remove_prefix(end);
  }
  return lines;
}

absl::StatusOr<std::string> Replace(absl::string_view text, absl::string_view from,
                                    absl::string_view to, int64_t most, Meter* meter) {
  BH_RETURN_IF_ERROR(meter->Reserve(static_cast<int64_t>(text.size())));
  std::string out;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    if (!meter->Fits(static_cast<int64_t>(out.size() + to.size()))) {
      return meter->Reserve(out.size() + to.size());
    }
    if (from.empty()) {  // before every character and at the end
      out.append(to.data(), to.size());
      if (text.empty()) return out;
      const size_t bytes = CodePointBytes(text);
      out.append(text.data(), bytes);
      text.remove_prefix(bytes);
      continue;
    }
    const size_t at = text.find(from);
    if (at == absl::string_view::npos) break;
    out.append(text.data(), at);
    out.append(to.data(), to.size());
    text.remove_prefix(at + from.size());
  }
  out.append(text.data(), text.size());
  BH_RETURN_IF_ERROR(meter->HandleBytes(static_cast<int64_t>(out.size())));
  return out;
}

absl::StatusOr<Value> TextList(Evaluator& evaluator, const Parts& parts) {
  BH_RETURN_IF_ERROR(CheckParts(parts, evaluator.meter()));
  std::vector<Value> items;
  for (const std::string& part : parts) items.push_back(evaluator.Text(part));
  return evaluator.List(std::move(items));
}

}  // namespace bulkhead::jinja
